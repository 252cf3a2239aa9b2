"""A mutant of the Spyre model for each rule of the catalogue."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from ...model.faults import TargetHung
from ...model.spyre import (
    admission,
    blocks,
    forward,
    padding,
    pausing,
    prefix,
    revision,
    scheduler,
    tkv,
    volumetric,
)
from ...model.spyre.state import Sequence, State
from ...model.target import ModelTarget, Reply
from ..mutants import Mutant, Plant, replaced, together


class SoundInstead(ModelTarget):
    """A release that decides as `sound` does: right by every rule but its own lockstep."""

    def start(self, system: str, revision: str, config: Any) -> Reply:  # noqa: D102
        return super().start(system, "sound", config)


class TakesForEver(ModelTarget):
    """A scheduler that does not answer when three requests run."""

    def step(self) -> Reply:  # noqa: D102
        reply = super().step()
        if len(reply["step"]["running"]) > 2:
            raise TargetHung("step", 10.0)
        return reply


class ShowsLittle(ModelTarget):
    """A target that shows no more than who is scheduled and who has finished."""

    SHOWN = ("kind", "scheduled", "waiting", "running", "finished")

    def start(self, system: str, revision: str, config: Any) -> Reply:  # noqa: D102
        return super().start(system, revision, config) | {"observes": list(self.SHOWN)}

    def step(self) -> Reply:  # noqa: D102
        step = super().step()["step"]
        return {"ok": True, "step": {field: step[field] for field in self.SHOWN}}


class ShowsNoProgress(ShowsLittle):
    """A scheduler that, once two requests wait, schedules its batch again and again for nothing."""

    def step(self) -> Reply:  # noqa: D102
        before = self._state
        reply = super().step()
        if len(before.waiting) > 1 and before.running:
            self._state = before
            step = reply["step"]
            step["scheduled"] = dict.fromkeys(step["scheduled"], 0)
            step["finished"] = {}
            step["waiting"] = [one.id for one in before.waiting]
            step["running"] = [one.id for one in before.running]
        return reply


def flags(**changes: Any) -> Plant:
    """Other choices in every revision."""

    def plant(stack: ExitStack) -> None:
        changed = {key: replace(rev, **changes) for key, rev in revision.REVISIONS.items()}
        stack.enter_context(mock.patch.dict(revision.REVISIONS, changed))

    return plant


def projection(name: str) -> Plant:
    """Another formula for the volumetric check of every revision."""
    return flags(projection=volumetric.FORMULAS[name])


# Release 2.5.2 without its faults: the rules that only it has must hold on something.
REPAIRED_2_5_2 = flags(
    stale_tkv=False,
    prompt_is_tkv=False,
    checks_once=False,
    counts_ahead=False,
    leaks_reservations=False,
    forgets_paused=False,
    skips_refused=False,
)


def observed(change: Callable[[Any, dict[str, Any]], None]) -> Plant:
    """Change what is reported of a step: (config, observation)."""

    def make(original: Any) -> Any:
        def observe(*args: Any) -> dict[str, Any]:
            seen: dict[str, Any] = original(*args)
            change(args[0], seen)
            return seen

        return observe

    return replaced(scheduler, "observe", make)


def decided(change: Callable[[Any, State, Any], Any]) -> Plant:
    """Change what is decided: (config, state, decision) -> decision."""

    def make(original: Any) -> Any:
        def decide(config: Any, rev: Any, state: State) -> Any:
            after, decision = original(config, rev, state)
            return after, change(config, after, decision)

        return decide

    return replaced(scheduler, "decide", make)


def crash_on_third_running(config: Any, state: State, decision: Any) -> Any:
    """No room for a third request."""
    if len(state.running) > 2:
        raise RuntimeError("planted")
    return decision


def lose_waiting_request(original: Any) -> Any:
    """When someone is aborted, the last in the queue is lost, too."""

    def complete(config: Any, rev: Any, state: State, computed: Any) -> Any:
        after, *rest = original(config, rev, state, computed)
        kept = after.waiting[:-1] if state.aborted else after.waiting
        return after._replace(waiting=kept), *rest

    return complete


def one_token_more(original: Any) -> Any:
    """The last token is not noticed as the last."""

    def complete(config: Any, rev: Any, state: State, computed: Any) -> Any:
        longer = [one._replace(output_len=one.output_len + 1) for one in state.running]
        after, *rest = original(config, rev, state._replace(running=tuple(longer)), computed)
        back = [one._replace(output_len=one.output_len - 1) for one in after.running]
        return after._replace(running=tuple(back)), *rest

    return complete


def second_prefill(config: Any, state: State, decision: Any) -> Any:
    """A new prompt of several chunks starts although one is ongoing."""
    newcomer = next((one for one in state.waiting if one.prompt > config.chunk_size), None)
    if state.prefilling and newcomer and decision.kind == "decode":
        return scheduler.Decision("prefill", (newcomer,))
    return decision


def short_prompt_overtakes(config: Any, state: State, decision: Any) -> Any:
    """A one-chunk prompt is prefilled between the chunks of another."""
    head = state.waiting[0] if state.waiting else None
    full = len(state.running) >= config.max_num_seqs
    if head is None or head.prompt > config.chunk_size or full:
        return decision
    if state.prefilling and decision.kind == "prefill":
        return scheduler.Decision("prefill", (head,))
    return decision


def last_come_first_served(original: Any) -> Any:
    """The queue is served from its end."""

    def candidate(config: Any, rev: Any, state: State) -> Any:
        return original(config, rev, state._replace(waiting=state.waiting[::-1]))

    return candidate


def idle_when_refused(config: Any, state: State, decision: Any) -> Any:
    """Wait for the first in line instead of decoding."""
    if decision.kind == "decode" and state.waiting and not state.last_step_was_prefill:
        return scheduler.Decision("idle")
    return decision


def empty_system_waits(config: Any, state: State, decision: Any) -> Any:
    """A prompt of several chunks does not start where nothing runs."""
    waits = state.waiting and state.waiting[0].prompt > config.chunk_size
    return scheduler.Decision("idle") if waits and not state.admitted else decision


def never_joins(original: Any) -> Any:
    """Nobody joins a batch of two or more: too careful by far."""

    def fits_volume(config: Any, rev: Any, current: int, decoding: Any, newcomer: Any) -> bool:
        return len(decoding) < 2 and original(config, rev, current, decoding, newcomer)

    return fits_volume


def never_finish(while_waiting: bool) -> Callable[[Any], Any]:
    """Requests decode on after their last token, for ever: while others wait, or when alone."""

    def make(original: Any) -> Any:
        def complete(config: Any, rev: Any, state: State, computed: Any) -> Any:
            if bool(state.waiting) != while_waiting:
                return original(config, rev, state, computed)
            endless = [one._replace(output_len=one.generated + 2) for one in state.running]
            lengths = {one.id: one.output_len for one in state.running}
            after, *rest = original(config, rev, state._replace(running=tuple(endless)), computed)
            back = [one._replace(output_len=lengths[one.id]) for one in after.running]
            return after._replace(running=tuple(back)), *rest

        return complete

    return make


def skip_a_member(original: Any) -> Any:
    """The youngest of three or more is left out of a decode step."""

    def compute_decode(config: Any, state: State) -> Any:
        batch = state.decoding
        if len(batch) < 3:
            return original(config, state)
        kept = state._replace(running=tuple(one for one in state.running if one != batch[-1]))
        after, computed = original(config, kept)
        return after._replace(running=(*after.running, batch[-1])), computed

    return compute_decode


def prefill_two(original: Any) -> Any:
    """A one-chunk prompt takes the next one along."""

    def compute_chunk(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        after, computed = original(config, rev, state, one)
        if one.computed == 0 and after.waiting and not after.prefilling:
            after, second = original(config, rev, after, after.waiting[0])
            computed = computed._replace(
                scheduled=computed.scheduled | second.scheduled,
                left_pad_blocks=computed.left_pad_blocks | second.left_pad_blocks,
            )
        return after, computed

    return compute_chunk


def whole_prompt(original: Any) -> Any:
    """Prefill is not chunked."""
    return lambda prompt, computed, chunk_size, block_size: (computed, prompt)


def full_first_chunk(original: Any) -> Any:
    """The first chunk is filled with tokens, its padding is forgotten in the sizes."""

    def next_chunk(prompt: int, computed: int, chunk_size: int, block_size: int) -> Any:
        return computed, min(computed + chunk_size, prompt)

    return next_chunk


def no_padding_in_one_chunk(original: Any) -> Any:
    """A prompt of a single chunk is left-aligned in it."""
    return lambda prompt, chunk, block: 0 if prompt <= chunk else original(prompt, chunk, block)


def chunk_of_padding_more(config: Any, seen: dict[str, Any]) -> None:
    """A chunk of nothing but padding in front."""
    if seen["kind"] == "prefill":
        pads = seen["left_pad_blocks"]
        more = config.chunk_size // config.block_size
        seen["left_pad_blocks"] = {name: pad + more for name, pad in pads.items()}


def first_token_late(_: Any, seen: dict[str, Any]) -> None:
    """The token of the last chunk is kept back, unless the request ends with it."""
    if seen["kind"] == "prefill" and not seen["finished"]:
        seen["emitted"] = {}


def block_short_at_border(config: Any, seen: dict[str, Any]) -> None:
    """A token at the start of a block has no block."""
    for name, held in seen["blocks"].items():
        if seen["computed"][name] % config.block_size == 1 and len(held) > 1:
            held.pop()


def padding_elsewhere(original: Any) -> Any:
    """Padding is written to block 1."""

    def written(config: Any, one: Sequence, pad: int, end: int) -> list[int]:
        before = pad + padding.blocks_for(end, config.block_size)
        first = before - config.chunk_size // config.block_size
        numbers = original(config, one, pad, end)
        return [1 if first + n < pad else number for n, number in enumerate(numbers)]

    return written


def cached_blocks_written(original: Any) -> Any:
    """What is computed again is also written again."""
    return lambda config, one, pad, end: original(config, one._replace(prefix_hit=0), pad, end)


def last_block_hit(original: Any) -> Any:
    """The last token of a prompt, too, is taken from the cache."""
    return lambda pool, content, tokens, block: original(pool, content, tokens + 1, block)


def cached_chunks_computed(original: Any) -> Any:
    """Hits hold their blocks and save nothing."""

    def admit(config: Any, state: State, newcomer: Sequence) -> Any:
        admitted, pool = original(config, state, newcomer)
        return admitted._replace(computed=0), pool

    return admit


def at_least_nothing(_: Any, seen: dict[str, Any]) -> None:
    """A chunk that is cached as a whole computes no token."""
    seen["scheduled"] = {name: max(tokens, 0) for name, tokens in seen["scheduled"].items()}


def hit_cut_short(original: Any) -> Any:
    """The last block of every hit is not taken."""
    return lambda config, state, newcomer: original(config, state, newcomer)[:-1]


def outputs_not_published(original: Any) -> Any:
    """Blocks of generated tokens cannot be found."""

    def hold(config: Any, one: Sequence, covered: int, pool: Any) -> Any:
        after, grown = original(config, one, covered, pool)
        if covered > one.prompt:
            known = {c: held for c, held in grown.cached.items() if c in pool.cached}
            grown = grown._replace(cached=known)
        return after, grown

    return hold


def block_not_given_back(original: Any) -> Any:
    """The last block of whoever leaves is lost."""

    def release(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        shorter = one._replace(blocks=one.blocks[:-1], published=min(one.published, 1))
        return original(config, rev, state, shorter)

    return release


def fairness_reversed(original: Any) -> Any:
    """Who is paused stays paused."""
    return lambda config, state: original(config, state)[::-1]


def prefills_while_paused(original: Any) -> Any:
    """Paused requests are forgotten when a prefill is considered."""

    def may_prefill(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        return original(config, rev, state._replace(paused=()), one)

    return may_prefill


def _pads(change: Callable[[list[int]], list[int]]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        return lambda lengths, block: change(original(lengths, block))

    return make


CACHED_CHUNKS_COMPUTED = together(
    replaced(blocks, "admit", cached_chunks_computed), observed(at_least_nothing)
)
MUTANTS = (
    Mutant("crashes with three running", "ALL-R01", decided(crash_on_third_running)),
    Mutant("does not answer with three running", "ALL-R02", target=TakesForEver),
    Mutant(
        "an abort loses a neighbour",
        "ALL-R03",
        replaced(scheduler, "complete", lose_waiting_request),
    ),
    Mutant("one token too many", "ALL-R04", replaced(scheduler, "complete", one_token_more)),
    Mutant(
        "decodes on while others wait",
        "ALL-R05",
        replaced(scheduler, "complete", never_finish(True)),
        ShowsLittle,
    ),
    Mutant(
        "decodes on when nobody waits",
        "ALL-R06",
        replaced(scheduler, "complete", never_finish(False)),
        ShowsLittle,
    ),
    Mutant("decides as another revision", "ALL-R07", target=SoundInstead, revision="2.1.2"),
    Mutant(
        "publishes blocks before they are computed",
        "ALL-R08",
        flags(counts_ahead=True, whole_first_chunk=True),
    ),
    Mutant(
        "a block is not given back", "ALL-R09", replaced(blocks, "release", block_not_given_back)
    ),
    Mutant("runs in circles", "ALL-R10", target=ShowsNoProgress),
    Mutant("a second prefill starts", "SPY-R30", decided(second_prefill)),
    Mutant("two prompts in one step", "SPY-R13", replaced(forward, "compute_chunk", prefill_two)),
    Mutant(
        "prefills while one is paused",
        "SPY-R52",
        together(REPAIRED_2_5_2, replaced(admission, "may_prefill", prefills_while_paused)),
        revision="2.5.2",
    ),
    Mutant("a short prompt overtakes a prefill", "SPY-R31", decided(short_prompt_overtakes)),
    Mutant(
        "no interleaving",
        "SPY-R32",
        replaced(admission, "must_interleave", lambda _: lambda config, state: False),
    ),
    Mutant(
        "last come, first served",
        "SPY-R53",
        replaced(admission, "candidate", last_come_first_served),
    ),
    Mutant(
        "no limit on running",
        "SPY-R36",
        replaced(
            admission,
            "satisfies_first_chunk",
            lambda _: lambda config, state: state.prefilling is None,
        ),
    ),
    Mutant("an empty system waits", "SPY-R38", decided(empty_system_waits)),
    Mutant(
        "the whole prompt is a hit", "SPY-R55", replaced(prefix, "cached_blocks", last_block_hit)
    ),
    Mutant("cached chunks are computed", "SPY-R54", CACHED_CHUNKS_COMPUTED),
    Mutant("hits are cut short", "SPY-R57", replaced(blocks, "prefix_hit", hit_cut_short)),
    Mutant("outputs are no hits", "SPY-R60", replaced(blocks, "hold", outputs_not_published)),
    Mutant("the whole prompt at once", "SPY-R04", replaced(padding, "next_chunk", whole_prompt)),
    Mutant(
        "first chunk ignores the padding",
        "SPY-R19",
        replaced(padding, "next_chunk", full_first_chunk),
    ),
    Mutant(
        "single chunk left-aligned",
        "SPY-R14",
        replaced(padding, "left_padding_blocks", no_padding_in_one_chunk),
    ),
    Mutant("a chunk of padding too many", "SPY-R16", observed(chunk_of_padding_more)),
    Mutant("padding is not block 0", "SPY-R11", replaced(forward, "written", padding_elsewhere)),
    Mutant(
        "cached blocks are written again",
        "SPY-R56",
        replaced(forward, "written", cached_blocks_written),
    ),
    Mutant("the first token comes late", "SPY-R20", observed(first_token_late)),
    Mutant(
        "hits are forgotten at the last chunk",
        "SPY-R59",
        replaced(admission, "computed_or_hit", lambda _: lambda config, state, one: one.computed),
    ),
    Mutant(
        "no model length",
        "SPY-R41",
        replaced(admission, "fits_model_length", lambda _: lambda *args: True),
    ),
    Mutant(
        "no reservation", "SPY-R50", replaced(blocks, "fits_pool", lambda _: lambda *args: True)
    ),
    Mutant("promises outlive their request", "SPY-P02", flags(leaks_reservations=True)),
    Mutant(
        "paused longest, asked last",
        "SPY-R51",
        together(REPAIRED_2_5_2, replaced(pausing, "fairness_order", fairness_reversed)),
        revision="2.5.2",
    ),
    Mutant(
        "paused for good",
        "SPY-P01",
        together(REPAIRED_2_5_2, replaced(pausing, "fairness_order", fairness_reversed)),
        revision="2.5.2",
        alone=True,
    ),
    Mutant("a member left out", "SPY-R22", replaced(forward, "compute_decode", skip_a_member)),
    Mutant("a block too few at a border", "SPY-R02", observed(block_short_at_border)),
    Mutant(
        "no left padding in decode",
        "SPY-R09",
        replaced(tkv, "left_pad_blocks", _pads(lambda pads: [0] * len(pads))),
    ),
    Mutant(
        "a block of padding for all",
        "SPY-R24",
        replaced(tkv, "left_pad_blocks", _pads(lambda pads: [pad + 1 for pad in pads])),
    ),
    Mutant(
        "width of the shortest",
        "SPY-R10",
        replaced(
            tkv,
            "left_pad_blocks",
            _pads(lambda pads: [pad - max(pads, default=0) for pad in pads]),
        ),
    ),
    Mutant(
        "tkv of the last step",
        "SPY-R26",
        replaced(tkv, "max_tkv", lambda original: lambda n, b: max(original(n, b) - 1, 0)),
    ),
    Mutant("projection of 1.10.0", "SPY-R07", projection("1.10.0")),
    Mutant(
        "joins only the small batch", "SPY-R42", replaced(admission, "fits_volume", never_joins)
    ),
    Mutant("waits instead of decoding", "SPY-R35", decided(idle_when_refused)),
)
