"""The ledger: what is refused, what is kept, and what a kill leaves."""

from pathlib import Path

import msgspec
import pytest

from schedproof.gate.campaign.items import (
    Failure,
    Kind,
    Result,
    Sample,
    Settings,
    Shrinking,
    canonical,
)
from schedproof.gate.campaign.ledger import Done, LedgerError, open_ledger, read_ledger
from schedproof.gate.campaign.options import CampaignOptions
from schedproof.gate.processes.executors import our_code
from schedproof.model.errors import InputError
from schedproof.model.scenario import Request, Scenario

from .work import content_of

KIND = Kind(system="vllm", revision="documented", scale="small")
SETTINGS = Settings(pairs=(("vllm", "documented"),), kinds=(KIND,))
SCENARIO = Scenario(
    system="vllm",
    revision="documented",
    requests=(Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=2),),
)
FAILURE = Failure(rule="V1-I2", shape="V1-I2: #", message="3", scenario=SCENARIO)


def sample(seed):
    return Sample(kind=KIND, seed=seed, examples=1)


def done(seed, steps=1, failures=()):
    return Done(sample(seed), Result(scenarios=1, steps=steps, failures=failures), 0.5, "here")


def filled(path, *records):
    with open_ledger(path, lambda begun: begun or SETTINGS) as ledger:
        for record in records:
            ledger.write(record)
    return path


def test_what_was_written_is_read_again(tmp_path):
    shown = Result(scenarios=3, steps=9, exercised={"V1-I2": 4}, failures=(FAILURE,))
    failed = Result(complete=False, failed="OSError: why")
    question = Shrinking(failure=FAILURE)
    path = filled(
        tmp_path / "ledger",
        Done(sample(1), shown, 1.0, "w"),
        Done(sample(2), failed, 0.5, "w"),
        Done(question, Result(scenarios=1, failures=(FAILURE,))),
    )
    ledger = read_ledger(path)
    assert ledger.settings == SETTINGS
    assert (ledger.items, ledger.incomplete) == (2, 1)
    assert (ledger.scenarios, ledger.steps, ledger.seconds) == (3, 9, 1.5)
    assert ledger.exercised == {("vllm", "documented"): {"V1-I2": 4}}
    assert list(ledger.failed.values()) == ["OSError: why"]
    assert list(ledger.failures_to_shrink().values()) == [question]
    assert ledger.findings == dict.fromkeys(ledger.failures_to_shrink(), FAILURE)
    assert sample(1) in ledger
    assert sample(3) not in ledger


def test_a_second_result_of_an_item_does_not_count(tmp_path):
    path = filled(tmp_path / "ledger", done(1, steps=1), done(1, steps=2))
    assert list(content_of(path)["items"].values()) == ['{"scenarios":1,"steps":1}']
    with path.open("ab") as file:
        file.write(canonical(done(1, steps=3)) + b"\n")
    assert read_ledger(path).steps == 1


def test_where_and_how_long_an_item_ran_is_no_part_of_the_content(tmp_path):
    here = filled(tmp_path / "here", done(1))
    there = filled(tmp_path / "there", msgspec.structs.replace(done(1), seconds=9.0, worker="x"))
    assert content_of(here) == content_of(there)
    assert here.read_bytes() != there.read_bytes()


def test_whatever_a_kill_leaves_of_the_last_line_is_dropped(tmp_path):
    path = filled(tmp_path / "ledger", done(1), done(2, failures=(FAILURE,)))
    whole = path.read_bytes()
    kept = whole[: whole.rstrip(b"\n").rindex(b"\n") + 1]
    for length in range(len(kept), len(whole), 7):
        path.write_bytes(whole[:length])
        assert read_ledger(path).items == 1
    filled(path, done(3))
    assert path.read_bytes() == kept + canonical(done(3)) + b"\n"


def test_a_long_half_line_is_dropped(tmp_path):
    path = filled(tmp_path / "ledger", done(1))
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * 200_000)
    filled(path)
    assert path.read_bytes() == whole


def test_what_is_damaged_is_told_by_its_line(tmp_path):
    path = filled(tmp_path / "ledger", done(1), done(2))
    whole = path.read_bytes()
    for damage in (b"\xff\n", b"{}\n", b"[" * 100_000 + b"\n"):
        path.write_bytes(whole + damage + canonical(done(3)) + b"\n")
        with pytest.raises(LedgerError, match="line 4: "):
            read_ledger(path)
    path.write_bytes(whole.replace(b'"scale":"small"', b'"scale":"large"', 1))
    with pytest.raises(LedgerError, match="line 1: 'large' is not a scale"):
        read_ledger(path)


@pytest.mark.parametrize(
    ("line", "before", "after"),
    [(1, b'"pairs"', b'"sneed":1,"pairs"'), (2, b'"scenarios":1', b'"scenarios":-5')],
)
def test_an_unknown_key_or_a_negative_count_is_told_by_its_line(line, before, after, tmp_path):
    path = filled(tmp_path / "ledger", done(1))
    path.write_bytes(path.read_bytes().replace(before, after, 1))
    with pytest.raises(LedgerError, match=f"line {line}: "):
        read_ledger(path)


def test_items_without_a_result_are_incomplete(tmp_path):
    failed = Done(sample(1), Result(failed="why"), 0.5, "w")
    assert read_ledger(filled(tmp_path / "ledger", failed)).incomplete == 1


def test_a_full_disk_is_told_and_the_ledger_can_be_gone_on_with(tmp_path):
    class Full:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            return self.file.write(data[:9])  # type: ignore[attr-defined, no-any-return]

    path = tmp_path / "ledger"
    with open_ledger(path, lambda _: SETTINGS) as ledger:
        ledger._file = Full(ledger._file)  # type: ignore[assignment]
        with pytest.raises(LedgerError, match="cannot be written to"):
            ledger.write(done(1))
    assert read_ledger(path).items == 0
    assert read_ledger(filled(path, done(1))).items == 1


def test_only_one_campaign_writes(tmp_path):
    path = filled(tmp_path / "ledger", done(1))
    with open_ledger(path, lambda _: SETTINGS):
        with pytest.raises(LedgerError, match="another campaign is writing"):
            open_ledger(path, lambda _: SETTINGS).__enter__()
        assert read_ledger(path).items == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_folder_without_room_for_the_lock_is_not_another_campaign():
    with pytest.raises(LedgerError, match="/proc/x: cannot be written to"):
        open_ledger(Path("/proc/x"), lambda _: SETTINGS).__enter__()


def test_the_lock_is_not_created_through_a_link(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "ledger.lock").symlink_to(elsewhere)
    with pytest.raises(LedgerError, match="cannot be written to"):
        open_ledger(tmp_path / "ledger", lambda _: SETTINGS).__enter__()
    assert not elsewhere.exists()


def test_a_ledger_that_was_made_meanwhile_stays(tmp_path, monkeypatch):
    path = filled(tmp_path / "ledger", done(1))
    begun: list[Settings | None] = []
    exists, answers = Path.exists, [False]  # at the first look it was not there
    monkeypatch.setattr(Path, "exists", lambda self: answers.pop() if answers else exists(self))
    with open_ledger(path, lambda settings: begun.append(settings) or SETTINGS) as ledger:  # type: ignore[func-returns-value]
        assert ledger.items == 1
    assert begun == [SETTINGS]


def test_what_is_no_ledger_is_refused_and_left_as_it_is(tmp_path):
    for name, text in (("text", "no ledger, " * 100), ("json", '{"format":"x"}\n'), ("empty", "")):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        for use in (read_ledger, filled):
            with pytest.raises(LedgerError, match=r"not a ledger.*valid: ") as refused:
                use(path)
            assert str(refused.value).startswith(f"{path}: ")
        assert path.read_text(encoding="utf-8") == text
    assert {path.name for path in tmp_path.iterdir()} == {"text", "json", "empty"}


def test_another_format_is_refused(tmp_path):
    path = filled(tmp_path / "ledger")
    path.write_bytes(path.read_bytes().replace(b"campaign@1", b"campaign@0"))
    expected = (
        r"a ledger in the format schedproof/campaign@0, .* reads schedproof/campaign@1; valid"
    )
    with pytest.raises(LedgerError, match=expected):
        filled(path)


def test_a_ledger_that_is_not_there_is_not_made_to_be_read(tmp_path):
    with pytest.raises(LedgerError, match="there is no such file"):
        read_ledger(tmp_path / "ledger")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot be written to"):
        filled(tmp_path / "file" / "ledger")


def test_a_campaign_that_cannot_begin_leaves_no_ledger(tmp_path):
    def refused(_):
        raise InputError("--rule", "none")

    with pytest.raises(InputError):
        open_ledger(tmp_path / "ledger", refused).__enter__()
    assert not (tmp_path / "ledger").exists()


def test_a_ledger_that_failed_to_be_written_can_be_written_again(tmp_path):
    path = filled(tmp_path / "ledger", done(1))
    with (
        pytest.raises(ValueError, match="in its middle") as failed,
        open_ledger(path, lambda _: SETTINGS),
    ):
        raise ValueError("in its middle")
    with open_ledger(path, lambda _: SETTINGS):  # while the traceback still holds the frames
        assert failed.value


def test_a_finding_of_no_rule_is_refused_since_its_rule_names_a_file(tmp_path):
    hostile = Failure(rule="../../elsewhere", shape="x", message="3", scenario=SCENARIO)
    path = filled(
        tmp_path / "ledger", Done(Shrinking(failure=FAILURE), Result(failures=(hostile,)))
    )
    with pytest.raises(LedgerError, match=r"line 2: no rule '\.\./\.\./elsewhere'"):
        read_ledger(path)


def test_a_target_that_only_the_ledger_names_is_not_run(tmp_path):
    begun = Settings(target="cmd:./anything", code=our_code())
    options = CampaignOptions()
    with pytest.raises(InputError, match=r"^--target: .* was started with cmd:\./anything; valid"):
        options.settings(tmp_path / "ledger", begun)
    named = options._replace(target="cmd:./anything")
    assert named.settings(tmp_path / "ledger", begun) is begun
