"""The command line, one file per command: it parses, calls one function, prints and exits."""
