"""The forward-looking volumetric check, one pure function per published formula.

Source: Spyre scheduling page, "Volumetric constraint"; releases as named. Each formula projects
the largest tkv that the newcomer and every decoding request can still reach; `accepts` then walks
the projections. Which of them keep the limit is not decided here: most do not.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .padding import blocks_for
from .tkv import realigned


class Decoding(NamedTuple):
    """A member of the decode batch: tokens computed, decode steps left at most, its own tkv, and
    those of its prompt, which the oldest formula alone asks for."""

    computed: int
    remaining: int
    tkv: int
    prompt: int = 0


class Newcomer(NamedTuple):
    """The request that asks to join: tokens of its prompt, tokens it may generate."""

    prompt: int
    max_tokens: int

    @property
    def remaining(self) -> int:
        """Decode steps it can run: its first token comes from the last prefill chunk."""
        return self.max_tokens - 1


class Projection(NamedTuple):
    """Largest tkv that each can still reach, in tokens; `to_the_end`: the walk goes on to those
    who outlive the newcomer."""

    newcomer: int
    decoding: list[int]
    to_the_end: bool = False


# (max-tkv of the batch, its members, the newcomer, block size) -> Projection
Formula = Callable[[int, Sequence[Decoding], Newcomer, int], Projection]
# (members, the newcomer, block size, limit) -> may it join? For checks that project nothing.
Check = Callable[[Sequence[Decoding], Newcomer, int, int], bool]


def accepts(projection: Projection, limit: int) -> bool:
    """Walk the members as they are projected to finish, the batch shrinking by one each time.

    Members that outlive the newcomer are not looked at: they were when they joined.
    """
    if projection.to_the_end:
        all_requests = sorted([*projection.decoding, projection.newcomer], reverse=True)
        return all(batch * tkv <= limit for batch, tkv in enumerate(all_requests, 1))
    batch = len(projection.decoding) + 1
    for tkv in sorted(projection.decoding):
        if projection.newcomer <= tkv:
            return batch * projection.newcomer <= limit
        if batch * tkv > limit:
            return False
        batch -= 1
    return True


def document_own_tkv(
    tkv: int,
    decoding: Sequence[Decoding],
    newcomer: Newcomer,
    block_size: int,
) -> Projection:
    """The document, "current tkv" read as each request's own tkv before the newcomer joins."""
    return Projection(
        newcomer.prompt + newcomer.remaining,
        [member.tkv + member.remaining + block_size for member in decoding],
    )


def document_realigned(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """The document, "current tkv" read as each request's tkv once the newcomer has joined.

    The only reading that explains the document's own example (426 x 4 = 1704).
    """
    width = max(tkv, newcomer.prompt) // block_size
    return Projection(
        realigned(newcomer.prompt, width, block_size) + newcomer.remaining,
        [
            realigned(member.computed, width, block_size) + member.remaining + block_size
            for member in decoding
        ],
    )


def document_max_tkv(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """The document, "current tkv" read as the batch's max-tkv, of which the newcomer has none."""
    return Projection(
        newcomer.prompt + newcomer.remaining,
        [tkv + member.remaining + block_size for member in decoding],
    )


def document_figure(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """What the page's own admission figure was drawn by: neither the page's words nor a release.

    A decoding request goes by its length at the end, its last token counted, and one block more;
    or, if that is more, by the blocks that the newcomer's prompt pads it with.
    """
    prompt_blocks = blocks_for(newcomer.prompt, block_size)
    return Projection(
        round_up(newcomer.prompt + newcomer.max_tokens, block_size),
        [
            max(
                round_up(end, block_size) + block_size,
                max(prompt_blocks - blocks_for(member.computed + 1, block_size), 0) * block_size
                + end,
            )
            for member in decoding
            for end in [member.computed + member.remaining + 1]
        ],
        to_the_end=True,
    )


def release_0_8_0(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """vllm-spyre 0.7.0 to 0.8.0: what decoding requests may still generate is short by a prompt."""
    base = tkv + round_up(max(newcomer.prompt - tkv, 0), block_size)
    return Projection(
        base + newcomer.remaining,
        [base + member.remaining - member.prompt for member in decoding],
    )


def release_1_10_0(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """vllm-spyre 1.3.0 to 1.10.0: no request gets a block for a realignment."""
    width = max(tkv, newcomer.prompt) // block_size
    return Projection(
        realigned(newcomer.prompt, width, block_size) + newcomer.remaining,
        [realigned(member.computed, width, block_size) + member.remaining for member in decoding],
    )


def release_2_0_1(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """sendnn-inference 2.0.0 and 2.0.1: decoding requests share a base, the newcomer does not."""
    base = max(tkv, newcomer.prompt)
    return Projection(
        realigned(newcomer.prompt, base // block_size, block_size) + newcomer.remaining,
        [base + member.remaining + block_size for member in decoding],
    )


def release_2_1_0(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """sendnn-inference 2.1.0: rounded up to whole blocks, the extra block gone."""
    base = max(tkv, newcomer.prompt)
    own = realigned(newcomer.prompt, base // block_size, block_size)
    return Projection(
        round_up(own + newcomer.remaining, block_size),
        [round_up(base + member.remaining, block_size) for member in decoding],
    )


def release_2_1_2(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """sendnn-inference 2.1.1 and later: rounded up, and one block more for every request. Sound."""
    rounded = release_2_1_0(tkv, decoding, newcomer, block_size)
    return Projection(
        rounded.newcomer + block_size, [member + block_size for member in rounded.decoding]
    )


def common_base(
    tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
) -> Projection:
    """Unreleased: projects every request from max(tkv, prompt), rounded up. Sound, no extra
    block."""
    base = max(tkv, newcomer.prompt)
    return Projection(
        round_up(base + newcomer.remaining, block_size),
        [round_up(base + member.remaining, block_size) for member in decoding],
    )


def round_up(tokens: int, block_size: int) -> int:
    """Tokens of the whole blocks that hold `tokens`."""
    return blocks_for(tokens, block_size) * block_size


FORMULAS: dict[str, Formula] = {
    "document_own_tkv": document_own_tkv,
    "document_realigned": document_realigned,
    "document_max_tkv": document_max_tkv,
    "document_figure": document_figure,
    "0.8.0": release_0_8_0,
    "1.10.0": release_1_10_0,
    "2.0.1": release_2_0_1,
    "2.1.0": release_2_1_0,
    "2.1.2": release_2_1_2,
    "common_base": common_base,
}


def with_slack(formula: Formula, slack: int) -> Formula:
    """The formula with `slack` tokens more for every request."""

    def slackened(
        tkv: int, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int
    ) -> Projection:
        own, others, to_the_end = formula(tkv, decoding, newcomer, block_size)
        return Projection(own + slack, [other + slack for other in others], to_the_end)

    return slackened


def split_slack(name: str) -> tuple[str, int] | None:
    """A formula's name and the tokens of slack in `FORMULA+TOKENS`, or None if it means nothing."""
    formula, plus, tokens = name.partition("+")
    if formula not in FORMULAS or (plus and not (tokens.isascii() and tokens.isdigit())):
        return None
    return formula, int(tokens or 0)


def formula_named(name: str) -> Formula | None:
    """The formula that `FORMULA` or `FORMULA+TOKENS` names, or None."""
    parts = split_slack(name)
    if parts is None:
        return None
    formula, slack = parts
    return with_slack(FORMULAS[formula], slack) if slack else FORMULAS[formula]
