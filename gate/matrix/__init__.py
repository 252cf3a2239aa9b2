"""Judge many releases in several configurations, and show which rules each of them breaks."""
