"""`python -m schedproof`."""

from .gate.cli import main

main()
