"""The command line, one file per command. Each parses its arguments, calls one function, prints
the result and exits."""
