"""What a target shows of its requests is what they hold (ALL-R13).

Source: target protocol, "The step observation" and "Fine points": `computed` and `blocks` list the
requests that hold something, and `slot_blocks` the blocks that a step writes.
"""

from collections.abc import Iterator
from typing import Any

from ...model.observation import Step
from ..history.request_history import RequestHistory
from ..history.run_history import RunHistory
from .predicate import AdapterMessage


def shown_wrongly(history: RunHistory[Any], step: Step) -> str | None:
    """A request shows tokens and blocks exactly if some of it is computed, and what it writes; the
    step is of the kind of what its requests do, and those that prefill are named so."""
    stay = list(_after(history, step))
    if wrong := _other_kind(history, step) or _other_phase(history, stay, step):
        return wrong
    for one, tokens in stay:
        if one.id in (step.parked or ()):
            continue  # it waits, and holds what is loaded
        shown = None if step.computed is None else step.computed.get(one.id, 0)
        held = None if step.blocks is None else len(step.blocks.get(one.id, ()))
        if tokens and shown == 0:
            return f"{one.id} has {tokens} tokens computed, and shows none"
        if tokens and held == 0:
            return f"{one.id} has {tokens} tokens computed, and shows no block"
        if not tokens and (shown or held):
            return f"{one.id} waits, and shows {shown or 0} tokens computed and {held or 0} blocks"
        writes = step.scheduled.get(one.id, 0)
        if writes and step.slot_blocks is not None and not step.slot_blocks:
            return f"{one.id} computes {writes} tokens, and no request shows where it writes"
    return None


def something_shown(history: RunHistory[Any], step: Step) -> bool:
    """A step that computes shows tokens or blocks while another request waits."""
    if not step.scheduled or (step.computed is None and step.blocks is None):
        return False
    return any(one.id not in step.scheduled for one in history.unstarted())


def _other_kind(history: RunHistory[Any], step: Step) -> AdapterMessage | None:
    """The step is named a prefill although a request in it decodes, or the other way round."""
    members = [history.live[name] for name in step.scheduled if name in history.live]
    again = [one.id for one in members if _begins_again(history, step, one)]
    first = [one.id for one in members if not one.emitted + one.tokens_in_flight] + again
    further = [one.id for one in members if one.emitted + one.tokens_in_flight > one.regenerated]
    alone = "prefill" if first else "decode"
    right = "mixed" if first and further else alone
    why = ""
    if first and step.kind == "decode":
        lost = f"computes {step.scheduled[first[0]]} lost tokens"
        why = f"{first[0]} {lost if first[0] in again else 'has emitted no token yet'}"
    elif further and step.kind == "prefill":
        why = f"{further[0]} goes on to generate"
    elif members and step.kind == "mixed" and len(members) in (len(first), len(further)):
        why = f"all that it does is {alone}"
    if not why:
        return None
    return AdapterMessage(f"kind is {step.kind} in step {history.step}, but {why}: say {right}")


def _begins_again(history: RunHistory[Any], step: Step, one: RequestHistory) -> bool:
    """A preempted request computes more than its last token again. Where only the last token is
    left, either name is right. With several steps in flight the rule says nothing."""
    if (
        not one.regenerated
        or one.emitted > one.regenerated
        or history.features.depth(history.config) > 1
    ):
        return False
    hit = history.hit_now(step, one)
    return hit is not None and one.num_tokens - one.computed - hit > 1


def _other_phase(
    history: RunHistory[Any], stay: list[tuple[RequestHistory, int]], step: Step
) -> str | None:
    """A request is named as prefilling that goes on to generate, or one that has begun is not."""
    if step.prefilling is None or step.emitted is None:
        return None
    depth = history.features.depth(history.config)
    for one, tokens in stay:
        if depth > 2 and one.preemptions:
            continue  # a token may be on its way from before
        emitted = one.emitted + (one.tokens_in_flight or step.emitted.get(one.id, 0))
        named = one.id in step.prefilling
        if named and emitted > one.regenerated:
            return f"{one.id} goes on to generate, and is named as prefilling"
        comes = depth > 1 and tokens >= one.num_tokens  # it is on its way
        if not named and tokens and not emitted and not comes:
            return f"{one.id} has emitted no token yet, and is not named as prefilling"
    return None


def _after(history: RunHistory[Any], step: Step) -> Iterator[tuple[RequestHistory, int]]:
    """The requests that stay, and how much of them is computed after the step, at least; without
    those that this step preempts."""
    leaves = {*(step.finished or ()), *history.aborts_inside, *(step.preempted or ())}
    for one in history.live.values():
        if one.id not in leaves:
            hit = history.hit_now(step, one) or 0
            yield one, one.computed + hit + step.scheduled.get(one.id, 0)
