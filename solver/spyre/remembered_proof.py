"""Why the tkv that admission goes by is no less than any member's length.

The lemmas on the formulas ask no more of it (`volumetric_proof`, 1). Some revisions go by the
batch as it is, others by what the last forward reported (`release_2_1_2.current_tkv`), which counts
requests that have left since, or the prompt of another.

The invariant of the scheduler's state, of every member of the decode batch: it is no longer than
the remembered tkv, which is the runner's own; or, with interleaving, the last step was a prefill,
and no chunk of another runs now. It holds of the empty state, and every step keeps it:

1. `decode_keeps`: the tkv of a decode step is no less than any length in it, and each member of the
   batch has taken part in the last decode step or been prefilled since.
2. `chunk_keeps` (asked without interleaving, where a chunk can follow another): what a chunk
   reports is no less than the length of a member, and than the prompt if it ends it.
3. `idle_forgets`: a step is idle, which sets the tkv to 0, only while no request decodes.
4. An abort, or a request that finishes, only takes members away.

So where a request is asked about:

5. `asked`: it joins by the answer of the formula, asked by a tkv that is no less than any member's
   length.
6. `goes_on` (without interleaving, in releases that ask at the first chunk): from its first chunk
   to its last the batch is the same, since no other step comes between.
7. `joins`: with whatever prefix in the cache, a chunk ends the prompt exactly if it was asked about
   as the last one.

Each of them runs the model's code on symbols (`solver.execution`); a member stands for all of them,
and with it the longest.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import z3

from ...model.spyre import documented, release_2_1_2
from ...model.spyre.config import SpyreConfig
from ...model.spyre.revision import Revision
from ...model.spyre.state import State
from ...model.spyre.volumetric import ByFormula, Projection
from ..execution import Run, Truth, bare, paths
from ..numbers import Numbers
from ..obligation import Obligation
from .admission_code import BLOCK, holds_on, request
from .symbols import length

CHUNK = 512  # tokens


def obligations(revision: Revision, *, interleave: bool) -> list[Obligation]:
    """What has to be shown for a revision, in the argument's order; blocks of 64, chunks of 512."""
    names = ["asked", "joins"]
    if checks_once(revision) and not interleave:
        names.insert(1, "goes_on")
    if revision.current_tkv is release_2_1_2.current_tkv:
        names = ["decode_keeps", *["chunk_keeps"] * (not interleave), "idle_forgets", *names]
    setting = Setting(revision, interleave)
    return [
        Obligation(name, sentence, partial(lemma, setting, 0), partial(lemma, setting, 1))
        for name, (sentence, lemma) in LEMMAS.items()
        if name in names
    ]


def checks_once(revision: Revision) -> bool:
    """Whether, without interleaving, the first chunk is held to the last-chunk constraints."""
    return revision.is_held_to_last_chunk is release_2_1_2.is_held_to_last_chunk


class Setting(NamedTuple):
    """What the lemmas are about."""

    revision: Revision
    interleave: bool


class Beside(NamedTuple):
    """A newcomer beside a member of the decode batch, in symbols: the member's tokens and those of
    its prompt, the newcomer's prompt and what of it is computed, the tkv that is remembered."""

    own: Any
    had: Any
    prompt: Any
    computed: Any
    remembered: Any
    was_prefill: Any
    slots: Any
    longest: Any
    tokens: Any

    @classmethod
    def make(cls, numbers: Numbers) -> "Beside":
        """Any such pair."""
        own, had, prompt = (length(numbers, name) for name in ("own", "had", "prompt"))
        computed, remembered = (length(numbers, name, 0) for name in ("computed", "remembered"))
        numbers.facts += [had <= own, computed < prompt]
        others = (length(numbers, name) for name in ("slots", "longest", "tokens"))
        return cls(own, had, prompt, computed, remembered, z3.Bool("was prefill"), *others)

    def state(self, run: Run) -> State:
        """The scheduler's state: the newcomer waits until its first chunk, and then runs."""
        member, newcomer = (
            request(number, computed=run.number(has), prompt=run.number(of), max_tokens=left)
            for number, has, of, left in (
                (0, self.own, self.had, run.number(self.tokens)),
                (1, self.computed, self.prompt, 1),
            )
        )
        waits = bool(Truth(run, self.computed == 0))
        return State(
            waiting=(newcomer,) if waits else (),
            running=(member,) if waits else (newcomer, member),
            last_step_was_prefill=cast(bool, Truth(run, self.was_prefill)),
            tkv=cast(int, run.number(self.remembered)),
            runner_tkv=cast(int, run.number(self.remembered)),
        )

    def config(self, run: Run, interleave: bool, limit: Any) -> SpyreConfig:
        """Any number of slots, any max_model_len."""
        return SpyreConfig(
            block_size=BLOCK,
            chunk_size=CHUNK,
            max_num_seqs=cast(int, run.number(self.slots)),
            max_model_len=cast(int, run.number(self.longest)),
            max_batch_tkv=limit,
            interleave=interleave,
            pausing=False,
        )


def _decode_keeps(setting: Setting, more: int) -> list[Any]:
    """Two stand for all: a member and the longest; more of them only have larger offsets."""
    numbers = Numbers()
    own, longest = length(numbers, "own"), length(numbers, "longest")

    def code(run: Run) -> Any:
        return documented.max_tkv([cast(int, run.number(one)) for one in (own, longest)], BLOCK)

    return holds_on(numbers, list(paths(numbers, code)), lambda reached: reached >= own + more)


def _chunk_keeps(setting: Setting, more: int) -> list[Any]:
    """A chunk of a newcomer beside a member, or beside none."""
    numbers = Numbers()
    pair, ends, none_there = Beside.make(numbers), z3.Bool("ends"), z3.Bool("nothing decodes")
    numbers.facts.append(z3.Or(none_there, pair.own <= pair.remembered))

    def code(run: Run) -> Any:
        config, state = pair.config(run, setting.interleave, 1), pair.state(run)
        newcomer = [*state.waiting, *state.running][0]
        alone = bool(Truth(run, none_there))
        if alone:
            state = state._replace(running=state.running[:-1])
        last = bool(Truth(run, ends))
        after = newcomer._replace(computed=newcomer.prompt) if last else newcomer
        running = (after, *state.decoding)
        reported = setting.revision.tkv_after_chunk(config, state, newcomer, running)
        return bare(reported), alone, last

    def covers(result: Any) -> Any:
        reported, alone, last = result
        lengths = [pair.own] * (not alone) + [pair.prompt] * last
        return z3.And([reported >= one + more for one in lengths])

    return holds_on(numbers, list(paths(numbers, code)), covers)


def _idle_forgets(setting: Setting, gone: int) -> list[Any]:
    """`gone`: the member may have left, and no request may be there."""
    numbers = Numbers()
    pair, limit, none_runs = Beside.make(numbers), length(numbers, "limit"), z3.Bool("none_runs")
    numbers.facts.append(pair.own + 1 <= limit)  # alone it is within the limit, by the front door
    numbers.facts += [z3.Not(none_runs)] if not gone else []

    def code(run: Run) -> Any:
        config = pair.config(run, setting.interleave, run.number(limit))
        state = State() if Truth(run, none_runs) else pair.state(run)
        _, decision = setting.revision.decide(config, setting.revision, state)
        return decision.kind

    return holds_on(numbers, list(paths(numbers, code)), lambda kind: z3.BoolVal(kind != "idle"))


def _asked(setting: Setting, more: int) -> list[Any]:
    """The next chunk of a newcomer, in a state that keeps the invariant. The formula that is put in
    says yes or no as it likes."""
    numbers = Numbers()
    pair, says = Beside.make(numbers), z3.Bool("says")
    apart = pair.was_prefill if setting.interleave else z3.BoolVal(False)
    numbers.facts.append(z3.Or(apart, pair.own <= pair.remembered))
    term = z3.If(says, numbers.value(1), numbers.value(2))  # twice that is at most 2, or is not

    def code(run: Run) -> Any:
        asked: list[Any] = []

        def formula(at: Any, *_: Any) -> Projection:
            asked.append(z3.And(says, bare(at) >= pair.own + more))
            each = cast(int, run.number(term))
            return Projection(each, [each])

        config, state = pair.config(run, setting.interleave, 2), pair.state(run)
        newcomer = [*state.waiting, *state.running][0]
        revision = replace(setting.revision, volume_check=ByFormula(formula))
        goes = documented.may_prefill(config, revision, state, newcomer)
        if checks_once(setting.revision) and not setting.interleave:
            joins = bool(state.waiting)
        else:
            joins = bool(documented.is_last_chunk(newcomer.prompt, newcomer.computed, CHUNK))
        return bool(goes) and joins, asked

    def right(result: Any) -> Any:
        joins, asked = result
        once = asked[0] if len(asked) == 1 else z3.BoolVal(False)
        return z3.Or(z3.BoolVal(not joins), once)

    return holds_on(numbers, list(paths(numbers, code)), right)


def _goes_on(setting: Setting, paused: int) -> list[Any]:
    """`paused`: another request may be paused."""
    numbers = Numbers()
    pair = Beside.make(numbers)
    numbers.facts.append(pair.computed >= 1)
    pauses = z3.Bool("pauses")
    numbers.facts += [z3.Not(pauses)] if not paused else []

    def code(run: Run) -> Any:
        config, state = pair.config(run, setting.interleave, 2), pair.state(run)
        if Truth(run, pauses):
            state = state._replace(paused=(request(2),))
        _, decision = setting.revision.decide(config, setting.revision, state)
        return decision.kind == "prefill" and decision.members[0].id == "1"

    return holds_on(numbers, list(paths(numbers, code)), lambda goes_on: z3.BoolVal(goes_on))


def _joins(setting: Setting, more: int) -> list[Any]:
    """Any number of tokens is computed or found, any of them found."""
    numbers = Numbers()
    prompt = length(numbers, "prompt")
    computed, found = (length(numbers, name, 0) for name in ("computed", "found"))
    numbers.facts += [found <= computed, computed < prompt]

    def code(run: Run) -> Any:
        tokens, has = (cast(int, run.number(one)) for one in (prompt, computed))
        one = request(0, prompt=tokens, computed=has, prefix_hit=run.number(found))
        _, end = documented.next_chunk(tokens, has, CHUNK, BLOCK)
        config = SpyreConfig(block_size=BLOCK, chunk_size=CHUNK, prefix_caching=True)
        counted, _ = setting.revision.progress(config, one, end)
        return bool(counted >= tokens), bool(documented.is_last_chunk(tokens + more, has, CHUNK))

    def asked(result: Any) -> Any:
        ends, last = result
        return z3.BoolVal(last or not ends)

    return holds_on(numbers, list(paths(numbers, code)), asked)


Lemma = Callable[[Setting, int], list[Any]]
LEMMAS: dict[str, tuple[str, Lemma]] = {
    "decode_keeps": (
        "The tkv of a decode step is no less than the length of any member.",
        _decode_keeps,
    ),
    "chunk_keeps": (
        "What a chunk reports as tkv is no less than the length of any member.",
        _chunk_keeps,
    ),
    "idle_forgets": ("A step is idle only while no request decodes.", _idle_forgets),
    "asked": (
        "A request joins by the formula, asked by a tkv no less than any member's length.",
        _asked,
    ),
    "goes_on": ("From the first chunk of a request to its last no other step comes.", _goes_on),
    "joins": ("A chunk that ends the prompt was asked about as the last one.", _joins),
}
