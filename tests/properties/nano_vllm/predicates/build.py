"""Ledgers and steps of nano-vLLM, by hand: block 4, budget 10, three slots, a pool of 8 blocks."""

from typing import Any

from schedproof.model.observation import Step
from schedproof.model.systems import full_config
from schedproof.properties.history.request_history import RequestHistory
from schedproof.properties.history.run_history import RunHistory
from schedproof.tests.properties.build import known

SMALL = {"block_size": 4, "num_blocks": 8, "max_num_seqs": 3, "max_num_batched_tokens": 10}
IDLE = Step(kind="idle", scheduled={})


def request(
    name: str, prompt: int = 6, computed: int = 0, emitted: int = 0, **more: Any
) -> RequestHistory:
    """A request that may generate eight tokens; by default its own content."""
    values = {"content": ((name, prompt),), **more}
    return RequestHistory(name, prompt, 8, 8, computed=computed, emitted=emitted, **values)


def runs(name: str, computed: int = 6, **more: Any) -> RequestHistory:
    """One whose whole prompt is computed and that has emitted its first token."""
    return request(name, computed, computed, 1, **more)


def book(
    *accounts: RequestHistory, running: str = "", waiting: str = "", **changes: Any
) -> RunHistory:
    """The history before a step: these requests in order of arrival, those of `running` run.

    `waiting` are those queued after the step before, `free` the blocks that were free then and
    `blocks` the tables. Other changes are the `revision` and keys of the configuration.
    """
    free, blocks = changes.pop("free", 8), changes.pop("blocks", None)
    revision = changes.pop("revision", "documented")
    config = full_config("nano_vllm", revision, SMALL | changes)
    history = RunHistory(config, revision, "nano_vllm", **known(accounts))
    history.last = Step(
        kind="prefill",
        scheduled={},
        running=tuple(running),
        waiting=tuple(waiting),
        free_blocks=free,
        blocks=blocks,
    )
    return history


def ran(scheduled: dict[str, int], running: str = "", waiting: str = "", **more: Any) -> Step:
    """A step after which these run and wait, in order; every request is one letter."""
    values = {"preempted": (), "emitted": {}, "finished": {}, "free_blocks": 4, **more}
    kind = values.pop("kind", "decode")
    return Step(
        kind=kind, scheduled=scheduled, running=tuple(running), waiting=tuple(waiting), **values
    )
