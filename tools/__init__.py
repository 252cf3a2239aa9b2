"""What only this repository runs; `make tool` lists it. Not part of the wheel."""
