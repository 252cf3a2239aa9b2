"""Options: files that are written whole or not at all, and never over one another."""

import os
import threading
from pathlib import Path

import pytest

from schedproof.gate.console.option_checks import check_different, check_unicode
from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.files.writing import write
from schedproof.model.errors import InputError


def test_a_file_appears_whole_and_alone(tmp_path):
    file = tmp_path / "v.json"
    file.write_bytes(b"of an earlier run, and longer")
    write(file, b"new")
    assert file.read_bytes() == b"new"
    assert [*tmp_path.iterdir()] == [file]


def test_what_a_link_points_at_is_written(tmp_path):
    file, link = tmp_path / "v.json", tmp_path / "latest.json"
    link.symlink_to(file)
    write(link, b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"new")
    reader.join()
    assert read == [b"new"]
    assert pipe.is_fifo()


def test_a_file_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileError, match=r"folder: cannot be written to \(Is a directory\)"):
        write(folder, b"new")
    assert [*tmp_path.iterdir()] == [folder]


def test_a_file_of_two_options_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"--json": Path("v"), "--junit": Path("w"), "--sarif": tmp_path / "v"}
    with pytest.raises(InputError, match=r"--sarif: .*v is the file of --json, too"):
        check_different(files)


def test_what_keeps_nothing_may_be_named_twice():
    files = {"--json": Path("/dev/null"), "--junit": Path("/dev/null")}
    check_different(files)
    assert Path("/dev/null").is_char_device()


def test_bytes_that_are_no_text_are_refused():
    check_unicode("--out", "é\n::error::")
    with pytest.raises(InputError, match=r"--out: 'a.udcffb' is not UTF-8"):
        check_unicode("--out", "a\udcffb")
