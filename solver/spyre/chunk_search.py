"""Where counting ahead shows: a prefix hit on blocks that no request computed (ALL-R08)."""

from ...model.scenario import Request, Scenario


def hit_on_uncomputed(block: int, chunk_blocks: int, revision: str = "2.5.2") -> Scenario:
    """A prompt of two chunks is cached but for one block of its first, and given up after it.

    A chunk less one block is then counted that was never computed, which is the most that can be
    (`chunk_proof`: the next chunk still has the next number). The next prompt hits all of it.
    """
    chunk = block * chunk_blocks
    cached, whole = chunk - block, 2 * chunk
    return Scenario(
        system="spyre",
        revision=revision,
        config={
            "block_size": block,
            "chunk_size": chunk,
            "max_model_len": 4 * chunk,
            "prefix_caching": True,
        },
        requests=(
            Request(id="r0", arrival=0, prompt=(("p", cached),), max_tokens=1),
            Request(id="r1", arrival=0, prompt=(("p", whole),), max_tokens=1, abort_at=2),
            Request(id="r2", arrival=2, prompt=(("p", whole),), max_tokens=1),
        ),
        origin={"engine": "hand", "note": "counted ahead of what is computed", "seed": None},
    )
