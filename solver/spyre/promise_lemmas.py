"""Lemmas on the code, run on symbols: no step promises more blocks than are free (SPY-R50).

A whole step keeps the invariant of `reservation_lemmas`, and so does an abort. The step has one
request, and perhaps another that joins it; any number of blocks may be promised to others.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import z3

from ...model.errors import ReleaseEnded
from ...model.pool import Pool, free_blocks
from ...model.spyre import blocks as pool_of
from ...model.spyre import documented, scheduler
from ...model.spyre.model import REVISIONS
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicRun, Truth, bare, holds_on, paths, stubbed
from ..smt.numbers import Numbers
from ..smt.obligation import Obligation
from .code_lemmas import BLOCK, HUGE, both, config_of, door, make_request
from .symbolic_admission import Lengths, blocks, length

KINDS = {
    "admits_0": "When a request joins another",
    "admits_shared": "When it shares a block",
    "admits_idle": "When it finds a block that no request holds",
    "prefills": "When a request prefills",
    "decodes": "When a request decodes",
}
FEW_BLOCKS = 2  # the blocks of a chunk, each of which the code hands out


def obligations(block: int | None = None) -> list[Obligation]:
    size = block or BLOCK
    step = ("spyre.scheduler.step", "spyre.blocks.hold")
    joins = ("spyre.blocks.fits_pool", "spyre.blocks.reserved", "spyre.blocks.admit")
    at_end = {
        "sound": "spyre.blocks.blocks_at_end",
        "2.5.2": "spyre.release_2_5_2.blocks_at_end",
    }
    lost = {"sound": "spyre.blocks.lost_blocks", "2.5.2": "spyre.release_2_5_2.lost_blocks"}
    lemmas = [door(size)]
    for name, code in at_end.items():
        lemmas += [
            *(
                Obligation(
                    f"step_keeps_promises_covered_{kind}_{name}",
                    f"{sentence}, a step promises no more blocks than are free (revision {name}).",
                    *both(_step_keeps_promises, size, name, kind),
                    (*step, *((code, *joins) if kind.startswith("admits") else ())),
                )
                for kind, sentence in KINDS.items()
            ),
            Obligation(
                f"code_keeps_promises_covered_at_abort_{name}",
                f"An abort leaves no more blocks promised than are free (revision {name}).",
                *both(_abort_keeps_promises, size, name),
                ("spyre.scheduler.abort", lost[name]),
            ),
        ]
    return lemmas


class Holder(NamedTuple):
    """A request in symbols that holds `held` blocks and is decoding or in its prefill."""

    prompt: Any
    tokens: Any
    ends: Any
    computed: Any
    held: int

    @classmethod
    def make(cls, numbers: Numbers, block: int, held: int, *, decodes: bool) -> "Holder":
        prompt, tokens = length(numbers, "prompt"), length(numbers, "tokens")
        ends, computed = length(numbers, "ends"), length(numbers, "computed", 0)
        numbers.facts += [ends <= tokens, computed <= held * block]
        if held:
            numbers.facts.append(computed > (held - 1) * block)
        if decodes:
            numbers.facts += [prompt <= computed, computed - prompt + 1 < ends]
        else:
            numbers.facts += [computed < prompt, prompt <= (held + FEW_BLOCKS) * block]
        return cls(prompt, tokens, ends, computed, held)

    def need(self, numbers: Numbers, block: int, last_token: int) -> Any:
        """Return the number of blocks that the request may need in all; `last_token` is 1 if room
        for its last token counts as well."""
        return blocks(numbers, Lengths(block, None), self.prompt + self.tokens - 1 + last_token)

    def of(self, run: SymbolicRun, name: str, given: tuple[int, ...]) -> Sequence:
        decodes = z3.If(self.computed >= self.prompt, self.computed - self.prompt + 1, 0)
        return make_request(
            run,
            name,
            prompt=self.prompt,
            max_tokens=self.tokens,
            output_len=self.ends,
            computed=self.computed,
            generated=decodes,
            blocks=given,
        )


def _promising(name: str) -> tuple[Any, int]:
    """Return the revision without its other constraints, and for how many extra tokens it promises
    blocks."""
    yes: Any = {"volume_check": lambda *_: True, "fits_model_length": lambda *_: True}
    return replace(REVISIONS[name], **yes), int(name == "2.5.2")


def _covered(
    numbers: Numbers, block: int, last_token: int, holders: dict[str, Holder]
) -> Callable[[Any], Any]:
    """Return the claim: no request exceeds its need, and all promised blocks are free.

    That includes the blocks promised to aborted requests.
    """
    need = {name: request.need(numbers, block, last_token) for name, request in holders.items()}

    def covered(result: Any) -> Any:
        if result is None:
            return z3.BoolVal(False)  # no block was free
        held, free, lost = result
        promised = z3.Sum([lost, *(need[name] - count for name, count in held.items())])
        return z3.And(promised <= free, *(count <= need[name] for name, count in held.items()))

    return covered


def _after(state: State) -> Any:
    held = {request.id: len(request.blocks) for request in state.admitted}
    free: Any = free_blocks(state.pool)
    return held, bare(free), bare(state.lost_blocks)


def _step_keeps_promises(block: int, name: str, kind: str, more: int) -> list[Any]:
    """Claim that a step keeps the promises.

    With `more`, one more block is promised than is free before the step.
    """
    numbers = Numbers()
    revision, last_token = _promising(name)
    free, others = length(numbers, "free", 0), length(numbers, "others", 0)
    member = Holder.make(numbers, block, 1, decodes=kind != "prefills")
    holders = {"0": member}
    if kind.startswith("admits"):
        holders["1"] = Holder.make(numbers, block, 0, decodes=False)
    known = [request for request in holders.values() if request.held]
    promised = z3.Sum(
        [others, *(request.need(numbers, block, last_token) - 1 for request in known)]
    )
    numbers.facts.append(promised <= free + more)
    numbers.facts += [request.need(numbers, block, last_token) >= 1 for request in known]
    hit = {"admits_shared": (1,), "admits_idle": (9,)}.get(kind, ())
    if hit:
        # The block of its last token is never a hit.
        numbers.facts += [holders["1"].prompt > block, free >= (kind == "admits_idle")]

    def code(run: SymbolicRun) -> Any:
        config = config_of(block, FEW_BLOCKS, num_blocks=HUGE)
        idle = tuple((block, None) for block in hit) if kind == "admits_idle" else ()
        size = cast(int, run.number(free - len(idle) + 1))
        running = tuple(
            request.of(run, n, (int(n) + 1,)) for n, request in holders.items() if request.held
        )
        waiting = tuple(
            request.of(run, n, ()) for n, request in holders.items() if not request.held
        )
        state = State(
            waiting=waiting,
            running=running,
            pool=Pool(size, (), 2, idle),
            lost_blocks=cast(int, run.number(others)),
        )
        try:
            with (
                stubbed(pool_of, prefix_hit=lambda *_: hit),
                stubbed(documented, written=_nothing),
                stubbed(scheduler, observe=_nothing),
            ):
                after, _ = scheduler.step(config, revision, state)
        except ReleaseEnded:
            return None
        return _after(after)

    return holds_on(
        numbers, list(paths(numbers, code)), _covered(numbers, block, last_token, holders)
    )


def _nothing(*_: Any) -> Any:
    return {}


def _abort_keeps_promises(block: int, name: str, more: int) -> list[Any]:
    """Claim that an abort keeps the promises; a request holds two blocks, one of them perhaps
    shared.

    With `more`, three more blocks are promised than are free.
    """
    numbers = Numbers()
    revision, last_token = _promising(name)
    free, others = length(numbers, "free", 0), length(numbers, "others", 0)
    holders = {
        "0": Holder.make(numbers, block, 2, decodes=True),
        "1": Holder.make(numbers, block, 1, decodes=True),
    }
    promised = [
        request.need(numbers, block, last_token) - request.held for request in holders.values()
    ]
    numbers.facts.append(z3.Sum([others, *promised]) <= free + 3 * more)
    numbers.facts += [promise >= 0 for promise in promised]
    # An aborted request gives back two blocks, or one if it shares the other.
    shares, inside = z3.Bool("shares"), z3.Bool("inside")

    def code(run: SymbolicRun) -> Any:
        shared = bool(Truth(run, shares))
        config = config_of(block, FEW_BLOCKS, num_blocks=HUGE, prefix_caching=shared)
        state = State(
            running=(
                holders["0"].of(run, "0", (1, 2)),
                holders["1"].of(run, "1", (1 if shared else 3,)),
            ),
            pool=Pool(cast(int, run.number(free + 3)), (), 4),
            lost_blocks=cast(int, run.number(others)),
        )
        within = bool(Truth(run, inside))
        after = scheduler.abort(config, revision, state, "0", inside=within)
        return _after(after)

    claim = _covered(numbers, block, last_token, holders)
    return holds_on(numbers, list(paths(numbers, code)), claim)
