"""A corpus is its files."""

import json

import pytest
from msgspec.structs import replace

from schedproof.gate.corpus import folder as corpus_folder
from schedproof.gate.corpus.folder import Origin, entries
from schedproof.gate.files.scenario_file import FileError, read_scenario, write_scenario

from ..corpus_build import calm, crowd, kept, written


def test_what_is_added_is_read_again_with_its_rule_shape_and_target(tmp_path):
    path = kept(tmp_path, crowd(), shape="NAN-R40: # run")
    [entry] = entries(tmp_path)
    assert entry.path == path
    assert (entry.rule, entry.shape, entry.found_on) == ("NAN-R40", "NAN-R40: # run", "a model 1")
    assert entry.origin.found == "2026-01-31"
    assert entry.scenario == read_scenario(path)


def test_the_same_content_is_one_file_whatever_it_is_called(tmp_path):
    first = kept(tmp_path, crowd())
    assert kept(tmp_path, crowd(name="another")) == first
    assert kept(tmp_path, crowd(prompt=6)) != first
    assert len(entries(tmp_path)) == 2
    assert list(tmp_path.glob("*.partial")) == []


def test_what_others_say_of_the_origin_is_kept(tmp_path):
    path = kept(tmp_path, crowd(origin={"engine": "hand", "note": "why", "rule": "another"}))
    origin = json.loads(path.read_text())["origin"]
    assert (origin["engine"], origin["note"], origin["rule"]) == ("hand", "why", "NAN-R40")


def test_a_witness_is_the_same_as_itself_alone(tmp_path):
    kept(tmp_path, calm())
    kept(tmp_path, crowd())
    first, second = entries(tmp_path)
    assert first.failure != second.failure


def test_other_files_are_no_part_of_it(tmp_path):
    kept(tmp_path, crowd())
    (tmp_path / "README.md").write_text("of the corpus")
    (tmp_path / "folder.json").mkdir()
    for name in ("diff-order", "repaired-NAN-R40", "flaky-crash", "waste"):
        write_scenario(crowd(origin={"engine": "hypothesis"}), tmp_path, name)
    assert len(entries(tmp_path)) == 1
    kept(tmp_path, crowd(prompt=6)).rename(tmp_path / "diff-of-mine.json")
    write_scenario(crowd(prompt=7, origin={"rule": "NAN-R40"}), tmp_path, "flaky-NAN-R40")
    assert len(entries(tmp_path)) == 3


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        (None, "$.origin.rule: nothing; valid: the id of a rule"),
        ({"rule": ""}, "$.origin.rule: nothing; valid: the id of a rule"),
        ({"rule": 3}, "$.origin.rule: 3: Expected `str`, got `int`"),
        ({"rule": "R", "shape": []}, "$.origin.shape: []: Expected `str`, got `array`"),
        ({"rule": "R", "found_on": "x"}, '$.origin.found_on: "x": Expected `object`, got `str`'),
    ],
)
def test_a_file_that_does_not_say_what_it_is_about_is_refused_with_the_path(tmp_path, origin, says):
    path = written(tmp_path / "a.json", replace(crowd(), origin=origin))  # type: ignore[arg-type]
    with pytest.raises(FileError) as refused:
        entries(tmp_path)
    assert str(refused.value).startswith(f"{path}: {says}")


def test_there_must_be_a_folder(tmp_path):
    with pytest.raises(FileError, match="there is no such folder; `schedproof corpus add"):
        entries(tmp_path / "none")
    with pytest.raises(FileError, match="is not a folder"):
        entries(written(tmp_path / "a.json", crowd()))


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    secret = kept(tmp_path / "elsewhere", crowd())
    corpus = tmp_path / "corpus"
    kept(corpus, calm())
    (corpus / "link.json").symlink_to(secret)
    with pytest.raises(FileError, match="a link to a file outside the corpus"):
        entries(corpus)


def test_adding_replaces_a_link_and_writes_nothing_through_it(tmp_path):
    path = kept(tmp_path / "corpus", crowd())
    outside = tmp_path / "outside"
    outside.write_text("mine")
    path.unlink()
    path.symlink_to(outside)
    assert kept(tmp_path / "corpus", crowd()) == path
    assert not path.is_symlink()
    assert outside.read_text() == "mine"


def test_removing_takes_the_file_away_and_says_when_it_cannot(tmp_path):
    kept(tmp_path, crowd())
    [entry] = entries(tmp_path)
    corpus_folder.remove(entry)
    assert entries(tmp_path) == []
    with pytest.raises(FileError, match="cannot be removed"):
        corpus_folder.remove(entry)


def test_an_origin_without_a_target_is_short():
    assert str(Origin("R").found_on) == ""
