"""Why a release that pauses keeps the limit (SPY-R07), whatever joins: `pause_and_resume`
of `model.spyre.release_2_5_2`.

Before each decode step `pause_and_resume` checks of one request after the other whether the batch
that stays would be within the limit with it, by the tkv that the step will have.

1. `turn`: after each request that is checked, all that stay fit together. The first request
   stands for all that stay before it.
2. `rectangle`: where they fit, each request's tkv in the next step fits as many times.

So what stays is within the limit, however many there are. `stay` runs the whole code on symbols
with a few requests, some of which were paused before.

`no_pause`: no request is paused while the whole batch is within the limit. So a configuration in
which admission keeps the limit pauses no request.
"""

from functools import partial
from itertools import product
from typing import Any, cast

import z3

from ...model.spyre import documented, release_2_5_2
from ...model.spyre.config import SpyreConfig
from ...model.spyre.state import Sequence as Request
from ...model.spyre.state import State
from ..execution import Run, Truth, bare, paths
from ..numbers import Numbers
from ..obligation import Obligation
from .admission_code import BLOCK, holds_on, request
from .formulas import Lengths
from .symbols import blocks, length, own_tkv


def any_number() -> list[Obligation]:
    """For any number of requests, for blocks of 64."""
    return [
        Obligation(
            "turn",
            "After each request that is checked, all that stay fit together.",
            partial(_turn, 0),
            partial(_turn, 1),
        ),
        Obligation(
            "rectangle",
            "No request's tkv is beyond the one that is compared with the limit.",
            partial(_rectangle, 0),
            partial(_rectangle, 1),
        ),
    ]


def few() -> list[Obligation]:
    """How many decode and how many are paused is in the names."""
    return [
        *(
            Obligation(
                f"stay_{decoding}_{paused}",
                f"All that stay fit together (decoding: {decoding}, paused: {paused}).",
                partial(_stay, decoding, paused, 0),
                partial(_stay, decoding, paused, 1),
            )
            for decoding, paused in product((1, 2), (0, 1))
        ),
        no_pause(),
    ]


def no_pause() -> Obligation:
    """For configurations in which requests join by the formula."""
    return Obligation(
        "no_pause",
        "A batch that is within the limit in the next step is not paused.",
        partial(_no_pause, 0),
        partial(_no_pause, 1),
    )


class _Settled:
    """A step that settles which requests decode, of requests with any tokens."""

    def __init__(self, decoding: int, paused: int) -> None:
        self.numbers = Numbers()
        self.limit = length(self.numbers, "limit")
        self.tokens = [length(self.numbers, "tokens") for _ in range(decoding + paused)]
        self.decoding = decoding
        self.paths = list(paths(self.numbers, self._code))

    def _code(self, run: Run) -> Any:
        config = SpyreConfig(block_size=BLOCK, max_batch_tkv=cast(int, run.number(self.limit)))
        all_requests = tuple(
            request(number, computed=run.number(tokens), max_tokens=9)
            for number, tokens in enumerate(self.tokens)
        )
        state = State(running=all_requests[: self.decoding], paused=all_requests[self.decoding :])
        after = release_2_5_2.pause_and_resume(config, state)
        return [int(one.id) for one in after.decoding], len(after.paused)

    def volume_within(self, members: list[int], more: int) -> Any:
        """The next step of these requests is within the limit."""
        lengths, numbers = Lengths(BLOCK, None), self.numbers
        after = [self.tokens[number] + 1 for number in members]
        widest = numbers.largest([blocks(numbers, lengths, one) for one in after])
        reached = [own_tkv(numbers, lengths, one, widest) for one in after]
        return z3.And([len(members) * own + more <= self.limit for own in reached])


def _turn(all_asked: int) -> list[Any]:
    """`settled`, from those that stay so far, whatever fits; `all_asked`: those paused fit, too."""
    numbers = Numbers()

    def code(run: Run) -> Any:
        answers: list[tuple[list[str], Any]] = []

        def fits(batch: list[Request]) -> bool:
            answers.append(([one.id for one in batch], z3.Bool(f"fits {len(answers)}")))
            return bool(Truth(run, answers[-1][1]))

        stay, paused = release_2_5_2.settled([request(0), request(1)], fits)
        return [one.id for one in [*stay, *(paused if all_asked else [])]], answers

    def fit_together(result: Any) -> Any:
        stay, answers = result
        said = [answer for batch, answer in answers if batch == stay]
        return z3.Or(said) if stay else z3.BoolVal(True)

    return holds_on(numbers, list(paths(numbers, code)), fit_together)


def _rectangle(less: int) -> list[Any]:
    """`documented.rectangle_tkv`, beside any member."""
    numbers, lengths = Numbers(), Lengths(BLOCK, None)
    longest, tokens, filled = (length(numbers, name) for name in ("longest", "tokens", "filled"))
    own = own_tkv(numbers, lengths, tokens, blocks(numbers, lengths, longest))
    last = tokens - (blocks(numbers, lengths, tokens) - 1) * BLOCK
    numbers.facts += [tokens <= longest, last <= filled, filled <= BLOCK]

    def code(run: Run) -> Any:
        return bare(
            documented.rectangle_tkv(
                cast(int, run.number(longest)), cast(int, run.number(filled)), BLOCK
            )
        )

    return holds_on(numbers, list(paths(numbers, code)), lambda asked: own <= asked - less)


def _stay(decoding: int, paused: int, more: int) -> list[Any]:
    settled = _Settled(decoding, paused)
    return holds_on(
        settled.numbers,
        settled.paths,
        lambda result: settled.volume_within(result[0], more) if result[0] else z3.BoolVal(True),
    )


def _no_pause(more: int) -> list[Any]:
    settled = _Settled(2, 0)
    fits = settled.volume_within([0, 1], -more)
    return holds_on(
        settled.numbers,
        settled.paths,
        lambda result: z3.Or(z3.Not(fits), z3.BoolVal(not result[1])),
    )
