"""The pytest plugin: run the gate as tests of the user's repository."""
