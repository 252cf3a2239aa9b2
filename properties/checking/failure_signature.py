"""Decide whether two failures are the same, by comparing them without their numbers and names."""

import re
from collections.abc import Iterable

from ..rules.predicate import Broken
from ..rules.registry import LOCKSTEP

REQUEST, NUMBER = "@", "#"
# A list of any length is shortened to one element: `@, @, @`, `# + #`, `@: #, @: #`.
REPEATED = re.compile(r"((?:@|#)(?:: (?:@|#))?)(?:(?:, | \+ | )\1)+")
COMPARED = re.compile(r"(?:^|; )(\w+): target ")


def shape(broken: Broken, requests: Iterable[str]) -> str:
    """Return the shape of a failure: the rule, and its message without numbers and names.
    `requests` are the ids of the scenario's requests.

    Two scenarios that break a rule with the same shape have the same failure: a corpus keeps the
    smaller one, and a known deviation covers both. For lockstep, the shape consists of the
    differing fields.
    """
    if broken.rule == LOCKSTEP and (fields := COMPARED.findall(broken.message)):
        return f"{broken.rule}: {', '.join(fields)}"
    words = broken.message
    names = "|".join(re.escape(name) for name in sorted(requests, key=len, reverse=True))
    if names:
        words = re.sub(rf"(?<!\w)(?:{names})(?!\w)", REQUEST, words)
    words = re.sub(r"(?<!\w)-?\d+(?:[.,]\d+)*", NUMBER, words)
    once = REPEATED.sub(r"\1", words)
    return f"{broken.rule}: {once}"
