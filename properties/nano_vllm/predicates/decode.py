"""Decode steps: which sequence is preempted, and when a token is emitted.

Source: the slide deck on nano-vLLM, chapters 4 "Prefill vs Decode", 6 "The Decode Path" and 8
"Preemption".
"""

from ....model.observation import Step
from ...history.run_history import RunHistory
from ...rules.pool import blocks_for, free_when_decided, perhaps_preempted, released_by
from ...rules.predicate import Predicate, in_words
from .decision import (
    WHOLE_PROMPTS,
    behind,
    completes,
    kept,
    names,
    preempted,
    prefilled,
    ran_before,
)


def several_tokens(history: RunHistory, step: Step) -> str | None:
    """Check that a running sequence computes exactly one token in a decode step (NAN-R14)."""
    for request in ran_before(history):
        if step.scheduled.get(request.id, 1) != 1:
            return f"{request.id} runs and computes {step.scheduled[request.id]} tokens"
    return None


def someone_decodes(history: RunHistory, step: Step) -> bool:
    return any(request.id in step.scheduled for request in ran_before(history))


def passed_by(history: RunHistory, step: Step) -> str | None:
    """Check that, in a decode step, every running sequence gets a token or is preempted
    (NAN-R04)."""
    served = {*step.scheduled, *perhaps_preempted(history, step)}
    skipped = [request for request in kept(history, step) if request.id not in served]
    if prefilled(history, step) or not skipped:
        return None
    return f"{names(skipped)} runs, but gets no token in a step that decodes"


def several_decode(history: RunHistory, step: Step) -> bool:
    return len(kept(history, step)) > 1 and not prefilled(history, step)


def wrong_victim(history: RunHistory, step: Step) -> str | None:
    """Check that the last sequence of the queue is preempted, and only if too few blocks are free
    (NAN-R19)."""
    gone, unknown = preempted(history, step), perhaps_preempted(history, step)
    before = [request for request in ran_before(history) if request.id not in unknown]
    if not gone:
        return None
    tail = before[len(before) - len(gone) :]
    if tail != gone:
        return (
            f"{names(gone)} preempted instead of {names(tail)}; {names(before)} ran, in this order"
        )
    free = free_when_decided(history)
    if free is None:
        return None
    free += released_by(history, gone[1:])
    wanted = {*step.scheduled, *unknown}
    served = [request for request in kept(history, step) if request.id in wanted]
    needed = sum(_may_take(history, request.computed) for request in (*served, gone[0]))
    if needed > free:
        return None
    return (
        f"{names(gone)} preempted, although running requests needed at most {needed} blocks, and "
        f"{free} were free before {gone[0].id} gave back its blocks"
    )


def crosses_border(history: RunHistory, computed: int) -> bool:
    return bool(computed % history.config["block_size"] == 0)


def _may_take(history: RunHistory, computed: int) -> bool:
    """Return whether a running sequence may take a block next, according to the revision
    (NAN-R17)."""
    early = history.revision == WHOLE_PROMPTS and crosses_border(history, computed + 1)
    return early or crosses_border(history, computed)


def preempts_among_several(history: RunHistory, step: Step) -> bool:
    return bool(step.preempted) and len(ran_before(history)) > 1


def victim_keeps_something(history: RunHistory, step: Step) -> str | None:
    """Check that a preempted sequence waits, holds no block, and has nothing computed (NAN-R21)."""
    for request in preempted(history, step):
        if request.id in history.aborts_inside:
            continue
        if request.id not in (step.waiting or ()):
            return f"{request.id} was preempted, but does not wait"
        if held := (step.blocks or {}).get(request.id):
            return f"{request.id} was preempted and holds {len(held)} blocks"
        if computed := (step.computed or {}).get(request.id):
            return f"{request.id} was preempted but still has {computed} computed tokens"
    return None


def someone_is_preempted(history: RunHistory, step: Step) -> bool:
    return bool(preempted(history, step))


def emission_wrong(history: RunHistory, step: Step) -> str | None:
    """Check that one token is emitted if and only if all known tokens are computed (NAN-R13)."""
    for name in step.scheduled:
        request = history.live.get(name)
        if (
            request is None
            or name in history.aborts_inside
            or behind(history, step, request) is None
        ):
            continue
        emits = (step.emitted or {}).get(name, 0)
        if completes(history, step, request) != emits:
            missing = behind(history, step, request)
            says = in_words(emits)
            return f"{name} emits {says}; it computed {step.scheduled[name]} of {missing} tokens"
    return None


def sequence_prefills(history: RunHistory, step: Step) -> bool:
    return bool(prefilled(history, step))


def not_all_again(history: RunHistory, step: Step) -> str | None:
    """Check that a preempted request computes all its tokens again, except for its hit
    (NAN-R23)."""
    budget = history.config["max_num_batched_tokens"]
    for request in prefilled(history, step):
        missing, tokens = behind(history, step, request), step.scheduled[request.id]
        if request.preemptions and missing is not None and tokens not in (missing, budget):
            return (
                f"{request.id} was preempted with {request.regenerated} tokens generated and "
                f"computes {tokens} of {missing}"
            )
    return None


def comes_back(history: RunHistory, step: Step) -> bool:
    return any(request.preemptions and request.regenerated for request in prefilled(history, step))


def table_wrong(history: RunHistory, step: Step) -> str | None:
    """Check that a running request holds exactly the blocks of its computed tokens (NAN-R17)."""
    for name in step.running or ():
        computed, held = (step.computed or {}).get(name, 0), len((step.blocks or {}).get(name, ()))
        needed = blocks_for(history, computed)
        if held != needed and held != _blocks_with_next_token(history, computed):
            return f"{name} holds {held} blocks; its {computed} computed tokens need {needed}"
    return None


def _blocks_with_next_token(history: RunHistory, computed: int) -> int:
    """Return the number of blocks for `computed` tokens and the next token.

    In the slide deck on nano-vLLM, a sequence takes the next token's block as soon as the previous
    block is full: "256 tokens so far … at boundary → new block". In the release, it takes the block
    together with the token.
    """
    more = history.revision == WHOLE_PROMPTS
    return blocks_for(history, computed + more)


def border_crossed(history: RunHistory, step: Step) -> bool:
    return any(
        request.id in step.scheduled and crosses_border(history, request.computed)
        for request in kept(history, step)
    )


PREDICATES = {
    "NAN-R14": Predicate(several_tokens, someone_decodes, reads=("running", "scheduled")),
    "NAN-R04": Predicate(passed_by, several_decode, reads=("preempted", "running", "scheduled")),
    "NAN-R19": Predicate(wrong_victim, preempts_among_several),
    "NAN-R21": Predicate(victim_keeps_something, someone_is_preempted),
    "NAN-R13": Predicate(emission_wrong, sequence_prefills),
    "NAN-R23": Predicate(not_all_again, comes_back),
    "NAN-R17": Predicate(table_wrong, border_crossed),
}
