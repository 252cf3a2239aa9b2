"""What the grammar of a structured output allows: how far it has advanced, which drafts fit it, and
which masks the worker gets.

Source: release 0.33.0: StructuredOutputManager.accept_tokens, validate_tokens and grammar_bitmask,
their docstrings and comments; GrammarOutput.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....model.observation import Step
from ...history.per_step_cache import once
from ...rules.predicate import Predicate
from ..history import speculation
from ..history.blocked import can_be
from ..history.in_flight import completing_decision
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from ..history.sessions import ends_turn
from .decision import missing


class Sampling(NamedTuple):
    """A request with a grammar that samples in the decision of a step: the number of its output
    tokens before those that it samples, and the number of drafts that are verified."""

    request: VllmRequestHistory
    known: int
    drafts: int

    @property
    def fitting(self) -> int:
        return speculation.fitting(self.request, self.known, self.drafts)

    def expected(self, number: int) -> int | None:
        """Return the mask of a draft or, after the last draft, of the token that follows it."""
        place, ends = self.known + number, self.request.grammar_ends
        has_begun = place >= self.request.grammar_begins
        return place if has_begun and (ends is None or place < ends) else None


@once
def sampling(history: VllmRun, step: Step) -> Mapping[str, Sampling]:
    """Return the requests with a grammar that certainly sample in the decision of a step.

    If a request has a token in flight, its masks are made after that token has arrived; if the
    request has ended by then, it gets no mask. Tokens that are then still in flight also count as
    output before the masked token.
    """
    found: dict[str, Sampling] = {}
    for name, left in missing(history, step).items():
        request = history.live[name]
        if not request.arrived_blocked or left is None:
            continue
        drafts = speculation.drafts_to_compute(history.config, request)
        beyond = step.scheduled[name] - (left - drafts)
        if beyond >= 0:
            lost = speculation.loses_drafts(history.config, request)
            drafts = 0 if lost else min(beyond, max(request.drafted, 0))
            found[name] = Sampling(request, request.emitted, drafts)
    if not any(entry.request.tokens_in_flight for entry in found.values()):
        return found
    emitted, over = step.emitted or {}, (step.finished or {}).keys() | history.aborts_inside
    due = completing_decision(history, step)
    ahead = {
        name: entry.request.tokens_in_flight - (due.get(name) is not None)
        for name, entry in found.items()
    }
    return {
        name: entry._replace(known=entry.known + emitted.get(name, 0) + ahead[name])
        for name, entry in found.items()
        if name not in over and not ends_turn(step, entry.request)
    }


def advanced_otherwise(history: VllmRun, step: Step) -> str | None:
    """Each token that a request gets advances the request's grammar once, until the grammar ends
    (V1-R59)."""
    shown = step.grammars or {}
    for request, tokens in getting_tokens(history, step):
        ends = request.grammar_ends
        before_end = tokens if ends is None else min(tokens, ends)
        own = max(before_end - request.grammar_begins, 0)
        if shown.get(request.id, 0) != own:
            end = f", and its grammar ends after {ends}" if before_end < tokens else ""
            if request.grammar_begins:
                end = f", of which {request.grammar_begins} are reasoning{end}"
            return (
                f"{request.id} has {tokens} tokens{end}, but its grammar has accepted "
                f"{shown.get(request.id, 0)}"
            )
    return None


def getting_tokens(history: VllmRun, step: Step) -> Iterator[tuple[VllmRequestHistory, int]]:
    """Yield the requests with a grammar that get tokens in a step, each with its total number of
    tokens."""
    if step.grammars is None:
        return
    for name, tokens in (step.emitted or {}).items():
        request = history.live.get(name)
        if request is not None and request.arrived_blocked and tokens:
            yield request, request.emitted + tokens


def a_request_with_a_grammar_gets_a_token(history: VllmRun, step: Step) -> bool:
    return any(True for _ in getting_tokens(history, step))


def mask_is_missing(history: VllmRun, step: Step) -> str | None:
    """The worker gets masks for exactly the requests with a grammar that sample, one for each token
    that they may sample (V1-R60)."""
    if step.masks is None:
        return None
    own = sampling(history, step)
    for name, entry in own.items():
        masks = step.masks.get(name, ())
        if len(masks) <= entry.fitting:
            return f"{name} gets {len(masks)} of the {entry.fitting + 1} masks that it needs"
    for name in step.masks:
        request = history.live.get(name)
        if request is not None and not request.arrived_blocked:
            return f"{name} has no grammar, but gets a mask"
    return None


def mask_is_made(history: VllmRun, step: Step) -> bool:
    return bool(step.masks) and bool(sampling(history, step))


def mask_differs(history: VllmRun, step: Step) -> str | None:
    """A mask allows what its request's grammar allows after the preceding tokens and drafts. After
    the end of the grammar, it allows every token (V1-R64)."""
    for name, entry in sampling(history, step).items():
        for number, shown in enumerate((step.masks or {}).get(name, ())):
            if shown != (own := entry.expected(number)):
                which = f"mask {number + 1} of {name}"
                return f"{which} allows {_allowed(shown)} instead of {_allowed(own)}"
    return None


def _allowed(mask: int | None) -> str:
    if mask is None:
        return "every token"
    if mask < 0:
        return "what another grammar allows"
    return f"what its grammar allows after {mask} tokens"


def later_mask_is_made(history: VllmRun, step: Step) -> bool:
    masks = step.masks or {}
    return any(masks.get(name) not in (None, (0,)) for name in sampling(history, step))


def misfit_is_verified(history: VllmRun, step: Step) -> str | None:
    """Drafts are verified only if they follow the request's last token and fit its grammar
    (V1-R65)."""
    for name, entry in sampling(history, step).items():
        drafts = len((step.masks or {}).get(name, ())) - 1
        if drafts > entry.fitting:
            return (
                f"{name} verifies {drafts} drafts, but only {entry.fitting} follow its "
                f"{entry.known} tokens and fit its grammar"
            )
    return None


def misfit_is_proposed(history: VllmRun, step: Step) -> bool:
    most = speculation.drafts(history.config)
    if not most or not step.masks:
        return False
    return any(
        entry.known and speculation.fitting(entry.request, entry.known, most) < most
        for entry in sampling(history, step).values()
    )


PREDICATES = {
    "V1-R59": Predicate(
        advanced_otherwise, a_request_with_a_grammar_gets_a_token, only_with=can_be
    ),
    "V1-R60": Predicate(mask_is_missing, mask_is_made, only_with=can_be),
    "V1-R64": Predicate(mask_differs, later_mask_is_made, only_with=can_be),
    "V1-R65": Predicate(misfit_is_verified, misfit_is_proposed, only_with=can_be),
}
