"""`python -m schedproof`."""

from .gate.start import main

main()
