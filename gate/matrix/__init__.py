"""Judge many releases in several configurations: which rules break, since when, and until when."""
