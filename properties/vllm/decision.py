"""What a scheduler decided in a step, as far as its client can tell.

The client's own account says who was running and how far behind it was; the step says who ran.
"""

from collections.abc import Iterable

from ...model.observation import Step
from ..ledger import Account, Ledger
from ..once import once


def key(ledger: Ledger, one: Account) -> tuple[int, int]:
    """Lower goes first: who came first, by priority the more important one."""
    if ledger.config["policy"] == "priority":
        return one.priority, one.arrival
    return 0, one.arrival


@once
def ran_before(ledger: Ledger) -> list[Account]:
    """Unfinished requests that were running after the step before, in the order of that list."""
    names = (ledger.last.running or ()) if ledger.last is not None else ()
    return [ledger.live[name] for name in names if name in ledger.live]


@once
def waited_before(ledger: Ledger) -> list[Account]:
    """All other unfinished requests, who goes first in front."""
    running = {one.id for one in ran_before(ledger)}
    waiting = [one for one in ledger.live.values() if one.id not in running]
    return sorted(waiting, key=lambda one: key(ledger, one))


@once
def preempted(ledger: Ledger, step: Step) -> list[Account]:
    """Those who lost their blocks in this step."""
    return [ledger.live[name] for name in step.preempted or () if name in ledger.live]


@once
def kept(ledger: Ledger, step: Step) -> list[Account]:
    """Those who were running and were not preempted, in the order of the list."""
    gone = set(step.preempted or ())
    return [one for one in ran_before(ledger) if one.id not in gone]


@once
def admitted(ledger: Ledger, step: Step) -> list[Account]:
    """Those who were scheduled and had not been running, in scheduling order."""
    running = {one.id for one in ran_before(ledger)}
    return [
        ledger.live[name] for name in step.scheduled if name in ledger.live and name not in running
    ]


def behind(ledger: Ledger, step: Step, one: Account) -> int | None:
    """Known tokens of a scheduled request that were not computed, nor cached, when it was
    scheduled. None where nobody knows the hit."""
    hit = 0 if one.started else ledger.hit_now(step, one)
    return None if hit is None else one.num_tokens - one.computed - hit


def threshold(ledger: Ledger) -> int:
    """Tokens of one request in one step, at most."""
    budget: int = ledger.config["max_num_batched_tokens"]
    return min(ledger.config["long_prefill_token_threshold"] or budget, budget)


def blocks_for(ledger: Ledger, tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // int(ledger.config["block_size"]))


def watermark_blocks(ledger: Ledger) -> int:
    """Blocks that admission leaves free while somebody runs."""
    return int(ledger.config["watermark"] * (ledger.config["num_blocks"] or 0))


def nobody_left(ledger: Ledger, step: Step) -> bool:
    """What is free after the step was free when it was decided."""
    return not step.finished and not ledger.aborts_inside


def names(accounts: Iterable[Account]) -> str:
    """Their ids, in a sentence."""
    return ", ".join(one.id for one in accounts)
