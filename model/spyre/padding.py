"""Prefill padding: prompts are left-aligned in blocks and right-aligned in chunks.

Source: Spyre scheduling page, "Prefill padding". Every length is in tokens unless it says blocks.
"""

from ..pool import blocks_for


def chunk_count(prompt: int, chunk_size: int) -> int:
    """Prefill steps of a prompt: one chunk a step."""
    return -(-prompt // chunk_size)


def left_padding_blocks(prompt: int, chunk_size: int, block_size: int) -> int:
    """Dummy blocks before the prompt, so that its last block is the last of its last chunk
    (SPY-R14, SPY-R16)."""
    padded = chunk_count(prompt, chunk_size) * chunk_size
    return padded // block_size - blocks_for(prompt, block_size)


def next_chunk(prompt: int, computed: int, chunk_size: int, block_size: int) -> tuple[int, int]:
    """First and end position, in tokens of the prompt, of the chunk in turn.

    It is the chunk that holds position left padding + `computed` of the padded prompt; the first
    chunk loses the left padding, the last ends with the prompt. Rules SPY-R18, SPY-R19.
    """
    left_padding = left_padding_blocks(prompt, chunk_size, block_size) * block_size
    chunk = (left_padding + computed) // chunk_size
    start = max(chunk * chunk_size - left_padding, 0)
    return start, min((chunk + 1) * chunk_size - left_padding, prompt)


def is_last_chunk(prompt: int, computed: int, chunk_size: int) -> bool:
    """The rest of the prompt fits into one chunk: the request is about to join the decode batch."""
    return prompt - computed <= chunk_size
