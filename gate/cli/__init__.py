"""The command line, one file a command: it parses, calls one function, prints and exits."""
