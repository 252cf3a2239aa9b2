"""The ledger: what is refused, what is kept, and the union of two."""

import os
import sqlite3
from pathlib import Path

import pytest

from schedproof.gate.campaign.executors import code
from schedproof.gate.campaign.items import Proving, Sample
from schedproof.gate.campaign.ledger import Done, Ledger, LedgerError, _make, opened
from schedproof.gate.campaign.options import CampaignOptions
from schedproof.gate.campaign.results import Failure, NearMiss, Result
from schedproof.gate.campaign.settings import Settings
from schedproof.model.errors import InputError
from schedproof.model.scenario import Request, Scenario

SCENARIO = Scenario(
    system="vllm",
    revision="documented",
    requests=(Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=2),),
)
FAILURE = Failure(rule="V1-I2", shape="V1-I2: #", message="3", scenario=SCENARIO)


def sample(seed: int) -> Sample:
    return Sample(system="vllm", revision="documented", scale="small", seed=seed, examples=1)


def done(seed: int, steps: int = 1, failures: tuple[Failure, ...] = ()) -> Done:
    return Done(sample(seed), Result(scenarios=1, steps=steps, failures=failures), 0.5, "here")


def filled(path: Path, *results: Done, seed: int = 0) -> Path:
    with opened(path, write=True) as ledger:
        ledger.begin(Settings(seed=seed))
        ledger.put(results)
    return path


def merged(path: Path, *others: Path) -> Ledger:
    for other in others:
        with opened(other, write=False) as theirs, opened(path, write=True) as ledger:
            ledger.merge(theirs)
            content = ledger.content()
    return content


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    result = Result(
        scenarios=3,
        exercised={"V1-I2": 4},
        near={"num_blocks": NearMiss(left=2, config={"num_blocks": 9})},
        failures=(FAILURE,),
    )
    question = Proving(system="vllm", revision="documented", rule="V1-I2", block=64)
    path = filled(tmp_path / "ledger", Done(sample(1), result, 1.0, "w"), done(2))
    with opened(path, write=True) as ledger:
        ledger.put([Done(question, Result(says={"lemma": "proven"}), 1.0, "w")])
        assert ledger.rows("SELECT * FROM witnesses") == [("vllm", "documented", "V1-I2", 4)]
        assert ledger.rows("SELECT * FROM near_misses") == [("vllm", "documented", "num_blocks", 2)]
        assert list(ledger.failures()) == [(sample(1), FAILURE)]
        assert ledger.campaigns() == [Settings()]


def test_a_second_result_of_an_item_does_not_count(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger", done(1, steps=1), done(1, steps=2))
    with opened(path, write=False) as ledger:
        assert [content for _, content in ledger.content()["results"]] == [
            '{"scenarios":1,"steps":1}'
        ]


def test_where_and_how_long_an_item_ran_is_no_part_of_the_content(tmp_path: Path) -> None:
    here = filled(tmp_path / "here", done(1))
    there = filled(tmp_path / "there", done(1)._replace(seconds=9.0, worker="there"))
    with opened(here, write=False) as one, opened(there, write=False) as other:
        assert one.content() == other.content()
        assert one.rows("SELECT worker FROM results") != other.rows("SELECT worker FROM results")


def test_merging_is_the_union_in_any_order(tmp_path: Path) -> None:
    parts = [(done(1), done(2)), (done(2), done(3, failures=(FAILURE,))), (done(4),)]
    whole = []
    for name, order in (("a", (0, 1, 2)), ("b", (2, 1, 0)), ("c", (1, 2, 0))):
        files = [filled(tmp_path / f"{name}{n}", *parts[n], seed=n) for n in order]
        whole.append(merged(*files))
    assert whole[0] == whole[1] == whole[2]
    assert len(whole[0]["results"]) == 4
    assert len(whole[0]["campaigns"]) == 3
    assert whole[0]["conflicts"] == []


def test_merging_with_what_was_merged_before_changes_nothing(tmp_path: Path) -> None:
    one = filled(tmp_path / "one", done(1))
    other = filled(tmp_path / "other", done(1, steps=2), done(2))
    once = merged(one, other)
    assert merged(one, other, other) == once


def test_results_that_differ_are_conflicts_in_any_order(tmp_path: Path) -> None:
    contents = []
    for name, order in (("a", (1, 2, 3)), ("b", (3, 1, 2)), ("c", (2, 3, 1))):
        files = [filled(tmp_path / f"{name}{steps}", done(9, steps)) for steps in order]
        contents.append(merged(*files))
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]["conflicts"]) == 3
    assert len(contents[0]["results"]) == 1


def shown(seed: int, steps: int) -> Done:
    """An item with a result of which every sum takes something."""
    result = Result(
        steps=steps,
        exercised={"V1-I2": steps, f"V1-R0{steps}": 1},
        near={"num_blocks": NearMiss(left=steps, config={"num_blocks": 9})},
        complete=steps > 1,
    )
    return Done(sample(seed), result, 1.0, "w")


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_what_is_summed_up_is_what_the_results_say(tmp_path: Path, order: tuple[int, ...]) -> None:
    # Item 9 has three results, of which one is kept, and with it its share in the sums.
    ours = [filled(tmp_path / f"{one}", shown(one, one), shown(9, one)) for one in order]
    merged(*ours)
    with opened(ours[0], write=False) as ledger:
        engine, items, broken_off, scenarios, steps, seconds = ledger.rows("SELECT * FROM ran")[0]
        assert (engine, items, broken_off) == ("hypothesis", 4, 2)
        assert (scenarios, steps, seconds) == (0, 1 + 2 + 3 + 1, 4.0)
        assert ledger.rows("SELECT rule, times FROM witnesses") == [
            *(("V1-I2", 1 + 2 + 3 + 1), ("V1-R01", 2), ("V1-R02", 1), ("V1-R03", 1))
        ]
        assert ledger.rows('SELECT "limit", "left" FROM near_misses') == [("num_blocks", 1)]


def test_a_near_miss_of_a_result_that_was_replaced_does_not_count(tmp_path: Path) -> None:
    near = {"num_blocks": NearMiss(left=1, config={"num_blocks": 9})}
    larger = filled(tmp_path / "one", Done(sample(9), Result(near=near), 1.0, "w"))
    smaller = filled(tmp_path / "two", Done(sample(9), Result(complete=False), 1.0, "w"))
    merged(larger, smaller)
    with opened(larger, write=False) as ledger:
        assert ledger.rows("SELECT content FROM results") == [('{"complete":false}',)]
        assert ledger.rows("SELECT * FROM near_misses") == []


def test_findings_of_both_are_there(tmp_path: Path) -> None:
    paths = []
    for name, findings in (
        ("one", [(b"q1", FAILURE), (b"q2", None)]),
        ("two", [(b"q2", FAILURE), (b"q3", None)]),
    ):
        paths.append(filled(tmp_path / name))
        with opened(paths[-1], write=True) as ledger:
            ledger.keep_findings(findings)
    merged(*paths)
    with opened(paths[0], write=False) as ledger:
        assert ledger.findings() == {b"q1": FAILURE, b"q2": FAILURE, b"q3": None}


def test_only_one_campaign_writes(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger", done(1))
    with opened(path, write=True):
        with pytest.raises(LedgerError, match="another campaign is writing"):
            opened(path, write=True).__enter__()
        with opened(path, write=False) as reader:
            assert len(reader.content()["results"]) == 1


def test_a_ledger_that_was_made_meanwhile_stays(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger", done(1))
    _make(path)
    with opened(path, write=False) as ledger:
        assert len(ledger.content()["results"]) == 1
    assert not list(tmp_path.glob("*.new"))


def test_what_is_no_ledger_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no database, " * 100, encoding="utf-8")
    other = tmp_path / "other"
    with sqlite3.connect(other) as base:
        base.execute("CREATE TABLE t (x)")
    base.close()
    for path in (text, other):
        before = path.read_bytes()
        for write in (True, False):
            with pytest.raises(LedgerError, match=r"not a ledger.*valid: ") as refused:
                opened(path, write=write).__enter__()
            assert str(refused.value).startswith(f"{path}: ")
        assert path.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"text", "other"}


def test_a_ledger_in_a_folder_that_takes_no_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "ledger", done(1))
    monkeypatch.setattr(os, "access", lambda *asked: False)  # what root may write is no test
    with opened(path, write=False) as ledger:
        assert len(ledger.content()["results"]) == 1
        assert {one.name for one in tmp_path.iterdir()} == {"ledger", "ledger.lock"}


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger")
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 1")
    base.close()
    with pytest.raises(
        LedgerError, match=r"a ledger of schema 1, .* reads schema 2; valid: a new file"
    ):
        opened(path, write=True).__enter__()


def test_what_is_damaged_where_sqlite_quotes_it_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger")
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
    base.close()
    path.write_bytes(path.read_bytes().replace(b"failing", b"\xff\xfe(ling"))
    told = pytest.raises(LedgerError, match="damaged, and no text where it names what is")
    with told, opened(path, write=False) as ledger:
        ledger.campaigns()


def test_a_ledger_that_is_not_there_is_not_made_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no such file"):
        opened(tmp_path / "ledger", write=False).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot be written to"):
        opened(tmp_path / "file" / "ledger", write=True).__enter__()


def test_a_ledger_that_failed_to_be_written_can_be_written_again(tmp_path: Path) -> None:
    path = filled(tmp_path / "ledger", done(1))
    with pytest.raises(ValueError, match="in its middle") as failed, opened(path, write=True):
        raise ValueError("in its middle")
    with opened(path, write=True):  # while the traceback still holds the frames
        assert failed.value


def test_a_finding_of_no_rule_is_refused_since_its_rule_names_a_file(tmp_path: Path) -> None:
    hostile = Failure(rule="../../elsewhere", shape="x", message="3", scenario=SCENARIO)
    path = filled(tmp_path / "ledger", done(1))
    with opened(path, write=True) as ledger:
        ledger.keep_findings([(b"{}", hostile)])
        with pytest.raises(LedgerError, match=r"a finding of no rule '\.\./\.\./elsewhere'"):
            ledger.findings()


def test_a_target_that_only_the_ledger_names_is_not_run(tmp_path: Path) -> None:
    begun = Settings(target="cmd:./anything", code=code())
    asked = CampaignOptions(*[None] * len(CampaignOptions._fields))
    with pytest.raises(InputError, match=r"^--target: .* was begun with cmd:\./anything; valid"):
        asked.settings(tmp_path / "ledger", [begun])
    said = asked._replace(target="cmd:./anything")
    assert said.settings(tmp_path / "ledger", [begun]) is begun
