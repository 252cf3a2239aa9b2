"""Why a rule broke, in the scheduler's own terms: the numbers by which it had decided.

The model of the same admission rule is run on the same scenario. Where it does not do the same
in the same step it explains nothing, and nothing is said.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ....model.scenario import Scenario
from ....model.spyre import documented, release_2_1_2, volumetric
from ....model.spyre.documented import is_last_chunk
from ....model.spyre.model import SpyreModel
from ....model.spyre.revision import Revision
from ....model.spyre.state import Sequence, State


class Admission(NamedTuple):
    """One request that asks to join the decode batch: what is projected for each request, in
    tokens.

    `largest`: of the batch x tkv that the check looked at.
    """

    step: int
    newcomer: str
    projected: dict[str, int]
    words: dict[str, str]
    largest: int


def explain_volume(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """How batch x tkv came to exceed the limit in `step`, in sentences, or nothing."""
    admissions: dict[str, Admission] = {}
    for number, state in enumerate(states(model, scenario, step)):
        joins = _joining(model, state, number)
        if joins is not None:
            admissions[joins.newcomer] = joins
    batch = state.decoding
    _, seen = model.step(state)
    if seen["kind"] != "decode" or seen["tkv"] * len(batch) <= model.config.max_batch_tkv:
        return []
    latest = max(
        (admissions[one.id] for one in batch if one.id in admissions), key=lambda a: a.step
    )
    return [*_admitted(model, latest), *_beyond(model, latest, batch, seen["left_pad_blocks"])]


def explain_join(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """How a projection accepted a request that can exceed the limit, in sentences, or nothing."""
    *_, state = states(model, scenario, step)
    joins = _joining(model, state, step)
    return _admitted(model, joins) if joins is not None else []


def explain_stale_tkv(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """How a stale tkv kept a prefill back although nothing decodes, or nothing."""
    *_, state = states(model, scenario, step)
    candidate = _candidate(state)
    _, seen = model.step(state)
    if seen["kind"] != "idle" or candidate is None or not goes_by_last_forward(model.revision):
        return []
    config, block = model.config, model.config.block_size
    if documented.fits_model_length(config, state.tkv, (), candidate):
        return []
    width = max(state.tkv, candidate.prompt) // block
    end = volumetric.realigned(candidate.prompt, width, block) + candidate.max_tokens - 1
    return [
        f"the last chunk of {candidate.id} is refused by the max-model-length rule: "
        f"it goes by tkv {state.tkv} of the last forward,",
        f"which would put {candidate.id} at {end} > {config.max_model_len}; "
        f"but the request that had that tkv has left, and nothing decodes",
    ]


def explain_stale_refusal(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """How a stale tkv kept a request out of a batch that has room, or nothing."""
    *_, state = states(model, scenario, step)
    candidate = _candidate(state)
    lengths = [one.computed for one in state.decoding]
    now = documented.max_tkv(lengths, model.config.block_size)
    if candidate is None or not goes_by_last_forward(model.revision) or state.tkv <= now:
        return []
    return [
        f"{candidate.id} is refused by tkv {state.tkv} of the last forward; "
        f"the request that had it has left, and the batch is at {now}",
    ]


def goes_by_last_forward(revision: Revision) -> bool:
    """Whether admission goes by a tkv in which requests that have left still count."""
    return revision.current_tkv is release_2_1_2.current_tkv


def states(model: SpyreModel, scenario: Scenario, step: int) -> Iterator[State]:
    """The state before each decision up to that of `step`, arrivals and aborts included."""
    state = model.initial()
    for number in range(step + 1):
        state = _arrivals(model, scenario, state, number)
        yield state
        inside = tuple(
            one.id for one in scenario.requests if one.abort_at == number and one.abort_inside
        )
        state, _ = model.step(state, inside)


def _arrivals(model: SpyreModel, scenario: Scenario, state: State, number: int) -> State:
    for request in scenario.requests:
        if request.arrival == number and model.refusal(request) is None:
            state = model.arrive(state, request)
    for request in scenario.requests:
        if request.abort_at == number and not request.abort_inside:
            state = model.abort(state, request.id)
    return state


def _joining(model: SpyreModel, state: State, number: int) -> Admission | None:
    """The projection by which a last chunk runs in this step beside a decode batch."""
    candidate = _candidate(state)
    if candidate is None or not state.decoding:
        return None
    if not documented.may_prefill(model.config, model.revision, state, candidate):
        return None
    return projected(model, state, number)


def projected(model: SpyreModel, state: State, number: int) -> Admission | None:
    """What is projected for the last chunk of the first in line, whether or not it may run now."""
    config, candidate = model.config, _candidate(state)
    check = model.revision.volume_check
    if candidate is None or not state.decoding or not isinstance(check, volumetric.ByFormula):
        return None
    if not is_last_chunk(candidate.prompt, candidate.computed, config.chunk_size):
        return None
    block = config.block_size
    current = model.revision.current_tkv(config, state)
    tkvs = documented.request_tkvs([one.computed for one in state.decoding], block)
    members = [
        volumetric.Decoding(one.computed, one.remaining, own, one.prompt)
        for one, own in zip(state.decoding, tkvs, strict=True)
    ]
    newcomer = volumetric.Newcomer(candidate.prompt, candidate.max_tokens)
    projection = check.formula(current, members, newcomer, block)
    names = [one.id for one in state.decoding]
    return Admission(
        number,
        candidate.id,
        dict(zip(names, projection.decoding, strict=True)) | {candidate.id: projection.newcomer},
        _words(model, current, state, candidate),
        _largest(projection),
    )


def _candidate(state: State) -> Sequence | None:
    return state.prefilling or (state.waiting[0] if state.waiting else None)


def _largest(projection: volumetric.Projection) -> int:
    """The largest batch x tkv on the walk of `volumetric.accepts`."""
    own = projection.newcomer
    if projection.to_the_end:
        all_requests = sorted([*projection.decoding, own], reverse=True)
        return max(batch * tkv for batch, tkv in enumerate(all_requests, 1))
    shorter = sorted(tkv for tkv in projection.decoding if tkv < own)
    batch = len(projection.decoding) + 1
    walked = [(batch - gone) * tkv for gone, tkv in enumerate([*shorter, own])]
    return max(walked)


def _words(model: SpyreModel, current: int, state: State, newcomer: Sequence) -> dict[str, str]:
    """The document's own sentence with its numbers, for the document's projection."""
    if model.revision.volume_check != documented.VOLUME_CHECK:
        return {}
    block = model.config.block_size
    width = max(current, newcomer.prompt) // block
    words = {
        one.id: f"current tkv {volumetric.realigned(one.computed, width, block)} + "
        f"{one.remaining} tokens that it may still generate + one block of {block}"
        for one in state.decoding
    }
    own = volumetric.realigned(newcomer.prompt, width, block)
    words[newcomer.id] = (
        f"current tkv {own} + {newcomer.max_tokens - 1} tokens that it may still generate"
    )
    return words


def _admitted(model: SpyreModel, joins: Admission) -> list[str]:
    limit = model.config.max_batch_tkv
    lines = [f"step {joins.step}: {joins.newcomer} joins; the projection accepts it:"]
    for name, reach in sorted(joins.projected.items(), key=lambda item: item[1]):
        words = joins.words.get(name)
        lines.append(f"  {name} reaches tkv {reach} at most" + (f" ({words})" if words else ""))
    own = joins.projected[joins.newcomer]
    outlive = [n for n, reach in joins.projected.items() if reach >= own]
    lines.append(
        f"  {len(outlive)} requests that live as long x {own} = {len(outlive) * own} <= {limit}"
    )
    return lines


def _beyond(
    model: SpyreModel, joins: Admission, batch: tuple[Sequence, ...], pads: dict[str, int]
) -> list[str]:
    block = model.config.block_size
    longest = next(one.id for one in batch if pads[one.id] == 0)
    lines = []
    for one in batch:
        reached = pads[one.id] * block + one.computed + 1
        projected = joins.projected.get(one.id)
        if projected is not None and reached > projected:
            lines.append(
                f"  {one.id} is at tkv {reached}, {reached - projected} beyond its projection: "
                f"{longest} is in a block further on, which pads {one.id} on the left"
            )
    if not lines:
        tkvs = {one.id: pads[one.id] * block + one.computed + 1 for one in batch}
        widest = max(tkvs, key=lambda name: tkvs[name])
        lines.append(
            f"  the walk stopped at {joins.newcomer}, so it never compared {widest}, "
            f"whose tkv is {tkvs[widest]}"
        )
    return lines
