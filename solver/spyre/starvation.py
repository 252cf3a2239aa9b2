"""A run in which prefills starve a paused request (`pausing_lemmas`)."""

from itertools import count
from typing import NamedTuple

from ...model.scenario import Request, Scenario
from ...model.spyre.documented import chunk_count


class Scale(NamedTuple):
    """Lengths and `limit` (of batch x tkv) in tokens. The default is Spyre's production scale."""

    block: int = 64
    chunk: int = 512
    max_model_len: int = 32_768
    limit: int = 131_072
    max_num_seqs: int = 32


def starving(scale: Scale, members: int, passing: int) -> Scenario:
    """Return a scenario in which `passing` one-token requests overtake a paused request: the first
    request is paused, and then the others leave.

    `members` requests together exceed the limit. With one request fewer, they must stay within it
    at every length that they reach.
    """
    prompt = next(
        tokens
        for tokens in count(1)
        if members * (tokens + chunk_count(tokens, scale.chunk) * (members - 1) + 1) > scale.limit
    )
    # Each request joins after the previous one, by one decode step for each chunk. All but the
    # first end in the step after the last has joined. In that step, the first is paused, because it
    # has generated the most tokens.
    chunks = chunk_count(prompt, scale.chunk)
    tokens = [2 + chunks * (members - 1 - number) for number in range(members)]
    tokens[0] += 1
    asked = [(prompt, own) for own in tokens] + [(1, 1)] * passing
    return Scenario(
        system="spyre",
        revision="2.5.2",
        config={
            "block_size": scale.block,
            "chunk_size": scale.chunk,
            "max_num_seqs": scale.max_num_seqs,
            "max_model_len": scale.max_model_len,
            "max_batch_tkv": scale.limit,
        },
        requests=tuple(
            Request(id=f"r{number}", arrival=0, prompt=((f"r{number}", length),), max_tokens=own)
            for number, (length, own) in enumerate(asked)
        ),
        origin={"engine": "hand", "note": "prefills overtake a paused request", "seed": None},
    )
