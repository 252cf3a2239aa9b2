"""A file appears whole or not at all, and takes the place of nothing but a file."""

import os
import stat
from pathlib import Path

import pytest

from schedproof.gate.compare.baseline import Header, writer
from schedproof.gate.console.option_checks import check_file
from schedproof.gate.corpus.folder import scenario_named
from schedproof.gate.files.disk import is_descriptor, write, write_atomically
from schedproof.gate.files.scenario_file import FileError, write_failure
from schedproof.gate.judging.verdict import TargetInfo
from schedproof.model.errors import InputError
from schedproof.properties.rules.predicate import Broken

HEADER = Header(
    target=TargetInfo("model", "model", "1"),
    system="vllm",
    revision="documented",
    profile="quick",
    seed=0,
)


def test_a_file_appears_when_all_of_it_is_there(tmp_path):
    file = tmp_path / "verdict.json"
    file.write_bytes(b"old")
    with write_atomically(file) as place:
        place.write_bytes(b"new")
        assert file.read_bytes() == b"old"
    assert file.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [file]


def test_what_is_broken_off_leaves_what_was_there(tmp_path):
    file = tmp_path / "verdict.json"
    file.write_bytes(b"old")

    def broken_off():
        with write_atomically(file) as place:
            place.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert file.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [file]


def test_a_device_or_a_pipe_stays_what_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with write_atomically(pipe) as place:
        assert place == pipe
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    before = Path(os.devnull).stat().st_rdev
    with writer(Path(os.devnull), HEADER) as baseline:
        assert baseline.records == 0
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert Path(os.devnull).stat().st_rdev == before


def test_a_pipe_that_nobody_reads_is_named_and_does_not_block(tmp_path, monkeypatch):
    monkeypatch.setattr("schedproof.gate.files.disk.READER_LIMIT", 0.1)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match=r"pipe\.json: cannot be written to \(nobody reads"):
        write(pipe, b"x")
    assert pipe.is_fifo()


def test_a_link_stays_a_link_and_what_it_names_is_written(tmp_path):
    named, link = tmp_path / "named.gz", tmp_path / "link.gz"
    link.symlink_to(named)
    with writer(link, HEADER):
        assert not named.exists()
    assert link.is_symlink()
    assert named.read_bytes()[:2] == b"\x1f\x8b"


def test_a_place_that_takes_nothing_is_named(tmp_path):
    (tmp_path / "file").touch()
    missing = tmp_path / "file" / "verdict.json"
    with pytest.raises(FileError, match=r"verdict\.json: cannot be written to \(Not a directory\)"):
        write(missing, b"x")
    told = pytest.raises(
        FileError, match=r"verdict\.json: cannot be written to \(Not a directory\)"
    )
    with told, writer(missing, HEADER):
        pass


def test_a_link_under_the_name_of_the_incomplete_file_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr("schedproof.gate.files.disk.token_hex", lambda _: "0")
    other, file = tmp_path / "other", tmp_path / "verdict.json"
    other.write_bytes(b"untouched")
    link = tmp_path / ".verdict.json.0.partial"
    link.symlink_to(other)
    with pytest.raises(FileError, match=r"verdict\.json: cannot be written to \(File exists\)"):
        write(file, b"new")
    assert (other.read_bytes(), link.is_symlink(), file.exists()) == (b"untouched", True, False)


def test_two_processes_with_one_id_do_not_share_an_incomplete_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in two containers
    file = tmp_path / "verdict.json"
    with write_atomically(file) as item, write_atomically(file) as other:
        assert item != other
        item.write_bytes(b"one")
        other.write_bytes(b"other")
    assert file.read_bytes() == b"one"
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_file_may_have_the_longest_name(tmp_path, letter):
    file = tmp_path / (letter * (255 // len(letter.encode())))
    write(file, b"new")
    assert file.read_bytes() == b"new"


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    write(tmp_path / "verdict.json", b"new")
    (tmp_path / "plain").write_bytes(b"new")
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert len(modes) == 1


def test_the_scenario_of_a_failure_that_cannot_be_written_is_named_with_the_failure(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    broken = Broken("SPY-R07", 3, "522 > 520")
    with pytest.raises(FileError, match=r"^SPY-R07 is broken in step 3: 522 > 520; .*file"):
        write_failure(scenario_named("late-arrivals-before-961"), tmp_path / "file", broken)


def test_a_file_that_is_open_already_is_not_replaced_but_a_pipe_is_written_to(tmp_path):
    (tmp_path / "link").symlink_to("/dev/stdout")
    reads, writes = os.pipe()
    with (tmp_path / "file").open("wb") as file, os.fdopen(reads, "rb") as reader:
        for fd, folder in ((file.fileno(), "/dev/fd"), (file.fileno(), "/proc/self/fd")):
            with pytest.raises(InputError, match=f"{fd} is a file that is already open: "):
                check_file("--json", Path(folder, str(fd)))
        place = Path("/dev/fd", str(writes))
        check_file("--json", place)
        write(place, b"{}")
        os.close(writes)
        assert reader.read() == b"{}"
    assert is_descriptor(tmp_path / "link")
    assert not is_descriptor(tmp_path / "file")
