"""Mutants of the Spyre model: one small fault each, and the rule that must name it first.

A mutant replaces one function of the model, or the whole target where a model cannot have the
fault (a scheduler that crashes). Predicates share no function with the model, so no fault can
hide in both.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from schedproof.model.faults import TargetHung
from schedproof.model.spyre import admission, padding, revision, scheduler, tkv, volumetric
from schedproof.model.spyre.state import Sequence, State
from schedproof.model.target import ModelTarget


@dataclass(frozen=True)
class Mutant:
    """`plant` puts the fault in place; `rule` is the one that must break first."""

    name: str
    rule: str
    plant: Callable[[Any], None] = lambda monkeypatch: None
    target: Callable[[], ModelTarget] = ModelTarget
    revision: str = "sound"


class SoundInstead(ModelTarget):
    """A release that decides as `sound` does: right by every rule but its own lockstep."""

    def start(self, system: str, revision: str, config: Any) -> Any:
        return super().start(system, "sound", config)


class TakesForEver(ModelTarget):
    """A scheduler that does not answer when three requests run."""

    def step(self) -> Any:
        reply = super().step()
        if len(reply["step"]["running"]) > 2:
            raise TargetHung("step", 10.0)
        return reply


class ShowsLittle(ModelTarget):
    """A target that shows no more than who is scheduled and who has finished."""

    def start(self, system: str, revision: str, config: Any) -> Any:
        reply = super().start(system, revision, config)
        return reply | {"observes": ["kind", "scheduled", "waiting", "running", "finished"]}

    def step(self) -> Any:
        reply = super().step()
        reply["step"].pop("emitted")
        return reply


def _replace(module: Any, name: str, make: Callable[[Any], Any]) -> Callable[[Any], None]:
    return lambda monkeypatch: monkeypatch.setattr(module, name, make(getattr(module, name)))


def _observe(change: Callable[[Any, dict[str, Any]], None]) -> Callable[[Any], None]:
    """Change what is reported of a step: (config, observation)."""

    def make(original: Any) -> Any:
        def observe(*args: Any) -> dict[str, Any]:
            seen: dict[str, Any] = original(*args)
            change(args[0], seen)
            return seen

        return observe

    return _replace(scheduler, "observe", make)


def _decide(change: Callable[[Any, State, Any], Any]) -> Callable[[Any], None]:
    """Change what is decided: (config, state, decision) -> decision."""

    def make(original: Any) -> Any:
        def decide(config: Any, rev: Any, state: State) -> Any:
            return change(config, state, original(config, rev, state))

        return decide

    return _replace(scheduler, "decide", make)


def _raise(*_: Any) -> Any:
    raise RuntimeError("planted")


def crash_on_third_running(config: Any, state: State, decision: Any) -> Any:
    return _raise() if len(state.running) > 2 else decision


def lose_waiting_request(original: Any) -> Any:
    """An abort takes the neighbour in the queue along."""

    def abort(state: State, request_id: str) -> State:
        after: State = original(state, request_id)
        return after._replace(waiting=after.waiting[:-1])

    return abort


def one_token_more(original: Any) -> Any:
    """The last token is not noticed as the last."""

    def complete(state: State, forward: Any) -> Any:
        longer = [one._replace(output_len=one.output_len + 1) for one in state.running]
        after, emitted, finished = original(state._replace(running=tuple(longer)), forward)
        back = [one._replace(output_len=one.output_len - 1) for one in after.running]
        return after._replace(running=tuple(back)), emitted, finished

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
    fits = head and head.prompt <= config.chunk_size and not full
    if state.prefilling and fits and decision.kind == "prefill":
        return scheduler.Decision("prefill", (head,))
    return decision


def last_come_first_served(original: Any) -> Any:
    def decide(config: Any, rev: Any, state: State) -> Any:
        return original(config, rev, state._replace(waiting=state.waiting[::-1]))

    return decide


def idle_when_refused(config: Any, state: State, decision: Any) -> Any:
    """Wait for the first in line instead of decoding."""
    if decision.kind == "decode" and state.waiting and not state.last_step_was_prefill:
        return scheduler.Decision("idle")
    return decision


def never_finish(while_waiting: bool) -> Callable[[Any], Any]:
    """Requests decode on after their last token, for ever: while others wait, or when alone."""

    def make(original: Any) -> Any:
        def complete(state: State, forward: Any) -> Any:
            if bool(state.waiting) != while_waiting:
                return original(state, forward)
            endless = [one._replace(output_len=one.generated + 2) for one in state.running]
            lengths = {one.id: one.output_len for one in state.running}
            after, emitted, finished = original(state._replace(running=tuple(endless)), forward)
            back = [one._replace(output_len=lengths[one.id]) for one in after.running]
            return after._replace(running=tuple(back)), emitted, finished

        return complete

    return make


def skip_a_member(original: Any) -> Any:
    """The youngest of three or more is left out of a decode step."""

    def compute_decode(config: Any, state: State) -> Any:
        batch = state.decoding
        if len(batch) < 3:
            return original(config, state)
        kept = state._replace(running=tuple(one for one in state.running if one != batch[-1]))
        after, forward = original(config, kept)
        return after._replace(running=(*after.running, batch[-1])), forward

    return compute_decode


def prefill_two(original: Any) -> Any:
    """A one-chunk prompt takes the next one along."""

    def compute_chunk(config: Any, rev: Any, state: State, one: Sequence) -> Any:
        after, forward = original(config, rev, state, one)
        if one.computed == 0 and after.waiting and not after.prefilling:
            after, second = original(config, rev, after, after.waiting[0])
            scheduled = forward.scheduled | second.scheduled
            pads = forward.left_pad_blocks | second.left_pad_blocks
            forward = scheduler.Forward(scheduled, pads, second.tkv)
        return after, forward

    return compute_chunk


def projection(name: str) -> Callable[[Any], None]:
    """Another formula for the volumetric check of every revision."""

    def plant(monkeypatch: Any) -> None:
        for key, value in revision.REVISIONS.items():
            changed = replace(value, projection=volumetric.FORMULAS[name])
            monkeypatch.setitem(revision.REVISIONS, key, changed)

    return plant


def _pads(change: Callable[[list[int]], list[int]]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        return lambda lengths, block: change(original(lengths, block))

    return make


def _first_token_early(_: Any, seen: dict[str, Any]) -> None:
    if seen["kind"] == "prefill":
        seen["emitted"] = dict.fromkeys(seen["scheduled"], 1)


def _whole_prompt(original: Any) -> Any:
    """Prefill is not chunked."""
    return lambda prompt, computed, chunk_size, block_size: prompt - computed


def _left_aligned_chunks(original: Any) -> Any:
    """The first chunk is filled, the padding is forgotten in the sizes."""

    def next_chunk(prompt: int, computed: int, chunk_size: int, block_size: int) -> int:
        return min(chunk_size, prompt - computed)

    return next_chunk


def _no_left_padding(original: Any) -> Any:
    """Known bug SPY-023: a prompt of a single chunk is left-aligned in it."""
    return lambda prompt, chunk, block: 0 if prompt <= chunk else original(prompt, chunk, block)


def _one_chunk_of_padding_more(config: Any, seen: dict[str, Any]) -> None:
    if seen["kind"] == "prefill":
        chunk_blocks = config.chunk_size // config.block_size
        pads = seen["left_pad_blocks"]
        seen["left_pad_blocks"] = {name: pad + chunk_blocks for name, pad in pads.items()}


SPYRE_MUTANTS = (
    Mutant("crashes with three running", "ALL-R01", _decide(crash_on_third_running)),
    Mutant(
        "an abort loses a neighbour", "ALL-R03", _replace(scheduler, "abort", lose_waiting_request)
    ),
    Mutant("does not answer with three running", "ALL-R02", target=TakesForEver),
    Mutant("one token too many", "ALL-R04", _replace(scheduler, "complete", one_token_more)),
    Mutant(
        "decodes on while others wait",
        "ALL-R05",
        _replace(scheduler, "complete", never_finish(True)),
        ShowsLittle,
    ),
    Mutant(
        "decodes on when nobody waits",
        "ALL-R06",
        _replace(scheduler, "complete", never_finish(False)),
        ShowsLittle,
    ),
    Mutant("decides as another revision", "ALL-R07", target=SoundInstead, revision="2.1.2"),
    Mutant("a second prefill starts", "SPY-R30", _decide(second_prefill)),
    Mutant("two prompts in one step", "SPY-R13", _replace(scheduler, "compute_chunk", prefill_two)),
    Mutant("a short prompt overtakes a prefill", "SPY-R31", _decide(short_prompt_overtakes)),
    Mutant(
        "no interleaving",
        "SPY-R32",
        _replace(admission, "must_interleave", lambda _: lambda *a: False),
    ),
    Mutant(
        "last come, first served", "SPY-R53", _replace(scheduler, "decide", last_come_first_served)
    ),
    Mutant(
        "no limit on running",
        "SPY-R36",
        _replace(
            admission, "satisfies_first_chunk", lambda _: lambda c, r, s, n: s.prefilling is None
        ),
    ),
    Mutant("the whole prompt at once", "SPY-R04", _replace(padding, "next_chunk", _whole_prompt)),
    Mutant(
        "first chunk ignores the padding",
        "SPY-R19",
        _replace(padding, "next_chunk", _left_aligned_chunks),
    ),
    Mutant("a chunk of padding too many", "SPY-R16", _observe(_one_chunk_of_padding_more)),
    Mutant(
        "single chunk left-aligned",
        "SPY-R14",
        _replace(padding, "left_padding_blocks", _no_left_padding),
    ),
    Mutant("every chunk emits", "SPY-R20", _observe(_first_token_early)),
    Mutant("a member left out", "SPY-R22", _replace(scheduler, "compute_decode", skip_a_member)),
    Mutant(
        "no left padding in decode",
        "SPY-R09",
        _replace(tkv, "left_pad_blocks", _pads(lambda p: [0] * len(p))),
    ),
    Mutant(
        "a block of padding for all",
        "SPY-R24",
        _replace(tkv, "left_pad_blocks", _pads(lambda p: [x + 1 for x in p])),
    ),
    Mutant(
        "width of the shortest",
        "SPY-R10",
        _replace(tkv, "left_pad_blocks", _pads(lambda p: [x - max(p, default=0) for x in p])),
    ),
    Mutant(
        "tkv of the last step",
        "SPY-R26",
        _replace(tkv, "max_tkv", lambda f: lambda n, b: max(f(n, b) - 1, 0)),
    ),
    Mutant("projection of 1.10.0", "SPY-R07", projection("1.10.0")),
    Mutant("projection of 2.0.1", "SPY-R07", projection("2.0.1")),
    Mutant("projection of 2.1.0", "SPY-R07", projection("2.1.0")),
    Mutant("waits instead of decoding", "SPY-R35", _decide(idle_when_refused)),
)
