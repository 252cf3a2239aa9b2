"""Replaces <!-- formulas --> by every published formula of the volumetric check, from the model."""

import inspect
from textwrap import indent
from typing import Any

from schedproof.model.spyre.volumetric import FORMULAS, Formula

MARKER = "<!-- formulas -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the formulas."""
    return markdown.replace(MARKER, "\n\n".join(_shown(*entry) for entry in FORMULAS.items()))


def _shown(name: str, formula: Formula) -> str:
    source = "\n\n".join(
        inspect.getsource(term).rstrip() for term in (formula.newcomer, formula.member)
    )
    body = indent(f"{formula.title}\n\n```python\n{source}\n```", "    ")
    return f'??? note "`formula={name}`"\n\n{body}'
