"""Near misses: the same run exactly at a limit of its configuration, one below, and one above.

Every limit of a configuration is a number that the run uses up to some amount. Set to that amount
the run is exactly at it; one more, and it is one below; one less, and it asks for one more than
there is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model.observation import Step
from ...model.scenario import Scenario

Steps = Sequence[Step]

# The configuration key of the limit that a rule is about.
LIMIT_OF = {
    "SPY-R07": "max_batch_tkv",
    "SPY-R42": "max_batch_tkv",
    "SPY-R51": "max_batch_tkv",
    "SPY-R41": "max_model_len",
    "SPY-R36": "max_num_seqs",
    "SPY-R50": "num_blocks",
    "V1-I2": "max_num_batched_tokens",
    "V1-I3": "max_num_seqs",
    "V1-R05": "num_blocks",
    "V1CP-R34": "num_blocks",
    "V1CP-R22": "num_blocks",
    "NAN-R08": "max_num_batched_tokens",
    "NAN-R40": "max_num_seqs",
    "NAN-R09": "num_blocks",
    "LSS-R06": "max_num_batched_tokens",
    "LSS-R04": "max_num_seqs",
    "LSS-P01": "num_blocks",
    "LSS-R31": "num_blocks",
}


class Near(NamedTuple):
    """A scenario beside a limit.

    Attributes:
        says: where the limit is.
        key: its configuration key.
        margin: what must be left of it at the least moment: 0 or 1; None where the run asks for
            more than there is, and whatever is left is right.
    """

    says: str
    scenario: Scenario
    key: str
    margin: int | None


def near_misses(scenario: Scenario, key: str, steps: Steps) -> Iterator[Near]:
    """The run with its limit moved beside what it uses; `steps` are those of the scenario.

    Whether they come out as they say is for a replay to show: with another limit the scheduler
    may do otherwise.
    """
    use = used(scenario, key, steps)
    if use is None:
        return
    for limit, says, margin in (
        (use, "exactly at the limit", 0),
        (use + 1, "one below the limit", 1),
        (use - 1, "one above what is possible", None),
    ):
        if limit > 0:
            moved = replace(scenario, config={**scenario.config, key: limit})
            yield Near(f"{says}: {key} {limit}", moved, key, margin)


def is_near(near: Near, steps: Steps) -> bool:
    """The run is as near to the limit as it was meant to be."""
    use = used(near.scenario, near.key, steps)
    limit = near.scenario.config[near.key]
    return use is not None and (near.margin is None or use == limit - near.margin)


def used(scenario: Scenario, key: str, steps: Steps) -> int | None:
    """The most that a run takes of a limit, in its units; None where it takes nothing."""
    return max(filter(None, (USES[key](scenario, step) for step in steps)), default=None)


def _volume(_: Scenario, step: Step) -> int | None:
    """Batch x tkv of a decode step, in tokens."""
    decodes = step.kind == "decode" and step.tkv is not None
    return len(step.scheduled) * step.tkv if decodes and step.tkv else None


def _length(scenario: Scenario, step: Step) -> int | None:
    """The longest request that was let in, in tokens, its last token not counted."""
    lengths = {one.id: one.prompt_len + one.max_tokens - 1 for one in scenario.requests}
    return max((lengths[name] for name in step.scheduled), default=None)


def _seats(_: Scenario, step: Step) -> int | None:
    """Requests that ran in the step."""
    if step.running is None:
        return None
    return len({*step.running, *(set(step.finished or ()) & set(step.scheduled))})


def _budget(_: Scenario, step: Step) -> int | None:
    """Tokens computed in a step."""
    return sum(step.scheduled.values())


def _blocks(scenario: Scenario, step: Step) -> int | None:
    """Blocks held after the step."""
    pool: Any = scenario.config.get("num_blocks")
    if step.free_blocks is None or pool is None:
        return None
    return int(pool) - step.free_blocks


USES: dict[str, Callable[[Scenario, Step], int | None]] = {
    "max_batch_tkv": _volume,
    "max_model_len": _length,
    "max_num_seqs": _seats,
    "max_num_batched_tokens": _budget,
    "num_blocks": _blocks,
}
