"""Judge many releases in several configurations: which rules are broken, and from which release to
which."""
