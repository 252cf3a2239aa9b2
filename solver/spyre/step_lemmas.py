"""Each step of the scheduler keeps the invariant of the proof (`argument.md`, "The step").

`scheduler.step` runs on symbols unchanged: decide, compute, aborts, complete. The state has a given
number of decoding requests, one request anywhere in its prompt, and any number of waiting requests,
of which two are known. One of five decoding requests represents any number of requests: each loop
visits five, and `len` may return any number from five on (`loop_lemmas` explains why five are
enough).

Nothing here reads block numbers, so the functions that find, take and return blocks are stubbed,
and a prefix hit may have any length. The volumetric check, the model-length constraint and the
check for room in the pool may give any answer. The lemmas describe the state after the step.

The invariant holds before every step:

1. each decoding request still has tokens to generate, and has computed its prompt and all generated
   tokens except the last. At most one request prefills, and it is first or last in the queue. Each
   request is in one place, and has the prefix hit with which it started;
2. if a release remembers a tkv, no decoding request is longer than that tkv. The exception, with
   interleaving, is the time after a prefill step: the check is not called then;
3. if a release calls the check at the first chunk only, and does not interleave, the prefilling
   request was accepted together with the decoding ones.

Every step keeps the invariant, and so do aborts and arrivals. Each request that joins was accepted
together with all decoding requests, in their current state, and none of them runs in that step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import z3

from ...model import config as read_of
from ...model import scenario
from ...model.errors import InputError
from ...model.spyre import blocks, documented, scheduler
from ...model.spyre.config import SpyreConfig
from ...model.spyre.model import SpyreModel, make_model
from ...model.spyre.revision import Revision
from ...model.spyre.state import State
from ..smt.execution import SymbolicRun, bare, condition, count_as_more, holds_on, paths, stubs
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation, lemma
from ..smt.on_symbols import on_symbols
from ..smt.passed_on import Name
from ..smt.terms import all_of, any_of, boolean, integer
from . import step_claims
from .symbolic_admission import MANY, SIZES, Lengths, length, own_tkvs
from .symbolic_state import MODULES, StepConfiguration, Stepped, any_config
from .symbolic_step import Step

Claim = Callable[[Step, int, Stepped], Any]
AT_ONCE = 2  # how many requests of a large batch one lemma compares with a tkv
JOINING = "joining_request_was_accepted"
# The same lemmas for a step in which no request decodes. The check need not be called then.
ALONE = {
    JOINING: "A request that joins an empty batch has computed its prompt and generated one token.",
    "decoding_requests_run_together": "A step without a decoding request is not a decode step.",
}
LEMMAS: dict[str, tuple[str, Claim]] = {
    JOINING: (
        "If a request joins {requests} (or starts, if the check is called only then), none of "
        "them runs, and the check has accepted the request together with all of them, in their "
        "current state, at a tkv that is at least the length of each.",
        step_claims.joining_is_accepted,
    ),
    "decoding_requests_run_together": (
        "In a step with {requests}, all of them run or none does. If they run, it is a decode "
        "step, no other request runs, and the tkv is the largest of theirs. Those that have "
        "generated all their tokens leave; of the rest, only aborted ones do.",
        step_claims.runs_together,
    ),
    "remembered_tkv_covers_every_member": (
        "After a step with {requests}, the remembered tkv is at least the length of "
        "each, or the next step calls the check for no request.",
        step_claims.remembered_tkv_covers,
    ),
    "one_request_prefills": (
        "After a step with {requests}, at most one request prefills, the others wait as before, "
        "and no request is new or in two places.",
        step_claims.one_prefills,
    ),
    "prefill_is_uninterrupted": (
        "With {requests}, a request that prefills continues in the next step.",
        step_claims.is_uninterrupted,
    ),
}


def obligations(
    configuration: StepConfiguration, sizes: tuple[int, ...] = SIZES
) -> list[Obligation]:
    lemmas = []
    for size in sizes:
        step = Step(configuration, size)
        for name, (sentence, claim) in LEMMAS.items():
            if name in lemmas_of(configuration, size):
                if not size:
                    sentence = ALONE.get(name, sentence)
                lemmas.append(
                    Obligation(
                        f"{name}_{size}",
                        sentence.format(requests=_decoding(size)),
                        partial(_holds, step, claim, 0),
                        partial(_holds, step, claim, 1),
                    )
                )
    block = configuration.block
    tkvs = [lemma for size in sizes if size for lemma in no_tkvs_are_short(block, size)]
    # cvc5 gives up on a larger batch.
    tkvs += [no_tkv_is_long(block, size) for size in sizes if 0 < size <= MANY]
    return [*tkvs, *lemmas, *between_steps(configuration)]


def with_short_chunks(configuration: StepConfiguration) -> list[Obligation]:
    """Return the lemma on requests that join, for chunks of one block. The code might round such
    chunks differently."""
    short = configuration._replace(chunk=configuration.block)
    [joins] = [lemma for lemma in obligations(short, (1,)) if lemma.name == f"{JOINING}_1"]
    return [replace(joins, name=f"{joins.name}_in_chunks_of_{short.chunk}")]


def _decoding(size: int) -> str:
    counted = " that count as any number" * (size == MANY)
    return f"{size or 'no'} decoding request{'s' * (size > 1)}{counted}"


def between_steps(configuration: StepConfiguration) -> list[Obligation]:
    """Return the lemmas on the initial state, on arrivals, and on aborts, including aborts within a
    step."""
    return [
        model_decides_by_its_revision(configuration.revision),
        *(abort_only_removes(configuration, size) for size in SIZES[:-1]),
        *(arrival_waits_uncomputed(configuration, size) for size in SIZES[:-1]),
    ]


def lemmas_of(configuration: StepConfiguration, size: int) -> set[str]:
    """Return the names of the lemmas that apply to a configuration."""
    names = {JOINING, "one_request_prefills", "decoding_requests_run_together"}
    if configuration.remembers:
        names.add("remembered_tkv_covers_every_member")
    if configuration.asks_once:
        names.add("prefill_is_uninterrupted")
    return names


def no_tkvs_are_short(block: int, size: int) -> list[Obligation]:
    """Return the lemma for a number of requests. For a large number, return several lemmas, because
    Z3 can compare only a few requests with a tkv at once."""
    if size <= MANY:
        return [no_tkv_is_short(block, size, slice(size), "No request", "")]
    return [
        no_tkv_is_short(
            *(block, size, slice(at - 1, at + AT_ONCE - 1)),
            *(f"None of the requests {at} to {at + AT_ONCE - 1}", f"_from_{at}"),
        )
        for at in range(1, size, AT_ONCE)
    ]


@lemma(
    "{none} of a batch ({size}) is longer than its own tkv or the batch's.",
    name="no_length_exceeds_its_tkv_{size}{about}",
)
def no_tkv_is_short(
    block: int, size: int, compared: slice, none: str, about: str, more: int
) -> list[Any]:
    numbers = Numbers()
    lengths = [length(numbers, "length") for _ in range(size)]
    others = length(numbers, "more lengths", 0)

    def code(run: SymbolicRun) -> Any:
        given = [run.number(each) for each in lengths]
        if size == MANY:
            given[1] = count_as_more(given[1], run.number(others))
        with on_symbols(documented):
            own = documented.request_tkvs(given, block)
            return [bare(each) for each in own], bare(documented.max_tkv(given, block))

    def covers(result: Any) -> Any:
        own, batch = result
        pairs = [*zip(lengths, own, strict=True)][compared]
        return all_of([all_of(batch >= has + more, tkv >= has) for has, tkv in pairs])

    return holds_on(numbers, paths(numbers, code, quick=True), covers)


@lemma(
    "If the longest request of a batch ({size}) fits into a number of blocks, so does the batch's "
    "tkv, which is no larger than the tkv of some request.",
    name="tkv_is_no_larger_than_needed_{size}",
)
def no_tkv_is_long(block: int, size: int, more: int) -> list[Any]:
    numbers, most = Numbers(), integer("blocks")
    lengths = [length(numbers, "length") for _ in range(size)]
    others = length(numbers, "more lengths", 0)
    numbers.facts += [has <= most * block for has in lengths]
    own = own_tkvs(numbers, Lengths(block, None), lengths)

    def code(run: SymbolicRun) -> Any:
        given = [run.number(each) for each in lengths]
        if size == MANY:
            given[1] = count_as_more(given[1], run.number(others))
        with on_symbols(documented):
            return bare(documented.max_tkv(given, block))

    def is_needed(batch: Any) -> Any:
        reached = any_of([batch + more <= tkv for tkv in own])
        return all_of(batch + more <= most * block, reached)

    return holds_on(numbers, paths(numbers, code, quick=True), is_needed)


@lemma(
    "An abort removes one request, or none if it has left, and leaves the others, the tkvs and the "
    "kind of the last step as they were.",
    name="abort_only_removes_{size}",
)
def abort_only_removes(configuration: StepConfiguration, size: int, more: int) -> list[Any]:
    revision = configuration.revision
    step = Step(configuration, size, pauses=configuration.pauses)

    def code(run: SymbolicRun) -> Any:
        config, before = step.config(run, any_switches=True), step.state(run)
        if step.configuration.pauses and size:
            before = before._replace(running=before.running[:-1], paused=before.running[-1:])
        inside, claims = step.within(run, before), []
        ids = [request.id for request in (*before.waiting, *before.running, *before.paused)]
        with (
            on_symbols(*MODULES),
            stubs(blocks, release=lambda config, revision, state, request: state.pool),
        ):
            for name in (*ids, Name("gone")):
                after = SpyreModel(config, revision).abort(before, name)
                claims.append(_without(before, after, name, more))
                after = scheduler.abort(config, revision, inside, name, inside=True)
                claims.append(_without(inside, after, name, more))
        return all_of(claims)

    return holds_on(step.numbers, paths(step.numbers, code, quick=True), lambda claim: claim)


def _without(before: State, after: State, name: str, more: int) -> Any:
    queues = [
        [request for request in queue if request.id != name]
        for queue in (before.waiting, before.running, before.paused)
    ]
    same = [
        len(left) == len(queue)
        and all(request is other for request, other in zip(left, queue, strict=True))
        for left, queue in zip(
            queues, map(tuple, (after.waiting, after.running, after.paused)), strict=True
        )
    ]
    return all_of(
        *same,
        bare(after.tkv) == bare(before.tkv) + more,
        bare(after.runner_tkv) == bare(before.runner_tkv),
        condition(after.last_step_was_prefill) == condition(before.last_step_was_prefill),
    )


@lemma(
    "The model of a revision makes the decisions of that revision, with exactly the "
    "configuration that is given, whatever the numbers in it are."
)
def model_decides_by_its_revision(revision: Revision, more: int) -> list[Any]:
    """Claim that `make_model` keeps the revision, and changes no value of the configuration.

    If `more` is 1, make the guard's claim instead, which must fail: it expects None instead of the
    revision.
    """
    numbers, names = Numbers(), SpyreConfig.__struct_fields__
    numbers.facts += [z3.Int(name) >= 1 for name in names]
    expected = None if more else revision

    def code(run: SymbolicRun) -> Any:
        config: Any = any_config(run, run.number(integer("block_size")), integer("max_batch_tkv"))
        written, read = {name: run.number(integer(name)) for name in names}, list[Any]()

        def convert(values: Any, kind: Any) -> Any:
            same = values.keys() == written.keys() and kind is SpyreConfig
            read.append(same and all(values[name] is written[name] for name in names))
            return config

        only = SimpleNamespace(convert=convert, ValidationError=msgspec.ValidationError)
        try:
            with on_symbols(read_of), stubs(read_of, msgspec=only):
                made = make_model(revision.name, written)
        except InputError:  # refused, so nothing runs
            return True
        as_written = made.config is config and read == [True]
        return type(made) is SpyreModel and as_written and made.revision is expected

    return holds_on(numbers, paths(numbers, code), z3.BoolVal)


@lemma(
    "A request that arrives waits behind the others, with nothing computed, and leaves them as "
    "they were.",
    name="arrival_waits_uncomputed_{size}",
)
def arrival_waits_uncomputed(configuration: StepConfiguration, size: int, more: int) -> list[Any]:
    revision = configuration.revision
    step = Step(configuration, size, pauses=configuration.pauses)
    new = step.newcomers["w1"]

    def code(run: SymbolicRun) -> Any:
        before = step.state(run)
        first, tokens, ends = map(run.number, (integer("segment"), new.tokens, new.ends))
        prompt = (("first", first), ("second", run.number(new.prompt) - first))
        is_given = run.answer(boolean("output_len is given"))
        arriving = Arriving("new", prompt, tokens, ends if is_given else None)
        model = SpyreModel(step.config(run, any_switches=True), revision)
        with on_symbols(*MODULES):
            after = model.arrive(before, cast(Any, arriving))
        *others, last = after.waiting
        kept = all(request is other for request, other in zip(others, before.waiting, strict=True))
        return all_of(
            kept,
            all(
                getattr(after, name) is getattr(before, name)
                for name in State.__struct_fields__
                if name != "waiting"
            ),
            bare(last.prompt) == new.prompt,
            bare(last.max_tokens) == new.tokens,
            bare(last.output_len) == (new.ends if is_given else new.tokens),
            bare(last.computed) == more,
            bare(last.generated) == 0,
            bare(last.prefix_hit) == 0,
            bare(last.published) == 0,
            bare(last.paused_steps) == 0,
            last.blocks == (),
        )

    return holds_on(step.numbers, paths(step.numbers, code, quick=True), lambda claim: claim)


@dataclass(frozen=True)
class Arriving:
    """A symbolic request of a scenario, with a prompt of two segments."""

    id: str
    prompt: Any
    max_tokens: Any
    output_len: Any
    prompt_len = scenario.Request.prompt_len
    tokens_to_emit = scenario.Request.tokens_to_emit


def _holds(step: Step, claim: Claim, more: int) -> list[Any]:
    return holds_on(step.numbers, step.paths, partial(claim, step, more))
