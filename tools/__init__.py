"""Tools that only this repository runs; `make tool` lists them. They are not part of the wheel."""
