"""What happens in a run that a reader wants to be led to."""

from typing import NamedTuple

# The words of a page; `{0}` is the request, `{1}` and `{2}` are the numbers, `{3}` is the word.
WORDS = {
    "broken": "{3}",
    "arrived": "{0} arrives: prompt {1}, max_tokens {2}",
    "refused": "{0} is refused at the door: {3}",
    "aborted": "the client gives {0} up",
    "joins": "{0} is projected to fit: at most {1} of {2}",
    "preempted": "{0} is preempted, and loses what was computed",
    "paused": "{0} is paused",
    "resumed": "{0} decodes again",
    "parked": "{0} is parked while a connector loads its blocks",
    "loaded": "{0} runs, with what was loaded",
    "jump": "the tkv of {0} jumps from {1} to {2}",
    "border": "{0} begins its block {2} (token {1})",
    "finished": "{0} finishes ({3})",
}
# Those that N and P go to.
STOPS = (
    "broken",
    "preempted",
    "paused",
    "resumed",
    "parked",
    "loaded",
    "jump",
    "border",
    "finished",
)


class Happening(NamedTuple):
    """One of WORDS, of one request, with what fills the sentence."""

    step: int
    what: str
    request: str = ""
    first: int = 0
    second: int = 0
    word: str = ""
