"""```python replace="FILE", which a test reads, becomes a block with a title that says so."""

import re
from typing import Any

REPLACES = re.compile(r'^```(\w+) replace="([^"]+)"$', re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Give the blocks that replace a line their titles."""
    return REPLACES.sub(r'```\1 title="\2, instead of one line"', markdown)
