"""Many releases, each in several configurations: which rules broke, since when, until when."""
