"""Real processes, killed: the ledger ends up as if no request had been."""

import signal

import pytest

from . import local_cluster
from .work import begun, content_of, gone, items_in, kill, ran, until_items, workers

ITEMS = "12"
WHAT = ("--system", "nano_vllm", "--items", ITEMS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    ledger = tmp_path_factory.mktemp("undisturbed") / "ledger"
    whole = ran(ledger, *WHAT, "--workers", "1")
    assert whole.returncode == 3, whole.stdout + whole.stderr  # not every rule was exercised
    assert f"no findings in {ITEMS} items, but no verdict" in whole.stdout
    return content_of(ledger)


@pytest.mark.slow
def test_killed_interrupted_and_with_dead_workers_the_ledger_is_the_same(tmp_path, undisturbed):
    ledger = tmp_path / "ledger"

    first = begun(ledger, *WHAT, "--workers", "2")
    until_items(ledger, 1, first)
    left_alone = workers(first.pid)
    kill(first.pid)
    first.communicate()
    assert left_alone
    assert gone(left_alone)
    after_kill = items_in(ledger)
    assert 1 <= after_kill < int(ITEMS)

    second = begun(ledger, "--items", ITEMS, "--workers", "2")
    until_items(ledger, after_kill + 2, second)
    second.send_signal(signal.SIGINT)
    _, reported = second.communicate()
    assert second.returncode == 3
    after_interrupt = items_in(ledger)
    assert reported == (
        f"schedproof: interrupted; {after_interrupt} items are in {ledger}: "
        "run the command again to resume\n"
    )

    third = begun(ledger, "--items", ITEMS, "--workers", "2")
    until_items(ledger, after_interrupt + 1, third)
    for victim in workers(third.pid)[:1]:
        kill(victim)
    reported, _ = third.communicate()
    assert f"no findings in {ITEMS} items, but no verdict" in reported
    assert content_of(ledger) == undisturbed


@pytest.mark.slow
@pytest.mark.nightly
def test_on_a_cluster_whose_worker_and_then_scheduler_is_killed_the_ledger_is_the_same(
    tmp_path, undisturbed
):
    ledger = tmp_path / "ledger"
    scheduler, address = local_cluster.started(2)
    first = begun(ledger, *WHAT, "--cluster", address)
    until_items(ledger, 1, first)
    kill(workers(scheduler.pid)[0])
    until_items(ledger, 3, first)
    kill(scheduler.pid)
    scheduler.communicate()
    _, reported = first.communicate()
    assert first.returncode == 3
    assert reported.startswith(f"schedproof: cluster {address}: ")
    assert reported.endswith(f"items are in {ledger}: run the command again to resume\n")
    assert reported.count("\n") == 1
    assert 3 <= items_in(ledger) < int(ITEMS)

    scheduler, address = local_cluster.started(1)
    try:
        second = ran(ledger, "--items", ITEMS, "--cluster", address)
    finally:
        scheduler.communicate("")
    assert f"no findings in {ITEMS} items, but no verdict" in second.stdout
    assert content_of(ledger) == undisturbed
