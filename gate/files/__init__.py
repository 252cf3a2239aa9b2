"""Files on disk: the scenario format, and reading and writing files."""
