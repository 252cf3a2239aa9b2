"""Counterexamples about max_model_len (SPY-R41, SPY-R35), at any scale: for Z3, in closed form.

Always two requests, the first from step 0, the second early enough for its first chunk. A request
that
gets a scenario replays it: nothing here is reported as it stands.
"""

from typing import Any, NamedTuple

import z3

from ...model.scenario import Request, Scenario
from ...model.spyre.documented import chunk_count
from ..numbers import Numbers, read
from .formulas import Joining, Lengths, round_up
from .length_proof import passes

PATIENCE = 60.0  # seconds of Z3 for one search


class Scale(NamedTuple):
    """Lengths in tokens. The default is Spyre's production scale."""

    block: int = 64
    chunk: int = 512
    max_model_len: int = 32_768


class Ask(NamedTuple):
    """A request in symbols: tokens of its prompt, tokens that it may generate."""

    prompt: Any
    max_tokens: Any


def beyond_length(scale: Scale, revision: str = "sound") -> Scenario:
    """Front door and SPY-R41 accept both; their tkv is max_model_len rounded up to whole blocks.

    For blocks of 3 tokens or more and a max_model_len of 2 blocks and 1 token or more. From two
    tokens on the releases' front door accepts them, too.
    """
    block, longest = scale.block, scale.max_model_len
    border = (longest // block - 1) * block
    # When the second joins, the first has two tokens beyond the border and a block less one to go.
    decodes = 2 if longest % block > 1 else 1
    first, second = Ask(border + 2 - decodes, block + decodes), Ask(1, block)
    note = "a tkv beyond max_model_len"
    return _scenario(scale, revision, [first, second], note, decodes)


def needless(scale: Scale, revision: str = "sound") -> Scenario | None:
    """The second waits longest for SPY-R41, though no tkv would exceed max_model_len.

    It is asked after the first decode step, with a prompt of one chunk, and refused until the
    first has ended. None: no request waits at this scale. max_model_len must be whole blocks.
    """
    numbers = Numbers()
    lengths = Lengths(scale.block, None)
    first, second = _requests(numbers, lengths, scale)
    numbers.facts.append(second.prompt <= scale.chunk)
    waits = first.max_tokens - 2
    numbers.facts.append(waits >= 1)
    computed = first.prompt + 1
    joining = Joining(second.prompt, second.max_tokens - 1)
    longest = scale.max_model_len
    numbers.facts.append(z3.Not(passes(numbers, lengths, computed, [], joining, longest)))
    numbers.facts.append(second.max_tokens >= 2)
    best = z3.Optimize()
    best.add(numbers.facts)
    best.maximize(waits)
    best.minimize(first.prompt + second.prompt + second.max_tokens)
    return _solved(best, scale, revision, (first, second), "needlessly refused")


def idle(scale: Scale, revision: str = "2.1.2") -> Scenario | None:
    """The second's last of two chunks is refused by the tkv of the first, which has just left.

    None: no such pair at this scale.
    """
    numbers = Numbers()
    lengths = Lengths(scale.block, None)
    first, second = _requests(numbers, lengths, scale)
    # One decode step before each of the two chunks.
    numbers.facts += [first.max_tokens == 3, second.max_tokens >= 2]
    numbers.facts += [second.prompt > scale.chunk, second.prompt <= 2 * scale.chunk]
    joining = Joining(second.prompt, second.max_tokens - 1)
    stale = first.prompt + 2
    fits = passes(numbers, lengths, stale, [], joining, scale.max_model_len)
    best = z3.Optimize()
    best.add([*numbers.facts, z3.Not(fits)])
    best.minimize(first.prompt + second.prompt + second.max_tokens)
    return _solved(best, scale, revision, (first, second), "an idle step")


def refused_alone(scale: Scale, limit: int) -> Scenario:
    """A request of two chunks that is alone at its last, and that a check refuses for ever.

    It may generate until the limit on batch x tkv. A check that rounds this up to whole blocks
    refuses it where the limit is none (`rounded`), one that adds a token first (`document_figure`)
    everywhere.
    """
    prompt = scale.chunk + 1
    alone = Ask(prompt, min(scale.max_model_len, limit) - prompt + 1)
    note = "refused although it is alone"
    return _scenario(scale, "sound", [alone], note, max_batch_tkv=limit)


def _requests(numbers: Numbers, lengths: Lengths, scale: Scale) -> tuple[Ask, Ask]:
    """Two requests that even the releases' front door lets in."""
    found = []
    for name in ("first", "second"):
        prompt = numbers.fresh(f"{name}_prompt", 1, scale.max_model_len)
        max_tokens = numbers.fresh(f"{name}_max_tokens", 1, scale.max_model_len)
        rounded = round_up(numbers, lengths, prompt)
        numbers.facts.append(rounded + max_tokens <= scale.max_model_len)
        found.append(Ask(prompt, max_tokens))
    return found[0], found[1]


def _solved(
    best: z3.Optimize, scale: Scale, revision: str, requests: tuple[Ask, Ask], note: str
) -> Scenario | None:
    """The best solution, None if there is none.

    Raises:
        TimeoutError: Z3 could not say.
    """
    best.set("timeout", int(1000 * PATIENCE))
    answer = best.check()
    if answer == z3.unknown:
        raise TimeoutError(f"no answer within {PATIENCE} s")
    if answer == z3.unsat:
        return None
    model = best.model()
    found = [Ask(read(model, one.prompt), read(model, one.max_tokens)) for one in requests]
    return _scenario(scale, revision, found, note)


def _scenario(
    scale: Scale,
    revision: str,
    requests: list[Ask],
    note: str,
    decodes: int = 1,
    max_batch_tkv: int = 131_072,
) -> Scenario:
    """The second arrives when the first has run `decodes` decode steps."""
    steps = [0, chunk_count(requests[0].prompt, scale.chunk) + decodes]
    return Scenario(
        system="spyre",
        revision=revision,
        config={
            "block_size": scale.block,
            "chunk_size": scale.chunk,
            "max_model_len": scale.max_model_len,
            "max_batch_tkv": max_batch_tkv,
        },
        requests=tuple(
            Request(
                id=f"r{number}",
                arrival=step,
                prompt=((f"r{number}", one.prompt),),
                max_tokens=one.max_tokens,
            )
            for number, (step, one) in enumerate(zip(steps, requests, strict=False))
        ),
        origin={"engine": "z3", "note": note, "seed": None},
    )
