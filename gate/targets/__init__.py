"""Schedulers under test: in this process, behind a pipe, or from a published release."""
