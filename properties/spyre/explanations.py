"""Explain why a rule of Spyre was broken and, if the target's formula is known, what admission
projected."""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Steps
from contextlib import suppress
from typing import NamedTuple

from ...model.errors import InputError, ReleaseEnded
from ...model.observation import Step
from ...model.scenario import Scenario
from ...model.spyre import documented, release_2_1_2, volumetric
from ...model.spyre.config import read_config
from ...model.spyre.documented import is_last_chunk
from ...model.spyre.model import REVISIONS, SpyreModel, admitting_by
from ...model.spyre.own_formula import is_own, is_read
from ...model.spyre.release_2_1_2 import RELEASE_2_1_2
from ...model.spyre.revision import Revision
from ...model.spyre.state import Sequence, State
from ...spec.systems import SYSTEMS
from ..explanations.failure import Projected


def projections(scenario: Scenario, version: str, steps: Steps[Step]) -> Iterator[Projected]:
    """Yield the projections of a run, up to the first step that the model of this version decides
    differently or in which it crashes. Yield nothing if there is no such model, or if it admits
    requests without a projection."""
    model = model_of(scenario, version)
    if model is None or not steps:
        return
    if (
        "paused" in model.observes and model.config.pausing
    ):  # such a release pauses requests, and projects nothing
        return
    for number, state in enumerate(_until_it_ends(states(model, scenario, len(steps) - 1))):
        admission = project(model, state, number)
        if admission is None:
            continue
        if _has_departed(state, steps, number):
            return
        joined = [*steps[number].scheduled] == [admission.newcomer]
        if joined or admission.largest > model.config.max_batch_tkv:
            yield Projected(
                *(number, admission.newcomer, admission.projected, admission.largest, joined)
            )


def _until_it_ends(states_of_model: Iterator[State]) -> Iterator[State]:
    with suppress(ReleaseEnded):
        yield from states_of_model


def _has_departed(state: State, steps: Steps[Step], number: int) -> bool:
    seen = steps[number - 1].computed if number else {}
    own = {request.id: request.computed for request in state.admitted}
    return seen is not None and any(tokens != own.get(name) for name, tokens in seen.items())


class Admission(NamedTuple):
    """A request that asks to join the decode batch, and how far the check projected each request,
    in tokens.

    `largest` is the largest batch x tkv that the check considered.
    """

    step: int
    newcomer: str
    projected: dict[str, int]
    words: dict[str, str]
    largest: int


def explain_volume(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """Return sentences that explain how batch x tkv came to exceed the limit in `step`, or an empty
    list if that is unknown."""
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
        (admissions[sequence.id] for sequence in batch if sequence.id in admissions),
        key=lambda a: a.step,
    )
    return _overshot(model, latest, batch, seen["left_pad_blocks"])


def explain_join(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    *_, state = states(model, scenario, step)
    joins = _joining(model, state, step)
    return _admitted(model, joins) if joins is not None else []


def explain_stale_tkv(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
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
        f"it uses tkv {state.tkv} of the last forward pass,",
        f"which would put {candidate.id} at {end} > {config.max_model_len}; "
        f"but the request with that tkv has left, and nothing decodes",
    ]


def explain_stale_refusal(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    *_, state = states(model, scenario, step)
    candidate = _candidate(state)
    lengths = [sequence.computed for sequence in state.decoding]
    now = documented.max_tkv(lengths, model.config.block_size)
    if candidate is None or not goes_by_last_forward(model.revision) or state.tkv <= now:
        return []
    return [
        f"{candidate.id} is refused because of tkv {state.tkv} of the last forward pass; "
        f"the request with that tkv has left, and the batch is now at {now}"
    ]


def goes_by_last_forward(revision: Revision) -> bool:
    """Return whether admission uses the tkv of the last forward pass, even if requests of that pass
    have left since."""
    return revision.current_tkv is release_2_1_2.current_tkv


def states(model: SpyreModel, scenario: Scenario, step: int) -> Iterator[State]:
    """Yield the state before each decision up to that of `step`, after arrivals and aborts."""
    state = model.initial()
    for number in range(step + 1):
        state = _arrivals(model, scenario, state, number)
        yield state
        inside = tuple(
            request.id
            for request in scenario.requests
            if request.abort_at == number and request.abort_inside
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
    candidate = _candidate(state)
    if candidate is None or not state.decoding:
        return None
    if not documented.may_prefill(model.config, model.revision, state, candidate):
        return None
    return project(model, state, number)


def project(model: SpyreModel, state: State, number: int) -> Admission | None:
    """Return the projections for the last chunk of the first request in line, as if that chunk came
    next."""
    config, candidate = model.config, _candidate(state)
    check = model.revision.volume_check
    if candidate is None or not state.decoding or not isinstance(check, volumetric.ByFormula):
        return None
    if not is_last_chunk(candidate.prompt, candidate.computed, config.chunk_size):
        return None
    block = config.block_size
    current = model.revision.current_tkv(config, state)
    tkvs = documented.request_tkvs([sequence.computed for sequence in state.decoding], block)
    members = [
        volumetric.Decoding(sequence.computed, sequence.remaining, own, sequence.prompt)
        for sequence, own in zip(state.decoding, tkvs, strict=True)
    ]
    newcomer = volumetric.Newcomer(candidate.prompt, candidate.max_tokens)
    projection = check.formula(current, members, newcomer, block)
    names = [sequence.id for sequence in state.decoding]
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
    own = projection.newcomer
    if projection.to_the_end:
        all_requests = sorted([*projection.decoding, own], reverse=True)
        return max(batch * tkv for batch, tkv in enumerate(all_requests, 1))
    shorter = sorted(tkv for tkv in projection.decoding if tkv < own)
    batch = len(projection.decoding) + 1
    walked = [(batch - gone) * tkv for gone, tkv in enumerate([*shorter, own])]
    return max(walked)


def _words(model: SpyreModel, current: int, state: State, newcomer: Sequence) -> dict[str, str]:
    if model.revision.volume_check != documented.VOLUME_CHECK:
        return {}
    block = model.config.block_size
    width = max(current, newcomer.prompt) // block
    words = {
        sequence.id: f"current tkv {volumetric.realigned(sequence.computed, width, block)} + "
        f"{_may_come(sequence.remaining)} + one block of {block}"
        for sequence in state.decoding
    }
    own = volumetric.realigned(newcomer.prompt, width, block)
    words[newcomer.id] = f"current tkv {own} + {_may_come(newcomer.max_tokens - 1)}"
    return words


def _may_come(tokens: int) -> str:
    return f"{tokens} token{'s' * (tokens != 1)} that it may still generate"


def _admitted(model: SpyreModel, joins: Admission) -> list[str]:
    lines = [f"step {joins.step}: {joins.newcomer} joins; the projection accepts it:"]
    for name, reach in sorted(joins.projected.items(), key=lambda item: item[1]):
        words = joins.words.get(name)
        lines.append(f"  {name} reaches tkv {reach} at most" + (f" ({words})" if words else ""))
    return [*lines, f"  {_comparison(model, joins, joins.newcomer)}"]


def _comparison(model: SpyreModel, joins: Admission, name: str) -> str:
    """Describe how admission compared the batch with the limit, for the steps until this request
    ends."""
    reach = joins.projected[name]
    alive = sum(other >= reach for other in joins.projected.values())
    return (
        f"until {name} ends: {alive} request{'s' * (alive != 1)} x {reach} = {alive * reach} "
        f"<= {model.config.max_batch_tkv}"
    )


def _overshot(
    model: SpyreModel, joins: Admission, batch: tuple[Sequence, ...], pads: dict[str, int]
) -> list[str]:
    block = model.config.block_size
    longest = next(sequence.id for sequence in batch if pads[sequence.id] == 0)
    tkvs = {sequence.id: pads[sequence.id] * block + sequence.computed + 1 for sequence in batch}
    lines = _admitted(model, joins)
    beyond = [
        name for name, reached in tkvs.items() if reached > joins.projected.get(name, reached)
    ]
    if beyond:
        return [
            *lines[:-1],
            f"  {_comparison(model, joins, beyond[0])}",
            *(
                f"  {name} is at tkv {tkvs[name]}, {tkvs[name] - joins.projected[name]} beyond its "
                f"projection: {longest} needs one block more, which pads {name} on the left"
                for name in beyond
            ),
        ]
    widest = max(tkvs, key=lambda name: tkvs[name])
    first = min(joins.projected.keys() & tkvs, key=lambda name: joins.projected[name])
    if joins.projected[first] == joins.projected[joins.newcomer]:
        never = f"the check stopped at {joins.newcomer}, so it never compared {widest}, "
        return [*lines, f"  {never}whose tkv is {tkvs[widest]}"]
    return [
        *lines[:-1],
        f"  {_comparison(model, joins, first)}",
        f"  {first} has not ended when {widest} is at tkv {tkvs[widest]}: within its own "
        f"projection, and {tkvs[widest] - joins.projected[first]} beyond that of {first}",
    ]


def explain_lost_blocks(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    lines: list[str] = []
    before = None
    for number, state in enumerate(states(model, scenario, step)):
        known = before.lost_blocks if before is not None else 0
        if before is not None and state.lost_blocks > known:
            gone = [name for name in state.aborted if name not in before.aborted]
            lines.append(
                f"step {number}: {', '.join(gone)} is aborted before the decision, and "
                f"{state.lost_blocks - known} blocks stay promised to it forever: only requests "
                "that finish after the decision return their promises"
            )
        before = state
    if lines and before is not None:
        waiting = [sequence for sequence in before.waiting if sequence.max_tokens]
        free = model.config.num_blocks
        if waiting and free is not None:
            needed = model.revision.blocks_at_end(model.config, waiting[0])
            lines.append(
                f"step {step}: {waiting[0].id} needs {needed} of the {free} blocks, but "
                f"{before.lost_blocks} of them are reserved for no request"
            )
    return lines


def explain_published_ahead(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    if model.revision.progress is documented.progress:
        return []
    block = model.config.block_size
    lines: list[str] = []
    ahead: dict[str, tuple[int, int]] = {}

    def note_aborts(number: int, inside: bool) -> None:
        for request in scenario.requests:
            if request.abort_at != number or request.abort_inside != inside:
                continue
            real, published = ahead.get(request.id, (0, 0))
            if published > real:
                lines.append(
                    f"step {number}: {request.id} is aborted with {published} tokens published "
                    f"but only {real} computed; the blocks in between can still be found"
                )

    for number, state in enumerate(states(model, scenario, step)):
        note_aborts(number, inside=False)
        after, _ = model.step(state)
        for sequence in after.admitted:
            real = _really_computed(model, sequence.prompt, sequence.prefix_hit, sequence.computed)
            ahead[sequence.id] = (real, sequence.published * block)
        note_aborts(number, inside=True)
    return lines


def _really_computed(model: SpyreModel, prompt: int, hit: int, counted: int) -> int:
    if counted >= prompt:
        return counted
    chunk, block = model.config.chunk_size, model.config.block_size
    pad = -(-prompt // chunk) * chunk - -(-prompt // block) * block
    chunks = -(-(prompt - counted) // chunk)
    return max(-(-prompt // chunk) * chunk - chunks * chunk - pad, hit)


def explain_forgotten_paused(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    *_, state = states(model, scenario, step)
    if state.running or not state.paused or model.revision.is_empty is documented.is_empty:
        return []
    paused = ", ".join(sequence.id for sequence in state.paused)
    return [
        f"the decoding requests have left, {paused} is paused and no request runs: an empty batch",
        "admits the next prefill before checking whether a request is paused",
    ]


def explain_passed_by(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    if model.revision.candidate is documented.candidate:
        return []
    *_, state = states(model, scenario, step)
    if not state.waiting:
        return []
    first = state.waiting[0]
    passed: list[str] = []
    for before in states(model, scenario, step):
        if first.id not in [sequence.id for sequence in before.waiting]:
            continue
        chosen = model.revision.candidate(model.config, model.revision, before)
        order = [sequence.id for sequence in before.waiting]
        if chosen is not None and chosen.id in order[order.index(first.id) + 1 :]:
            passed.append(chosen.id)
    if not passed:
        return []
    return [
        f"{first.id} exceeds the volume of the batch while later requests fit; "
        f"{', '.join(passed)} overtook it,",
        "and each of them kept the batch full: a refused request does not stop the queue",
    ]


Explanation = Callable[[SpyreModel, Scenario, int], list[str]]
EXPLANATIONS: dict[str, tuple[Explanation, ...]] = {
    "SPY-R07": (explain_volume,),
    "SPY-R47": (explain_join,),
    "SPY-R35": (explain_stale_tkv, explain_lost_blocks),
    "SPY-R42": (explain_stale_refusal,),
    "SPY-R38": (explain_lost_blocks,),
    "SPY-P02": (explain_lost_blocks,),
    "ALL-R05": (explain_lost_blocks, explain_passed_by),
    "SPY-R52": (explain_forgotten_paused,),
    "ALL-R08": (explain_published_ahead,),
}
# The formula of each release that has its own; 2.0.0 decides like 2.0.1.
FORMULA_OF = {"2.0.0": "2.0.1"}


def explain(rule: str, scenario: Scenario, step: int, version: str) -> list[str]:
    """Return sentences that explain how the rule came to be broken, or an empty list if the cause
    is unknown.

    `version` is the version that the target reports: a revision of the model, or a release.
    """
    model = model_of(scenario, version)
    if model is None:
        return []
    reported = (explanation(model, scenario, step) for explanation in EXPLANATIONS.get(rule, ()))
    try:
        return next((lines for lines in reported if lines), [])
    # the model has ended but the target continues, so the model explains nothing
    except ReleaseEnded:
        return []


def model_of(scenario: Scenario, version: str) -> SpyreModel | None:
    """Return the model that decides as this version does, if there is one."""
    try:
        config = read_config(scenario.config, scenario.revision or "")
    except InputError:
        return None
    revision = REVISIONS.get(SYSTEMS["spyre"].decides_as.get(version, version))
    if revision is None and (is_read(version) or not is_own(version)):
        revision = admitting_by(RELEASE_2_1_2, FORMULA_OF.get(version, version))
    return SpyreModel(config, revision) if revision is not None else None
