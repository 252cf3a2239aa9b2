"""Histories with the blocks of running requests, in a pool with a given number of free ones."""

from dataclasses import replace

from msgspec.structs import replace as changed

from schedproof.properties.history.run_history import RunHistory


def with_tables(history: RunHistory, free: int) -> RunHistory:
    """The history in which each running request holds blocks of its own."""
    assert history.last is not None
    size, tables, held = history.config["block_size"], {}, 0
    for name in history.last.running or ():
        blocks = -(-history.live[name].computed // size)
        tables[name] = tuple(range(held + 1, held + blocks + 1))
        held += blocks
    last = changed(history.last, blocks=tables, free_blocks=free)
    return replace(history, last=last, config={**history.config, "num_blocks": held + free})
