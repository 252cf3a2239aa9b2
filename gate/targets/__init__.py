"""Schedulers under test: in this process, in another process behind a pipe, or from a release."""
