"""The two functions that check a rule: one returns how a step breaks the rule, the other whether
the step could have broken it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ...model.observation import Step
from ..history.run_history import RunHistory

# In `Predicate.reads`: the phase of each request (not started, computing its prompt, decoding,
# paused or preempted), and the computed tokens of each request that does not decode.
PHASES = "phases"
FIRST = "first"  # in `Predicate.reads`: whether the step is the first one of the run


class Predicate(NamedTuple):
    """The check of a rule. `broken` returns None, or a message with the numbers that break the
    rule. `exercised` returns whether the rule's witness occurs.

    Both functions read the history from before the step. `members` says to which steps the
    functions apply: those that schedule a prefilling request, a decoding one, or any. `reads_kept`
    says whether they read `RunHistory.kept`.

    `reads` names everything that the functions read, apart from the configuration and the set of
    unfinished requests: fields of this step and the previous one, PHASES, and FIRST. If a step
    changes none of these, the results stay the same, and the monitor does not evaluate the
    functions again. If `reads` is None, the functions also read how many tokens decoding requests
    have, which changes in nearly every step.

    `only_with` returns whether a configuration has the feature that the rule is about. Without the
    feature, the rule cannot be broken and its witness cannot occur, so the monitor leaves the rule
    out.
    """

    broken: Callable[[RunHistory[Any], Step], str | None]
    exercised: Callable[[RunHistory[Any], Step], bool]
    members: Literal["prefill", "decode", "any"] = "any"
    reads_kept: bool = False
    reads: tuple[str, ...] | None = None
    only_with: Callable[[Mapping[str, Any]], bool | int] | None = None

    def concerns(self, config: Mapping[str, Any]) -> bool:
        return self.only_with is None or bool(self.only_with(config))


class RuleFault(BaseException):
    """Raised if a user's own rule cannot be evaluated: its function raises an exception, or returns
    a value of the wrong type.

    The message is one line. The class is not derived from Exception, so that Hypothesis does not
    take it for a finding.
    """


class AdapterMessage(str):
    """A message about an error in how a step is reported. Only the adapter can have made such an
    error."""


class Broken(NamedTuple):
    """A broken rule: the step that broke it, and a sentence with the numbers.

    `place` is set for a crash or a hang: it is the code that raised the exception (the function and
    its line of source), the function that does not return, or "" if that is unknown. `by_adapter`
    tells whether only the adapter can be to blame, not the scheduler.
    """

    rule: str
    step: int
    message: str
    place: str = ""
    by_adapter: bool = False


def default_is(key: str, value: Any) -> Predicate:
    """Return a predicate which checks that the target's default for `key` is `value`."""
    return defaults_are({key: value})


def defaults_are(values: Mapping[str, Any]) -> Predicate:
    """Return a predicate which checks that the target has these defaults, by key.

    Source: the documents that name a default (SPY-R33, V1CP-R06, V1CP-R09, V1CP-R21, V1CP-R23,
    LSS-R36). A target reports its defaults in the reply to `start`.
    """

    def another(history: RunHistory[Any], step: Step) -> str | None:
        for key, value in values.items():
            default = history.defaults.get(key, value)
            if not history.step and default != value:
                return (
                    f"{key} is {default!r} if a configuration does not give it, expected {value!r}"
                )
        return None

    def names_default(history: RunHistory[Any], step: Step) -> bool:
        return not history.step and not values.keys().isdisjoint(history.defaults)

    return Predicate(another, names_default, reads=(FIRST,))


def in_words(tokens: int) -> str:
    """Return "no token", "a token" or, for example, "2 tokens"."""
    return f"{tokens} tokens" if tokens > 1 else "a token" if tokens else "no token"
