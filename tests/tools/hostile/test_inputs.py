"""The harness in small: every loader, some hundred spoiled files; and files that are none."""

import os
import resource
import socket
from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import FileError
from schedproof.tools.hostile.inputs import attacked, outcome
from schedproof.tools.hostile.loaders import LOADERS, good
from schedproof.tools.hostile.mutations import corrupt

from ...command_line import Run, runner


@pytest.mark.slow
def test_what_is_spoiled_is_read_or_refused_in_one_line():
    reports, _ = attacked(inputs=40 * len(LOADERS), seed=7, jobs=1)
    assert reports.keys() == LOADERS.keys()
    assert [line for report in reports.values() for line in report.wrong] == []
    for report in reports.values():
        assert report.counts["read"] + report.counts["refused"] == 40
        assert report.counts["refused"] > 0


# What a million inputs found: a lone surrogate in a list.
FOUND = {"two.json": (26000015944, 26000023026, 26000089302), "corpus/two.json": (26000028610,)}


@pytest.mark.slow
def test_what_went_wrong_once_is_refused(tmp_path):
    files = good()
    for name, whole in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(whole)
    for kind, seeds in FOUND.items():
        for seed in seeds:
            LOADERS[kind].spoil(tmp_path / kind, files[kind], seed)
            assert outcome(kind, tmp_path / kind) == "refused"


def test_the_same_number_spoils_alike_and_others_do_not():
    whole = b'{"a": [1, 2, {"b": "c"}], "d": 3}'
    assert corrupt(whole, 5, packed=False) == corrupt(whole, 5, packed=False)
    assert len({corrupt(whole, seed, packed=False) for seed in range(100)}) > 60


@pytest.fixture
def strange(tmp_path, monkeypatch):
    """A folder of what is no regular file."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo.json")
    Path("loop.json").symlink_to("loop.json")
    Path("folder.json").mkdir()
    Path("zero.json").symlink_to("/dev/zero")
    Path("null.json").symlink_to("/dev/null")
    Path("empty.json").write_bytes(b"")
    Path("bom.json").write_bytes(b"\xef\xbb\xbf{}")
    Path("a\nb.json").write_bytes(b"{")
    with socket.socket(socket.AF_UNIX) as there:
        there.bind("socket.json")
    return tmp_path


STRANGE = (
    *("fifo.json", "loop.json", "folder.json", "zero.json", "null.json", "empty.json"),
    *("bom.json", "a\nb.json", "socket.json", "none.json", "\udcff.json"),
)
COMMANDS = (
    ("replay", "{}"),
    ("show", "{}"),
    ("check-trace", "{}"),
    ("corpus", "add", "{}"),
    ("corpus", "minimize", "{}"),
    ("gate", "model", "--deviations", "{}"),
    ("gate", "model", "--extra-rules", "{}"),
    ("gate", "model", "--corpus", "{}"),
    ("diff", "model", "--since", "{}"),
    ("campaign", "--ledger", "{}", "--report"),
)


# What means something: a stream, a record that was cut, a file or a corpus with nothing in it.
MEANT = {
    ("check-trace", "fifo.json"),
    ("check-trace", "a\nb.json"),
    ("--deviations", "empty.json"),
    ("--corpus", "folder.json"),
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_no_file_is_one_line_and_exit_2(strange, monkeypatch, capfd, words):
    run: Run = runner(monkeypatch, capfd)
    for name in STRANGE:
        if (words[-2] if words[-1] == "{}" else "", name) in MEANT:
            continue
        result = run(*(word.format(name) for word in words))
        assert result.code == 2, (name, result)
        assert result.err.count("\n") == 1, (name, result)
        assert result.err.startswith("schedproof: "), (name, result)


def test_a_loader_never_leaves_a_file_that_is_none_open(strange):
    for name in ("fifo.json", "zero.json", "loop.json"):
        for loader in ("two.json", "known.toml", "baseline.gz"):
            with pytest.raises(FileError):
                LOADERS[loader].read(strange / name)


@pytest.mark.slow
def test_the_bounds_are_those_of_the_workers_and_not_of_this_process():
    before = resource.getrlimit(resource.RLIMIT_AS)
    attacked(inputs=len(LOADERS), seed=1, jobs=1)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
