"""Replaces <!-- api --> by every name of the library, with its signature and docstring."""

import inspect
from collections.abc import Iterator
from typing import Any

import schedproof

MARKER = "<!-- api -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the library."""
    return markdown.replace(MARKER, "\n".join(entries())) if MARKER in markdown else markdown


def entries() -> Iterator[str]:
    """Yield a section for each name."""
    for name in schedproof.LIBRARY:
        value = getattr(schedproof, name)
        yield f"## {name}\n"
        yield f"```python\n{name}{_signature(value)}\n```\n"
        yield _as_markdown(inspect.getdoc(value) or "")


def _signature(value: Any) -> str:
    """Return the parameters, each on a line."""
    parameters = inspect.signature(value).parameters.values()
    lines = []
    is_keyword = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            lines.append("*")
            is_keyword = True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"{parameter.name}{default if '<function' not in default else ' = ...'}")
    joined = ",\n    ".join(lines)
    return f"(\n    {joined},\n)" if lines else "()"


def _as_markdown(doc: str) -> str:
    """Return a docstring as Markdown, its sections as lists."""
    lines = []
    for line in doc.splitlines():
        if line in ("Args:", "Raises:", "Attributes:"):
            lines.append(f"\n**{line[:-1]}**\n")
        elif line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(": ")
            lines.append(f"- `{name}`: {rest}" if colon else f"- {name}")
        elif line.startswith("     "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
