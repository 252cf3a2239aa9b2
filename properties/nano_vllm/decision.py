"""What nano-vLLM's scheduler decided in a step, as far as its client can tell."""

from collections.abc import Iterable

from ...model.observation import Step
from ..ledger import Account, Ledger
from ..once import once

WHOLE_PROMPTS = "documented"  # the revision that computes no prompt in part


@once
def ran_before(ledger: Ledger) -> list[Account]:
    """Unfinished sequences that ran after the step before, in the order of that queue."""
    names = (ledger.last.running or ()) if ledger.last is not None else ()
    return [ledger.live[name] for name in names if name in ledger.live]


@once
def waited_before(ledger: Ledger) -> list[Account]:
    """Those who waited after the step before, in the order of that queue, then those who have
    arrived since."""
    queued = (ledger.last.waiting or ()) if ledger.last is not None else ()
    known = [ledger.live[name] for name in queued if name in ledger.live]
    running = {one.id for one in ran_before(ledger)}
    queued_ids = {one.id for one in known}
    return known + [
        one for one in ledger.live.values() if one.id not in running and one.id not in queued_ids
    ]


@once
def preempted(ledger: Ledger, step: Step) -> list[Account]:
    """Those who lost their blocks in this step, in the order in which they ran."""
    gone = set(step.preempted or ())
    return [one for one in ran_before(ledger) if one.id in gone]


@once
def kept(ledger: Ledger, step: Step) -> list[Account]:
    """Those who ran and were not preempted, in the order of the queue."""
    gone = set(step.preempted or ())
    return [one for one in ran_before(ledger) if one.id not in gone]


@once
def prefilled(ledger: Ledger, step: Step) -> list[Account]:
    """Those scheduled who had waited, in scheduling order."""
    running = {one.id for one in ran_before(ledger)}
    return [
        ledger.live[name] for name in step.scheduled if name in ledger.live and name not in running
    ]


def behind(ledger: Ledger, step: Step, one: Account) -> int | None:
    """Known tokens of a scheduled sequence that were not computed, nor cached, before this step.
    None where nobody knows the hit."""
    hit = 0 if one.started else ledger.hit_now(step, one)
    return None if hit is None else one.num_tokens - one.computed - hit


def completes(ledger: Ledger, step: Step, one: Account) -> bool:
    """All that is known of a scheduled sequence is computed with this step."""
    return step.scheduled[one.id] == behind(ledger, step, one)


def blocks_for(ledger: Ledger, tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // int(ledger.config["block_size"]))


def free_before(ledger: Ledger) -> int | None:
    """Blocks free when the step was decided; None where an abort has changed that since."""
    if ledger.last is None:
        return int(ledger.config["num_blocks"])
    return None if ledger.aborts_to_report else ledger.last.free_blocks


def names(accounts: Iterable[Account]) -> str:
    """Their ids, in a sentence."""
    return ", ".join(one.id for one in accounts)
