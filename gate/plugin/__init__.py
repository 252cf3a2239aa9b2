"""The pytest plugin: the gate as tests of the repository that uses it."""
