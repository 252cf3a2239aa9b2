"""The loop of a campaign: hand out the planned items, and write down each result."""

from collections.abc import Callable
from itertools import islice

from ..processes.executors import DEATHS, Executor, TaskResult, run_tasks
from .items import Item, Result, digest_of, plan
from .ledger import Done, Ledger


def run_campaign(
    ledger: Ledger,
    executor: Executor,
    *,
    items: int | None,
    ends: float,
    report: Callable[[str], None],
    progress: Callable[[int], None],
) -> None:
    """Run the planned items that the ledger does not have, then shrink the failures.

    `items` limits the whole campaign, and no item starts after `ends` (`time.monotonic`). `report`
    receives a line for each new failure and each item that failed, `progress` the number of items
    run. Raise ClusterError if the cluster is gone; the results so far are in the ledger.
    """
    planned = (item for item in islice(plan(ledger.settings), items) if item not in ledger)
    for number, (item, ran) in enumerate(run_tasks(executor, planned, ends), 1):
        done = _done(item, ran)
        for failure in done.result.failures:
            if ledger.is_new(failure):
                scenario = f"{failure.scenario.system} {failure.scenario.revision}"
                report(f"found: {failure.rule} on {scenario}: {failure.message}")
        if done.result.failed:
            report(f"item {digest_of(item)} failed: {done.result.failed}")
        ledger.write(done)
        progress(number)
    # Shrinking has no time limit: it takes seconds, and the findings are worth it.
    questions = [question for question in ledger.questions().values() if question not in ledger]
    if questions:
        report(f"shrinking {len(questions)} finding{'s' * (len(questions) != 1)}")
    for question, ran in run_tasks(executor, questions):
        done = _done(question, ran)
        if not done.result.failed:
            ledger.write(done)


def _done(item: Item, ran: TaskResult | None) -> Done:
    if ran is None:
        failed = f"its worker died {DEATHS} times"
        return Done(item, Result(failed=failed, complete=False), 0.0, "")
    result, seconds = ran.result
    return Done(item, result, seconds, ran.worker)
