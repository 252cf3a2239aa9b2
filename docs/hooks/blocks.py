"""Gives each block ```python replace="FILE", which a test reads, a title that says so."""

import re
from typing import Any

REPLACES = re.compile(r'^```(\w+) replace="([^"]+)"$', re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Give titles to the blocks that replace a line."""
    return REPLACES.sub(r'```\1 title="\2, instead of one line"', markdown)
