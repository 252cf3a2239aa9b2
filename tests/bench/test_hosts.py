"""The harness of hosts: a campaign on two of them, one disturbed, leaves what processes leave."""

import os
import shutil

import pytest

from schedproof.tests.bench import hosts


@pytest.mark.slow
@pytest.mark.skipif(
    bool(os.geteuid()) or not (shutil.which("ip") and shutil.which("unshare")),
    reason="needs root, iproute2 and unshare",
)
def test_a_killed_worker_does_not_show_in_the_ledger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    asked = ["--hosts", "2", "--items", "6", "--every", "1", "--seed", "1"]
    monkeypatch.setattr("sys.argv", ["hosts.py", *asked])
    monkeypatch.setattr(hosts, "PULLED", 1.0)
    assert hosts.main() == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "the same ledger"
