"""Ledgers and steps of LLMServingSim, by hand: block 4, budget 10, three slots, a pool of 8
blocks."""

from typing import Any

from schedproof.model.observation import Step
from schedproof.model.systems import full_config
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.vllm.history.request_history import VllmRequestHistory
from schedproof.tests.properties.build import known

SMALL = {"block_size": 4, "num_blocks": 8, "max_num_seqs": 3, "max_num_batched_tokens": 10}


def request(
    name: str, prompt: int = 6, computed: int = 0, emitted: int = 0, **more: Any
) -> VllmRequestHistory:
    """A request that may generate eight tokens; by default its own content."""
    values = {"content": ((name, prompt),), "max_tokens": 8, **more}
    most = values.pop("max_tokens")
    return VllmRequestHistory(
        name, prompt, most, most, computed=computed, emitted=emitted, **values
    )


def book(*accounts: VllmRequestHistory, running: str = "", **changes: Any) -> RunHistory:
    """The history before a step: these requests in order of arrival, those of `running` run.

    `free`: blocks free after the step before; `revision`: by default the page. Other
    changes are keys of the configuration.
    """
    free, revision = changes.pop("free", 8), changes.pop("revision", "documented")
    config = full_config("llmservingsim", revision, SMALL | changes)
    history = RunHistory(config, revision, "llmservingsim", **known(accounts))
    history.last = Step(kind="prefill", scheduled={}, running=tuple(running), free_blocks=free)
    return history


def ran(scheduled: dict[str, int], running: str = "", waiting: str = "", **more: Any) -> Step:
    """A step after which these run and wait, in order; every request is one letter."""
    values = {
        **{"preempted": (), "emitted": {}, "finished": {}, "free_blocks": 8},
        **{"blocks": {}, "prefix_hit": {}},
        **more,
    }
    return Step(
        kind="mixed", scheduled=scheduled, running=tuple(running), waiting=tuple(waiting), **values
    )
