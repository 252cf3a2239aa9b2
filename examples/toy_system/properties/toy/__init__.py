"""The rules of the toy scheduler, and runs that are likely to break them."""
