"""Files on disk: the scenario format, and how a file is read and written."""
