"""Decide whether two failures are the same, by comparing them without their numbers and names."""

import re
import sysconfig
from collections.abc import Iterable
from typing import NamedTuple

from ..rules.predicate import Broken
from ..rules.registry import LOCKSTEP

REQUEST, NUMBER = "@", "#"
# A list of any length is shortened to one element: `@, @, @`, `# + #`, `@: #, @: #`.
REPEATED = re.compile(r"((?:@|#)(?:: (?:@|#))?)(?:(?:, | \+ | )\1)+")
COMPARED = re.compile(r"(?:^|; )(\w+): target ")
FRAME = re.compile(
    r'^ *File "([^"]+)", line (\d+),? in (.+)(?:\n +(?!File ")(\S.*))?', re.MULTILINE
)
STANDARD = sysconfig.get_path("stdlib")
LONGEST_PLACE = 200  # characters


def shape(broken: Broken, requests: Iterable[str]) -> str:
    """Return the shape of a failure: the rule, and its message without numbers and names.
    `requests` are the ids of the scenario's requests.

    Two scenarios that break a rule with the same shape have the same failure: a corpus keeps the
    smaller one, and a known deviation covers both. For lockstep, the shape consists of the
    differing fields. For an exception, it includes the code that raised it, and for a hang, the
    function that does not return, because unrelated crashes and hangs often have the same message.
    Exit codes count, although they are numbers.
    """
    if broken.rule == LOCKSTEP and (fields := COMPARED.findall(broken.message)):
        return f"{broken.rule}: {', '.join(fields)}"
    words = broken.message
    names = "|".join(re.escape(name) for name in sorted(requests, key=len, reverse=True))
    if names:
        words = re.sub(rf"(?<!\w)(?:{names})(?!\w)", REQUEST, words)
    words = re.sub(r"(?<!exit code )(?<!\w)-?\d+(?:[.,]\d+)*", NUMBER, words)
    once = REPEATED.sub(r"\1", words)
    return f"{broken.rule}: {once}{f' in {broken.place}' * bool(broken.place)}"


class Frame(NamedTuple):
    """A frame of a traceback or of a printed stack. `source` is "" if the line is not shown."""

    file: str
    line: int
    function: str
    source: str


def own_frames(traceback: str) -> list[Frame]:
    """Return the frames that are not in the standard library, in the order of the text."""
    return [
        Frame(file, int(line), function, source)
        for file, line, function, source in FRAME.findall(traceback)
        if "site-packages" in file or not file.startswith((STANDARD, "<"))
    ]


def place_of(output: str) -> str:
    """Return the code that raised the exception, or that does not return. Return "" if `output`
    does not name this code.

    `output` is the traceback, the stack, or what the process wrote before it ended. If it contains
    several tracebacks, the last one counts.
    """
    last = output[max(output.rfind("(most recent call "), 0) :]
    frames = own_frames(last)
    if not frames:
        return ""
    innermost = frames[0 if "most recent call first" in last else -1]
    return f"{innermost.function}: {innermost.source}"[:LONGEST_PLACE].rstrip(": ")
