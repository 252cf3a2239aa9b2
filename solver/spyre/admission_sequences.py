"""Search for a sequence of admissions that a formula accepts and that exceeds the limit.

The encoding is in closed form, without unrolled steps. Requests join one after the other, each at a
time counted in decode steps, and at some later time the batch exceeds the limit. Everything in
between follows from the lengths by division, because the tkv of a batch is a function of its
members' lengths.

The schedule is the documented one: one prefill at a time, a decode step between two chunks while
any request decodes, and the check at the last chunk. Each request arrives just in time for its
first chunk. Without interleaving, the chunks of a prompt follow one another without decode steps in
between.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import z3

from ...model.scenario import Request, Scenario
from ...model.spyre import documented, release_2_1_2, release_2_5_2
from ...model.spyre.config import SpyreConfig
from ...model.spyre.documented import chunk_count
from ...model.spyre.model import REVISIONS, SpyreModel
from ...model.spyre.volumetric import FORMULAS, ByFormula, round_up
from ..smt.execution import SymbolicRun, paths
from ..smt.numbers import Numbers, value_in
from .symbolic_admission import (
    Joining,
    Lengths,
    Member,
    accepted_by,
    within_length,
)

# The volumetric formula of each revision. Revisions that pause requests use it only if pausing is
# off.
ADMITS_BY = {
    revision.name: next(
        name for name, own in FORMULAS.items() if ByFormula(own) == revision.volume_check
    )
    for revision in REVISIONS.values()
}
FORMULA_OF_REVISION = {
    name: formula for name, formula in ADMITS_BY.items() if "paused" not in REVISIONS[name].shows
}


@dataclass(frozen=True)
class Setting:
    """The parameters of a question. Lengths are in tokens, and the defaults are Spyre's production
    scale.

    Attributes:
        formula: FORMULA or FORMULA+TOKENS of `model.spyre.volumetric`, or a name of
            `model.spyre.peak.CHECKS`.
        requests: the number of requests that join.
        early_eos: whether requests may end before max_tokens.
        revision: the revision that decides which tkv admission uses.
        interleave: whether a decode step comes between two chunks while a request decodes.
        pausing: whether requests join unchecked, and are paused before a step would exceed the
            limit.
        release_door: whether to consider only requests that pass the releases' check on arrival. It
            rejects more requests than the model's check.
    """

    formula: str
    requests: int
    block: int = 64
    chunk: int = 512
    limit: int = 131_072
    max_model_len: int = 32_768
    early_eos: bool = False
    revision: str = "sound"
    interleave: bool = True
    pausing: bool = False
    release_door: bool = False

    @property
    def pauses(self) -> bool:
        """Whether the revision decides, before each decode step, which requests to pause.

        The releases of such a revision do so even if `pausing` is off. In that case, they check the
        formula as well.
        """
        return "paused" in REVISIONS[self.revision].shows

    @property
    def stale(self) -> bool:
        """Whether admission uses the tkv of the last decode step, which may include requests that
        have left."""
        return REVISIONS[self.revision].current_tkv is release_2_1_2.current_tkv

    @property
    def lengths(self) -> Lengths:
        """Return the block size, and a number of tokens that no projection exceeds."""
        return Lengths(self.block, 2 * self.max_model_len + 4 * self.block)


class Arrival(NamedTuple):
    """One request of a solution.

    `joins` is the time at which it joins, in decode steps since the first prefill. `decodes` is the
    number of decode steps that it runs before it ends.
    """

    prompt: int
    max_tokens: int
    joins: int
    decodes: int


class Joined(NamedTuple):
    """A request whose numbers are symbols."""

    prompt: Any
    max_tokens: Any
    joins: Any
    decodes: Any


class Problem(NamedTuple):
    """Facts for a solver, and the numbers to read from its solution."""

    facts: list[Any]
    arrivals: list[Joined]
    overrun: tuple[Any, ...]
    """The size of the batch and its tkv at the time of the violation; empty for other questions."""


def violation(setting: Setting, beyond: int | None = None) -> Problem:
    """Return the problem in which every request is accepted and batch x tkv exceeds `beyond`
    tokens, by default the limit."""
    threshold = setting.limit if beyond is None else beyond
    numbers = Numbers()
    arrivals = make_arrivals(numbers, setting)
    # Only the batch of all requests can be this large, so all of them are still decoding at that
    # time.
    harmless = largest_harmless(setting, threshold)
    all_requests = setting.requests <= harmless + 1
    for number in range(1, len(arrivals)):
        numbers.facts += admission(
            numbers, setting, arrivals[:number], arrivals[number], all_requests=all_requests
        )
    last = arrivals[-1]
    time = numbers.fresh("time", 1, 2 * setting.max_model_len)
    numbers.facts.append(time > last.joins)
    active = [arrival.decodes >= time - arrival.joins for arrival in arrivals]
    if all_requests:
        numbers.facts += active
        active = [z3.BoolVal(True)] * len(arrivals)
    lengths = [arrival.prompt + (time - arrival.joins) for arrival in arrivals]
    batch = numbers.count(active)
    _, tkv = batch_tkv(numbers, setting, active, lengths)
    # Says that batch x tkv exceeds the bound, but avoids the product.
    numbers.facts.append(
        z3.Or(
            [
                z3.And(batch >= size, tkv > threshold // size)
                for size in range(1, len(arrivals) + 1)
                if size > harmless
            ]
        )
    )
    return Problem(numbers.facts, arrivals, (batch, tkv))


def largest_tkv(setting: Setting) -> int:
    """Return the largest possible tkv, in tokens: the end of the last block of the longest
    request."""
    return int(round_up(setting.max_model_len, setting.block))


def largest_harmless(setting: Setting, volume: int | None = None) -> int:
    """Return the largest number of requests with which batch x tkv can never exceed `volume`
    tokens, by default the limit."""
    return (setting.limit if volume is None else volume) // largest_tkv(setting)


def make_arrivals(numbers: Numbers, setting: Setting) -> list[Joined]:
    """Return requests that the check on arrival accepts. Each joins only after the steps that its
    chunks take.

    Each request decodes at least once, because one that never decodes is never part of a batch and
    only takes up time.
    """
    longest = setting.max_model_len
    arrivals: list[Joined] = []
    for _ in range(setting.requests):
        prompt = numbers.fresh("prompt", 1, longest)
        max_tokens = numbers.fresh("max_tokens", 1, longest)
        decodes = numbers.fresh("decodes", 1, longest)
        joins = numbers.fresh("joins", 0, longest)
        numbers.facts.append(let_in(numbers, setting, prompt, max_tokens))
        ends = max_tokens - 1
        numbers.facts.append(decodes <= ends if setting.early_eos else decodes == ends)
        if arrivals:
            chunks, _ = numbers.split(prompt - 1, setting.chunk, longest // setting.chunk)
            apart = chunks + 1 if setting.interleave else 0
            numbers.facts.append(joins >= arrivals[-1].joins + apart)
        else:
            numbers.facts.append(joins == 0)
        arrivals.append(Joined(prompt, max_tokens, joins, decodes))
    return arrivals


class AtTheDoor(NamedTuple):
    """The fields of a request that the check on arrival reads."""

    prompt_len: Any
    max_tokens: Any


def let_in(numbers: Numbers, setting: Setting, prompt: Any, max_tokens: Any) -> Any:
    """Return whether the check on arrival accepts the request. With `setting.release_door`, the
    releases' check (SPY-R62) must accept it as well."""
    config = SpyreConfig(max_model_len=setting.max_model_len, max_batch_tkv=setting.limit)
    front_door = SpyreModel(config, REVISIONS[setting.revision])

    def refused(run: SymbolicRun) -> bool:
        request = AtTheDoor(run.number(prompt), run.number(max_tokens))
        return front_door.refusal(cast(Request, request)) is not None

    facts = [z3.Not(way.condition) for way in paths(numbers, refused) if way.result]
    if setting.release_door:
        blocks, _ = numbers.split(prompt - 1, setting.block, None)
        facts.append((blocks + 1) * setting.block + max_tokens <= setting.max_model_len)
    return z3.And(facts)


class Meeting(NamedTuple):
    """A newcomer at its last chunk, and the batch that it joins."""

    tkv: Any
    decoding: list[Member]
    newcomer: Joining


def admission(
    numbers: Numbers,
    setting: Setting,
    earlier: list[Joined],
    newcomer: Joined,
    *,
    all_requests: bool,
) -> list[Any]:
    """Return facts that hold if the newcomer is accepted at its last chunk.

    With `all_requests`, every earlier request is still in the batch then.
    """
    met, facts = meeting(numbers, setting, earlier, newcomer, all_requests=all_requests)
    return facts + accepted(numbers, setting, setting.formula, met, setting.limit)


def accepted(
    numbers: Numbers, setting: Setting, formula: str, met: Meeting, limit: int
) -> list[Any]:
    """Return facts that hold if and only if the volumetric check accepts."""
    return accepted_by(formula, numbers, setting.lengths, *met, limit)


def meeting(
    numbers: Numbers,
    setting: Setting,
    earlier: list[Joined],
    newcomer: Joined,
    *,
    all_requests: bool,
) -> tuple[Meeting, list[Any]]:
    """Return the batch that the newcomer joins, and facts about the batch: at least one request
    decodes, and every member has room within max_model_len."""
    ages = [newcomer.joins - request.joins for request in earlier]
    # A request that computes its last token in a decode step has left before the next chunk is
    # decided.
    present = [
        z3.BoolVal(True) if all_requests else request.decodes > age
        for request, age in zip(earlier, ages, strict=True)
    ]
    computed = [request.prompt + age for request, age in zip(earlier, ages, strict=True)]
    own, tkv = batch_tkv(numbers, setting, present, computed)
    if setting.stale and not all_requests:
        decoded = [request.decodes >= age for request, age in zip(earlier, ages, strict=True)]
        _, tkv = batch_tkv(numbers, setting, decoded, computed)
    decoding = [
        Member(still_runs, tokens, request.max_tokens - 1 - age, mine, request.prompt)
        for still_runs, tokens, request, age, mine in zip(
            present, computed, earlier, ages, own, strict=True
        )
    ]
    joining = Joining(newcomer.prompt, newcomer.max_tokens - 1)
    # While a request decodes, chunks alternate with decode steps, and SPY-R41 is checked.
    batch = [(member.present, member.computed, member.remaining) for member in decoding]
    within = within_length(numbers, setting.lengths, tkv, batch, joining, setting.max_model_len)
    revision = REVISIONS[setting.revision]
    keeps_length = revision.fits_model_length is documented.fits_model_length
    facts = [z3.Or(present), *within] if keeps_length else [z3.Or(present)]
    if revision.tkv_after_chunk is release_2_5_2.tkv_after_chunk and not setting.interleave:
        # The last forward was the prefill of the request that joined at the same time.
        last = earlier[-1]
        tkv = z3.If(last.joins == newcomer.joins, last.prompt, tkv)
    return Meeting(tkv, decoding, joining), facts


def batch_tkv(
    numbers: Numbers, setting: Setting, present: list[Any], lengths: list[Any]
) -> tuple[list[Any], Any]:
    """Return the tkv of each member, and that of the batch. The longest member determines the width
    in blocks."""
    most = 4 * setting.max_model_len // setting.block
    befores, offsets = [], []
    for is_present, tokens in zip(present, lengths, strict=True):
        # An absent request may have any length that is not negative.
        before, rest = numbers.split(tokens - 1, setting.block, most)
        befores.append((is_present, before))
        offsets.append((is_present, rest + 1))
    widest = numbers.largest_of("widest", befores)
    own = [widest * setting.block + offset for _, offset in offsets]
    return own, widest * setting.block + numbers.largest_of("offset", offsets)


def solution(problem: Problem, model: z3.ModelRef) -> list[Arrival]:
    return [
        Arrival(*(value_in(model, number) for number in arrival)) for arrival in problem.arrivals
    ]


def short_and_early(setting: Setting, arrivals: list[Joined]) -> list[Any]:
    """Return facts that narrow the search: no prompt is longer than two blocks, and every request
    joins within as many decode steps as four blocks have tokens.

    Most counterexamples begin like this.
    """
    facts: list[Any] = []
    for arrival in arrivals:
        facts += [arrival.prompt <= 2 * setting.block, arrival.joins <= 4 * setting.block]
    return facts


def to_scenario(setting: Setting, arrivals: list[Arrival], revision: str) -> Scenario:
    """Return a scenario in which each request arrives just in time for its first chunk."""
    requests, chunks_before = [], 0
    for number, arrival in enumerate(arrivals):
        chunks = chunk_count(arrival.prompt, setting.chunk)
        # Chunk j of `chunks` runs at time joins - chunks + j, between two decode steps; a step
        # number counts the decode steps, and the chunks of every earlier request.
        first = arrival.joins - chunks + 1 if setting.interleave else arrival.joins
        step = 0 if number == 0 else first + chunks_before
        chunks_before += chunks
        requests.append(
            Request(
                id=f"r{number}",
                arrival=step,
                prompt=((f"r{number}", arrival.prompt),),
                max_tokens=arrival.max_tokens,
                output_len=arrival.decodes + 1,
            )
        )
    return Scenario(
        system="spyre",
        revision=revision,
        config={
            "block_size": setting.block,
            "chunk_size": setting.chunk,
            "max_num_seqs": max(32, setting.requests),
            "max_model_len": setting.max_model_len,
            "max_batch_tkv": setting.limit,
            **({} if setting.interleave else {"interleave": False}),
            **({"pausing": False} if "paused" in REVISIONS[revision].shows else {}),
        },
        requests=tuple(requests),
        origin={"engine": "z3", "note": f"formula {setting.formula}", "seed": None},
    )
