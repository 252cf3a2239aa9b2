"""Counts of tokens, blocks and requests, as a file or an option gives them."""

from typing import Annotated

import msgspec

# No run reaches it: beyond it a number is a mistake, and what it asks for would never end.
MOST = 10**9
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
