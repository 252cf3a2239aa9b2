"""`python -m schedproof`."""

from .gate.cli.start import main

main()
