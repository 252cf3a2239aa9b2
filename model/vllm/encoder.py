"""Parts of a prompt that an encoder computes first, such as images, and the cache of the encoder's
outputs.

Source: release 0.33.0, Scheduler._try_schedule_encoder_inputs and EncoderCacheManager; the
chunked-prefill chapter describes how a preemption affects them. An output is named by its segment
of the prompt, so equal segments share one output. Sizes are in tokens.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..members import find
from ..pool import Content
from ..scenario import Request, Segment
from .config import VllmConfig
from .state import Input, Sequence, State


class EncoderPlan(NamedTuple):
    """The encoder's part of a partly decided step.

    Attributes:
        budget: the number of tokens left in the encoder's budget.
        outputs: the kept outputs, in the order of their last use.
        dropped: outputs that this step discards.
        computes: for each request, the inputs that the encoder computes in this step, as indices
            into `Sequence.inputs`.
    """

    budget: int = 0
    outputs: Content = ()
    dropped: Content = ()
    computes: Mapping[str, tuple[int, ...]] = {}


class Fit(NamedTuple):
    """The next `tokens` tokens of a request, which a step may compute. For these tokens, the
    encoder computes `inputs`. Each input in `twice` is equal to one of `inputs`, so its output is
    shared. `inputs` and `twice` contain indices into `Sequence.inputs`. `plan` has room for all
    their outputs.
    """

    tokens: int
    sequence: Sequence
    plan: EncoderPlan
    inputs: tuple[int, ...] = ()
    twice: tuple[int, ...] = ()


def inputs_of(request: Request) -> tuple[Input, ...]:
    prompt, starts = request.prompt, request.segment_starts
    return tuple([Input(prompt[n], starts[n], n) for n in sorted(request.encoder_inputs)])


def fit(
    config: VllmConfig,
    plan: EncoderPlan,
    sequence: Sequence,
    start: int,
    tokens: int,
    holders: Iterable[Sequence],
    stop: "StopBefore",
    split: "StopAtSplit",
) -> Fit:
    """Return how many of `tokens` tokens, from token `start` on, a request may compute.

    The tokens of an input need the encoder's output (V1-R29). The output is either cached, or
    computed in one step within the budget and the cache's room (V1-R30, V1-R31, V1-R32). A drafter
    with its own keys and values reads one more token.
    """
    result = Fit(tokens, sequence, plan)
    kept = needed(holders)
    for place, (segment, begins, _) in enumerate(sequence.inputs):
        if begins >= start + tokens + config.read_ahead:
            break
        if begins + segment[1] <= start:
            continue
        if config.disable_chunked_mm_input is True:
            stops = split(config, start, tokens, begins, segment[1])
            if stops is not None:
                return result._replace(tokens=stops)
        new = _segments(sequence, result.inputs)
        if segment in new:
            result = result._replace(twice=(*result.twice, place))
        elif segment in result.plan.outputs:
            if place not in result.sequence.needs:
                needs = (*result.sequence.needs, place)
                result = result._replace(sequence=result.sequence._replace(needs=needs))
        else:
            space = room(config, result, kept | {segment})
            if segment[1] > plan.budget - size(new) or space is None:
                # V1-R33
                return result._replace(tokens=max(stop(config, tokens, begins - start), 0))
            result = result._replace(plan=space, inputs=(*result.inputs, place))
    return result


# Given (configuration, tokens, left), returns how many of a request's `tokens` to compute if an
# input that begins after `left` of them cannot be encoded.
StopBefore = Callable[[VllmConfig, int, int], int]


def stop_early(config: VllmConfig, tokens: int, left: int) -> int:
    """Return how many of the `left` tokens before an input to compute. Leave out those from which
    the drafter would read into the input, unless no token would remain."""
    return left - config.read_ahead if left > config.read_ahead else left


def stop_before(config: VllmConfig, tokens: int, left: int) -> int:
    """Return how many tokens before an input to compute, as in `stop_early`. If inputs must not be
    split, compute all these tokens, because the last ones may belong to another input."""
    is_whole = config.disable_chunked_mm_input is True
    return min(tokens, left) if is_whole else stop_early(config, tokens, left)


# Given (configuration, first token, tokens, start and length of an input), returns how many tokens
# to compute so that the input is not split; None if the input is not split, or may be split.
StopAtSplit = Callable[[VllmConfig, int, int, int, int], int | None]


def stop_at_split(
    config: VllmConfig, start: int, tokens: int, begins: int, length: int
) -> int | None:
    """Stop before an input if the step would compute only its first tokens (V1-R91)."""
    is_split = begins < start + tokens < begins + length
    return begins - start if is_split and stays_whole(config, start, begins, length) else None


def stays_whole(config: VllmConfig, start: int, begins: int, length: int) -> bool:
    """Return whether a step that begins at `start` must not split an input.

    A step may split an input in two cases. Either the step begins inside the input, or it begins at
    an input that is longer than the threshold, so that no step could compute all of it.
    """
    fits = length <= (config.long_prefill_token_threshold or length)
    return start < begins or (fits and start == begins)


def room(config: VllmConfig, so_far: Fit, kept: set[Segment]) -> EncoderPlan | None:
    """Return the plan with room for the `kept` outputs and for those that the request needs, or
    None if there is too little room.

    To make room, outputs that no request needs are dropped, the least recently used first (V1-R34,
    V1-R94).
    """
    sequence, outputs = so_far.sequence, so_far.plan.outputs
    kept = kept | {sequence.inputs[place].segment for place in (*sequence.needs, *so_far.inputs)}
    too_much = size({*outputs, *kept}) - config.encoder_room
    dropped: list[Segment] = []
    for segment in outputs:
        if too_much <= 0:
            break
        if segment not in kept:
            dropped.append(segment)
            too_much -= segment[1]
    if too_much > 0:
        return None
    return so_far.plan._replace(
        outputs=tuple([segment for segment in outputs if segment not in dropped]),
        dropped=(*so_far.plan.dropped, *dropped),
    )


def left(state: State, sequence: Sequence) -> State:
    """Return the state after a request has ended and needs no outputs any more."""
    outputs = release_outputs(state.outputs, sequence, state.running)
    return state._replace(outputs=outputs)


def scheduled(encoded: Fit, plan: EncoderPlan, sequence: Sequence) -> tuple[Sequence, EncoderPlan]:
    if not encoded.inputs:
        return sequence, plan
    new = [sequence.inputs[place].segment for place in encoded.inputs]
    return sequence._replace(
        needs=(*sequence.needs, *encoded.inputs, *encoded.twice)
    ), plan._replace(
        budget=plan.budget - size(new),
        outputs=(*plan.outputs, *new),
        computes={**plan.computes, sequence.id: _also(plan, sequence, encoded.inputs)},
    )


def release_outputs(outputs: Content, sequence: Sequence, others: Iterable[Sequence]) -> Content:
    """Return the outputs, updated for a request that no longer needs any of them. Outputs that no
    other request needs become the most recently used."""
    still = needed(other for other in others if other.id != sequence.id)
    return _unused(outputs, sequence, sequence.needs, still)


def refuse(plan: EncoderPlan, sequence: Sequence, running: Iterable[Sequence]) -> EncoderPlan:
    """Return the plan, updated for a request that got no blocks and therefore needs no outputs."""
    return plan._replace(outputs=release_outputs(plan.outputs, sequence, running))


def take_back_inputs(
    plan: EncoderPlan, sequence: Sequence, others: Iterable[Sequence]
) -> EncoderPlan:
    """Return the plan, updated for a preempted request. An input that the plan computes for this
    request goes to another request that needs it. If no request needs it, it leaves the plan.
    """
    others = [other for other in others if other.id != sequence.id]
    computing = {name: places for name, places in plan.computes.items() if name != sequence.id}
    plan, taken = plan._replace(computes=computing), plan.computes.get(sequence.id, ())
    for place in taken:
        segment = sequence.inputs[place].segment
        heir = next((other for other in others if segment in _segments(other, other.needs)), None)
        if heir is None:
            without = tuple([kept for kept in plan.outputs if kept != segment])
            plan = plan._replace(budget=plan.budget + segment[1], outputs=without)
            continue
        places = [n for n in heir.needs if heir.inputs[n].segment == segment]
        computes = {**plan.computes, heir.id: _also(plan, heir, places[:1])}
        plan = plan._replace(computes=computes)
    return plan._replace(outputs=release_outputs(plan.outputs, sequence, others))


def release_passed(config: VllmConfig, state: State, name: str) -> State:
    """Return the state after the worker has computed a decision that includes this request.

    The request no longer needs the output of an input that lies entirely within its computed
    tokens, unless the same input occurs again. Tokens in flight do not count as computed, because
    drafts may be wrong.
    """
    sequence = find(state.running, name)
    if sequence is None or not sequence.needs:
        return state
    ahead = sequence.promised + sequence.hoped if config.decides_ahead else 0
    reached = sequence.computed - ahead
    past = [place for place in sequence.needs if _end(sequence.inputs[place]) <= reached]
    trimmed = sequence._replace(
        needs=tuple([place for place in sequence.needs if place not in past])
    )
    running = tuple([trimmed if other is sequence else other for other in state.running])
    outputs = _unused(state.outputs, sequence, past, needed(running))
    return state._replace(running=running, outputs=outputs)


def encoder_fields(plan: EncoderPlan, running: Iterable[Sequence]) -> dict[str, Any]:
    """Return the outputs that the worker computes, and those that it drops. No output is in both
    lists (V1-R75)."""
    inputs = {sequence.id: sequence.inputs for sequence in running}
    kept = {name for name, _ in plan.outputs}
    return {
        "encoder_inputs": {
            name: [inputs[name][place].place for place in places]
            for name, places in plan.computes.items()
        },
        "encoder_dropped": [name for name, _ in plan.dropped if name not in kept],
    }


def needed(holders: Iterable[Sequence]) -> set[Segment]:
    return {
        segment
        for sequence in holders
        if sequence.needs
        for segment in _segments(sequence, sequence.needs)
    }


def size(segments: Iterable[Segment]) -> int:
    return sum(length for _, length in segments)


def _unused(
    outputs: Content, sequence: Sequence, places: Iterable[int], needed: set[Segment]
) -> Content:
    for segment in _segments(sequence, sorted(places)):
        if segment not in needed and segment in outputs:
            outputs = (*(kept for kept in outputs if kept != segment), segment)
    return outputs


def _segments(sequence: Sequence, places: Iterable[int]) -> list[Segment]:
    return [sequence.inputs[place].segment for place in places]


def _also(plan: EncoderPlan, sequence: Sequence, places: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted((*plan.computes.get(sequence.id, ()), *places)))


def _end(image: Input) -> int:
    return image.start + image.segment[1]
