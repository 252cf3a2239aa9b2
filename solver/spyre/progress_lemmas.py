"""A bound on how long the first in line waits for its first chunk (SPY-R53), for any number of
requests.

The bound holds for revision `sound`, with any sound check that accepts a lone newcomer. The rank of
a state, in steps, is the sum of three numbers: the chunks that the ongoing prefill has left, the
decode steps that its request will have, and the largest number of decode steps that a decoding
request has left.

1. `waiting_request_prevents_idling`: no step is idle while a request waits or prefills.
2. `only_first_in_line_starts`: only the first in line starts, and only if no other request
   prefills.
3. `decode_step_brings_end_nearer`: a decode step leaves each decoding request one fewer step to
   run.
4. `chunk_brings_decoding_nearer`: a chunk leaves its request one fewer chunk to compute.
5. `every_other_step_lowers_rank`: so each step in which the first in line does not start lowers the
   rank by at least one. An abort or an early end lowers it further.
6. `first_in_line_starts_at_rank_zero`.
7. `rank_is_bounded_by_model_length`: no rank exceeds the number of chunks in max_model_len plus
   twice its number of tokens.

`arrival_waits_uncomputed_1` and `abort_only_removes_1` (`step_lemmas`) show that requests arrive
behind the first in line, and that an abort changes nothing about the others.

So the first in line starts after at most as many steps as the rank, whatever arrives behind it.
Every request eventually becomes first, so none waits forever. Lemmas 1 to 4 and 6 run the model's
code on symbols with an unbounded pool, and with any other values in the state and the
configuration. One symbolic request represents all that decode, and two represent all that wait. In
1, at most one request waits behind the one that prefills.
"""

from dataclasses import replace
from typing import Any

import z3

from ...model.scenario import Request, Scenario
from ...model.spyre import documented, scheduler
from ...model.spyre.config import SpyreConfig
from ...model.spyre.forward import Forward
from ...model.spyre.revision import Revision
from ...model.spyre.sound import SOUND
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicRun, bare, holds_on, paths
from ..smt.numbers import Numbers, negated
from ..smt.obligation import Obligation, lemma
from ..smt.terms import boolean, integer
from . import step_lemmas
from .admission_lemmas import BLOCK, request
from .code_lemmas import between_steps
from .symbolic_admission import length
from .symbolic_state import StepConfiguration, SymbolicConfig, any_rest

CHUNK = 512  # tokens


def obligations(block: int | None = BLOCK, revision: Revision = SOUND) -> list[Obligation]:
    step = StepConfiguration(revision, block=BLOCK, chunk=CHUNK)
    return [
        *(make(revision) for make in LEMMAS),
        *between_steps(BLOCK, revision.name),
        *(
            replace(lemma, code=("spyre.model.SpyreModel.step", "spyre.scheduler.step"))
            for lemma in step_lemmas.obligations(step, (0, 1))
            if lemma.name.startswith("one_request_prefills")
        ),
    ]


def rank(config: SpyreConfig, state: State) -> int:
    """Return an upper bound on the steps until the first in line has started."""
    ongoing = state.prefilling
    left = max((sequence.remaining for sequence in state.decoding), default=0)
    if ongoing is None:
        return left
    return left + chunks_left(config, ongoing) + ongoing.max_tokens - 1


def chunks_left(config: SpyreConfig, sequence: Sequence) -> int:
    pad = documented.left_padding_blocks(sequence.prompt, config.chunk_size, config.block_size)
    done = (pad * config.block_size + sequence.computed) // config.chunk_size
    return documented.chunk_count(sequence.prompt, config.chunk_size) - done


def passed_by() -> Scenario:
    """Return a scenario of 2.5.2 with pausing switched off. The first in line is refused because of
    the volume, and others overtake it."""
    lengths = [(1, 313), (1, 326), (1, 448), (128, 375)]
    return Scenario(
        system="spyre",
        revision="2.5.2",
        config={
            "block_size": 64,
            "chunk_size": 64,
            "max_num_seqs": 8,
            "max_model_len": 512,
            "max_batch_tkv": 896,
            "pausing": False,
        },
        requests=tuple(
            Request(id=f"r{number}", arrival=0, prompt=((f"r{number}", tokens),), max_tokens=own)
            for number, (tokens, own) in enumerate(lengths)
        ),
        origin={"engine": "hand", "note": "a refused request is overtaken", "seed": None},
    )


def _config(run: SymbolicRun, numbers: Numbers, requests: list[tuple[Any, Any]]) -> Any:
    """Return an arbitrary configuration with an unbounded pool and without prefix caching. It
    accepts these requests on arrival."""
    longest, slots, limit = (length(numbers, name) for name in ("longest", "slots", "limit"))
    for prompt, tokens in requests:
        numbers.facts += [prompt + tokens - 1 <= longest, prompt + tokens - 1 <= limit]
    numbers.facts += [z3.Not(boolean("pool is bounded")), z3.Not(boolean("prefix caching"))]
    settings = SpyreConfig(
        block_size=BLOCK,
        chunk_size=CHUNK,
        max_num_seqs=run.number(slots),
        max_model_len=run.number(longest),
        max_batch_tkv=run.number(limit),
    )
    return SymbolicConfig(run, settings, integer("num_blocks"))


class _Second:
    def __init__(self, numbers: Numbers) -> None:
        self.lengths = length(numbers, "second prompt"), length(numbers, "second tokens")

    def in_line(self, run: SymbolicRun) -> tuple[Sequence, ...]:
        """Return the second request on one path, and nothing on another."""
        if not run.answer(z3.Bool("second")):
            return ()
        prompt, tokens = (run.number(count) for count in self.lengths)
        return (request(2, prompt=prompt, max_tokens=tokens),)


@lemma("No step is idle while a request waits or prefills.", "spyre.documented.decide")
def waiting_request_prevents_idling(revision: Revision, none_there: int) -> list[Any]:
    """Claim that no step is idle while a newcomer waits or prefills. Another request may decode,
    and a second one may wait behind the newcomer.

    If `none_there` is 1, make the guard's claim instead, which must fail: it also covers steps
    without a newcomer.
    """
    numbers = Numbers()
    prompt, tokens, member, left = (length(numbers, name) for name in ("p", "m", "own", "left"))
    computed = length(numbers, "computed", 0)
    numbers.facts.append(computed < prompt)
    second = _Second(numbers)

    def code(run: SymbolicRun) -> Any:
        config = _config(run, numbers, [(prompt, tokens), (member, left + 1), second.lengths])
        if none_there and run.answer(z3.Bool("none")):
            return revision.decide(config, revision, State(**any_rest(run)))[1].kind
        newcomer = request(
            1,
            prompt=run.number(prompt),
            computed=run.number(computed),
            max_tokens=run.number(tokens),
        )
        beside = request(0, computed=run.number(member), max_tokens=run.number(left + 1))
        members = (beside,) if run.answer(z3.Bool("beside")) else ()
        waits, behind = run.answer(computed == 0), second.in_line(run)
        state = State(
            waiting=(newcomer, *behind) if waits else behind,
            running=members if waits else (newcomer, *members),
            **any_rest(run),
        )
        return revision.decide(config, revision, state)[1].kind

    return holds_on(numbers, paths(numbers, code), lambda kind: z3.BoolVal(kind != "idle"))


@lemma(
    "Only the first in line starts, and none while another request prefills.",
    "spyre.documented.candidate",
)
def only_first_in_line_starts(revision: Revision, second: int) -> list[Any]:
    """Claim that only the first in line starts, whatever the volumetric check answers.

    Two requests wait, a third may prefill, and a fourth may decode. If `second` is 1, make the
    guard's claim instead, which must fail: the claim treats the second request as the first in
    line.
    """
    numbers = Numbers()
    prompts = [length(numbers, "prompt") for _ in range(4)]
    tokens = [length(numbers, "tokens") for _ in range(4)]
    computed = length(numbers, "computed")
    numbers.facts.append(computed < prompts[2])

    def code(run: SymbolicRun) -> Any:
        requests = list(zip(prompts, tokens, strict=True))
        config = _config(run, numbers, requests)
        first, then, ongoing, member = (
            request(number, prompt=run.number(prompt), max_tokens=run.number(most), computed=has)
            for number, (prompt, most), has in zip(
                range(4),
                requests,
                (0, 0, run.number(computed), run.number(prompts[3])),
                strict=True,
            )
        )
        busy = run.answer(z3.Bool("busy"))
        members = (member,) if run.answer(z3.Bool("beside")) else ()
        waiting = (then, first) if second and run.answer(z3.Bool("turned")) else (first, then)
        state = State(
            waiting=waiting,
            running=(ongoing, *members) if busy else members,
            **any_rest(run),
        )
        checked = replace(revision, volume_check=lambda *_: run.answer(z3.Bool("fits")))
        decision = checked.decide(config, checked, state)[1]
        return decision.kind == "prefill" and decision.members[0].id != ("2" if busy else "0")

    return holds_on(numbers, paths(numbers, code), lambda passed: z3.BoolVal(not passed))


@lemma(
    "A decode step leaves a request one fewer decode step to run, and none once it has ended.",
    "spyre.scheduler.complete",
)
def decode_step_brings_end_nearer(revision: Revision, more: int) -> list[Any]:
    """Claim that completing a decode step (`scheduler.complete`) brings the end of its request
    nearer, for each of two that decode."""
    numbers = Numbers()
    names = ("left", "wanted", "generated")
    requests = [[length(numbers, name) for name in names] for _ in range(2)]
    for left, wanted, before in requests:
        numbers.facts += [before < wanted, wanted <= before + left]

    def code(run: SymbolicRun) -> Any:
        config = _config(run, numbers, [])
        decoding = tuple(
            request(
                number,
                computed=9,
                generated=run.number(before),
                max_tokens=run.number(before + left),
                output_len=run.number(wanted),
            )
            for number, (left, wanted, before) in enumerate(requests)
        )
        computed = Forward({"0": 1, "1": 1}, {}, {}, 9)
        state = State(running=decoding, **any_rest(run))
        after, _, _ = scheduler.complete(config, revision, state, computed)
        return [
            (
                int(member.id),
                *map(bare, (member.remaining, member.generated, member.output_len)),
            )
            for member in after.running
        ]

    def fewer(members: list[Any]) -> Any:
        return z3.And(
            [
                z3.And(after >= 1, after <= requests[at][0] - 1 - more, made < ends)
                for at, after, made, ends in members
            ]
        )

    return holds_on(numbers, paths(numbers, code), fewer)


@lemma(
    "A chunk leaves its request exactly one fewer chunk to compute.", "spyre.documented.next_chunk"
)
def chunk_brings_decoding_nearer(revision: Revision, more: int) -> list[Any]:
    numbers = Numbers()
    prompt, computed = length(numbers, "prompt"), length(numbers, "computed", 0)
    numbers.facts.append(computed < prompt)
    config = SpyreConfig(block_size=BLOCK, chunk_size=CHUNK)

    def code(run: SymbolicRun) -> Any:
        has, had = run.number(prompt), run.number(computed)
        before = chunks_left(config, request(0, prompt=has, computed=had))
        _, end = documented.next_chunk(has, had, CHUNK, BLOCK)
        ends = bool(end >= has)
        after = 0 if ends else chunks_left(config, request(0, prompt=has, computed=end))
        return bare(before), bare(after), ends

    def fewer(result: Any) -> Any:
        before, after, ends = result
        return z3.And(after == before - 1 - more, ends or after >= 1)

    return holds_on(numbers, paths(numbers, code), fewer)


@lemma("Each step in which the first in line does not start lowers the rank.")
def every_other_step_lowers_rank(revision: Revision, more: int) -> list[Any]:
    """Claim that a decode step, a chunk and a last chunk each lower the rank."""
    numbers = Numbers()
    chunks, most, will = (length(numbers, name, 0) for name in ("chunks", "most", "will"))
    left = length(numbers, "left", 0)
    before = chunks + most + will
    decoded = z3.Implies(z3.And(most >= 1, left <= most - 1), chunks + left + will < before - more)
    prefilled = z3.Implies(chunks >= 2, chunks - 1 + most + will < before - more)
    joined = z3.Implies(chunks == 1, z3.If(most > will, most, will) < before - more)
    return negated(numbers, z3.And(decoded, prefilled, joined))


@lemma("At rank 0 the first in line starts.", "spyre.documented.candidate")
def first_in_line_starts_at_rank_zero(revision: Revision, beside: int) -> list[Any]:
    """Claim that the first in line starts if no request prefills or decodes. A second request may
    wait behind it.

    If `beside` is 1, make the guard's claim instead, which must fail: one request may decode.
    """
    numbers = Numbers()
    prompt, tokens, own, left = (length(numbers, name) for name in ("p", "m", "own", "left"))
    second = _Second(numbers)

    def code(run: SymbolicRun) -> Any:
        config = _config(run, numbers, [(prompt, tokens), (own, left + 1), second.lengths])
        waits = request(1, prompt=run.number(prompt), max_tokens=run.number(tokens))
        member = request(0, computed=run.number(own), max_tokens=run.number(left + 1))
        decodes = beside and run.answer(z3.Bool("beside"))
        state = State(
            waiting=(waits, *second.in_line(run)),
            running=(member,) if decodes else (),
            **any_rest(run),
        )
        return [member.id for member in revision.decide(config, revision, state)[1].members]

    return holds_on(numbers, paths(numbers, code), lambda ids: z3.BoolVal(ids == ["1"]))


@lemma("No rank exceeds the chunks of max_model_len plus twice its tokens.")
def rank_is_bounded_by_model_length(revision: Revision, less: int) -> list[Any]:
    numbers = Numbers()
    longest, prompt, will, most = (length(numbers, name) for name in ("l", "p", "will", "most"))
    numbers.facts += [prompt + will <= longest, most + 1 <= longest]
    chunks, _ = numbers.split(prompt + CHUNK - 1, CHUNK, None)
    all_chunks, _ = numbers.split(longest + CHUNK - 1, CHUNK, None)
    bound = all_chunks + 2 * longest - less * longest
    return negated(numbers, chunks + will + most <= bound)


LEMMAS = (
    waiting_request_prevents_idling,
    only_first_in_line_starts,
    decode_step_brings_end_nearer,
    chunk_brings_decoding_nearer,
    every_other_step_lowers_rank,
    first_in_line_starts_at_rank_zero,
    rank_is_bounded_by_model_length,
)
