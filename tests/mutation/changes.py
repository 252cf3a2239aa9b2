"""Changed lines of a model's code, and those that are written by hand.

`decisions/SYSTEM.toml` has them by file of `model`: what the change does, the text that it takes
out, which stands in that file once, and what comes in its place. Where no rule finds it, `open`
says what the document leaves unsaid, and `hole` what the rules do not see.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BY_HAND = Path(__file__).with_name("decisions")


class Change(NamedTuple):
    """What a list knows a changed line by: its file's path in `model`, the definition or what the
    change does, the line before and after."""

    file: str
    place: str
    before: str
    after: str


class Mutant(NamedTuple):
    """A changed line: `text` is the whole changed file. If it is known that no rule finds it,
    `is_open` says why it may be so, or `hole` why it is not seen."""

    change: Change
    line: int
    text: str
    is_open: str = ""
    hole: str = ""


def by_hand(model: Path, system: str) -> Iterator[Mutant]:
    """The changes of a system that are written by hand.

    Raises:
        ValueError: the text that a change takes out does not stand in its file just once.
    """
    listed = tomllib.loads((BY_HAND / f"{system}.toml").read_text(encoding="utf-8"))
    for file, changes in listed.items():
        source = (model / file).read_text(encoding="utf-8")
        for one in changes:
            before, after = one["before"], one["after"]
            if source.count(before) != 1:
                times = source.count(before)
                raise ValueError(f"{file}, {one['does']}: `before` stands there {times} times")
            line = source[: source.index(before)].count("\n") + 1
            change = Change(file, one["does"], before.strip(), after.strip())
            why = one.get("open", ""), one.get("hole", "")
            yield Mutant(change, line, source.replace(before, after), *why)
