"""Schedulers under test: in this process, behind a pipe, or a published release."""
