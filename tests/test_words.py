"""Expressions that must not come back: docs/reference/glossary.md has the terms to use instead."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("spec", "model", "properties", "solver", "gate", "docs", "tools", "examples")
LOOSE = ("README.md", "CONTRIBUTING.md", "systems.py", "__init__.py", "Makefile")
SUFFIXES = {".py", ".md", ".toml", ".html", ".js"}
# Persons in the place of requests, personified code, and words that the glossary replaces.
AVOIDED = re.compile(
    r"\b(whoever|nobody|somebody|everybody|everyone|someone|anyone|anybody|whom"
    r"|is told|in vain|gone on with|as one sees|at stake"
    r"|understudy|foresee\w*|asked ahead|hunts?|seats?)\b",
    re.IGNORECASE,
)


def texts():
    """Path and text of everything that a reader of the product reads."""
    found = [ROOT / name for name in LOOSE]
    for place in PLACES:
        found += [path for path in (ROOT / place).rglob("*") if path.suffix in SUFFIXES]
    for path in sorted(found):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def hits(name, text):
    """File, line and expression of each hit."""
    return [
        f"{name}:{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in AVOIDED.finditer(line)
    ]


@pytest.mark.slow
def test_no_avoided_expression_is_in_the_product_or_its_documentation():
    assert [hit for name, text in texts() for hit in hits(name, text)] == []


def test_an_avoided_expression_is_noticed_with_its_line():
    assert hits("a.py", "fine\nWhoever waits, at stake") == ["a.py:2: Whoever", "a.py:2: at stake"]
