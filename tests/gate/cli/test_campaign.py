"""`schedproof campaign`: what is said of options, and what a ledger tells."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedproof.gate.campaign.campaign import Campaign
from schedproof.gate.campaign.executors import code
from schedproof.gate.campaign.items import Proving, Sample
from schedproof.gate.campaign.ledger import Done, opened
from schedproof.gate.campaign.options import CampaignOptions
from schedproof.gate.campaign.results import Result
from schedproof.gate.campaign.running import rules_of
from schedproof.gate.campaign.settings import Settings, pairs_of
from schedproof.gate.cli import app
from schedproof.gate.cli.campaign import _seconds
from schedproof.model.errors import InputError

from ..campaign.fake import Erratic

Run = Callable[..., tuple[int, str, str]]
SETTINGS = Settings(
    seed=3, pairs=pairs_of(["nano_vllm"], ["0.2.0"]), scales={"small": {}}, code=code()
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def ran(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["schedproof", "campaign", *words])
        with pytest.raises(SystemExit) as ended:
            app.main()
        reported = capsys.readouterr()
        return int(ended.value.code or 0), reported.out, reported.err

    return ran


def filled(path: Path, settings: Settings = SETTINGS, items: int = 60) -> Path:
    with opened(path, write=True) as ledger:
        Campaign(
            settings, ledger, Erratic(0), items, float("inf"), lambda _: None, lambda _: None
        ).run()
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--budget: not given; valid: a time, such as 2h, or --items N"),
        (["--budget", "2x"], "--budget: '2x'; valid: a time, as 2h, 30m, 45s or 1h30m"),
        (["--budget", "0s"], "--budget: '0s'; valid: a time, as 2h, 30m, 45s or 1h30m"),
        (["--items", "0"], "--items: 0; valid: at least 1"),
        (["--items", "1", "--workers", "0"], "--workers: 0; valid: at least 1"),
        (["--items", "1", "--seed", "-1"], "--seed: -1; valid: at least 0"),
        (["--items", "1", "--system", "tgi"], "--system: 'tgi' is not a system; valid: spyre"),
        (["--items", "1", "--revision", "9"], "--revision: '9' is not a revision of spyre, "),
        (["--items", "1", "--engine", "spin"], "--engine: 'spin'; valid with target model: "),
        (["--items", "1", "--rule", "SPY-R99"], "'SPY-R99'"),
        (
            ["--items", "1", "--target", "m:f", "--engine", "z3"],
            "--engine: 'z3'; valid with target m:f: hypothesis",
        ),
        (["--items", "1", "--cluster", "here"], "--cluster: 'here'; valid: tcp://HOST:PORT"),
        (
            ["--items", "1", "--cluster", "tcp://h:1", "--workers", "2"],
            "--workers: a cluster has its own; valid: --workers or --cluster",
        ),
        (
            ["--report", "--budget", "1h"],
            "--report: runs nothing; valid beside it: --ledger, --merge, --out",
        ),
        (["--report", "--ledger", "none"], "none: there is no such file; valid: the ledger of "),
        (
            ["--merge", "a", "--ledger", "a"],
            "--merge: a is the ledger itself; valid: another one",
        ),
    ],
)
def test_bad_options_are_one_line(words: list[str], said: str, run: Run) -> None:
    exit_code, out, err = run(*words)
    assert exit_code == 2
    assert out == ""
    assert err.startswith("schedproof: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "4"], "--seed: 4; L was begun with 3; valid: the same, or another --ledger"),
        (["--system", "vllm"], "--system and --revision: vllm documented; L was begun with "),
        (["--engine", "z3"], "--engine: z3; L was begun with hypothesis, explore, z3; "),
        (["--rule", "NAN-R40"], "--rule: NAN-R40; L was begun with all; "),
        (["--target", "m:f"], "--target: m:f; L was begun with model; "),
        (["--database", "d"], "--database: True; L was begun with False; "),
    ],
)
def test_options_that_contradict_the_ledger_are_refused(
    words: list[str], said: str, run: Run
) -> None:
    filled(Path("L"), items=1)
    exit_code, _, err = run("--ledger", "L", "--items", "9", *words)
    assert exit_code == 2
    assert said in err
    assert err.count("\n") == 1


def test_the_same_command_goes_on_with_a_campaign_of_a_target() -> None:
    begun = replace(
        SETTINGS,
        seed=0,
        pairs=pairs_of(["nano_vllm"], ["documented"]),
        engines=("hypothesis",),
        target="m:f",
    )
    nothing = CampaignOptions(*[None] * len(CampaignOptions._fields))
    for words in (
        {"systems": ("nano_vllm",)},
        {"systems": ("nano_vllm",), "revisions": ("documented",)},
    ):
        asked = nothing._replace(target="m:f", **words)
        assert asked.settings(Path("L"), [begun]) is begun
    other = nothing._replace(target="m:f", systems=("nano_vllm",), revisions=("0.2.0",))
    with pytest.raises(InputError, match="was begun with nano_vllm documented"):
        other.settings(Path("L"), [begun])


def test_a_ledger_of_another_version_is_refused(run: Run) -> None:
    filled(Path("L"), Settings(pairs=SETTINGS.pairs, scales=SETTINGS.scales, code="older"), 1)
    exit_code, _, err = run("--ledger", "L", "--items", "9")
    assert (exit_code, err.count("\n")) == (2, 1)
    assert (
        "L was begun by another version of schedproof, Hypothesis or Z3; valid: another file" in err
    )
    filled(Path("M"), items=1)
    exit_code, _, err = run("--ledger", "L", "--merge", "M")
    assert (exit_code, err.count("\n")) == (2, 1)
    assert (
        "of different versions of schedproof, Hypothesis or Z3; valid: ledgers of one version"
        in err
    )


def test_a_ledger_tells_what_is_in_it(run: Run) -> None:
    filled(Path("L"))
    exit_code, out, _ = run("--ledger", "L", "--report")
    assert exit_code == 1
    assert "explore: " in out
    assert "nano_vllm 0.2.0: " in out
    assert "BROKEN" in out
    replays = [line for line in out.splitlines() if "schedproof replay" in line]
    assert replays
    for line in replays:
        assert Path(line.split()[3]).is_file()


def test_items_without_a_result_and_rules_never_at_stake_are_no_verdict(run: Run) -> None:
    item = Sample(system="nano_vllm", revision="0.2.0", scale="small", seed=1, examples=1)
    with opened(Path("L"), write=True) as ledger:
        ledger.begin(SETTINGS)
        ledger.put([Done(item, Result(failed="OSError: why", complete=False), 0.0, "")])
    exit_code, out, _ = run("--ledger", "L", "--report")
    assert exit_code == 3
    assert "has no result: OSError: why" in out
    assert "0 of 34 rules exercised; never " in out


@pytest.mark.parametrize("status", ["refuted", "unguarded", "unknown", "proven"])
def test_a_lemma_that_is_not_proven_is_told_and_no_pass(status: str, run: Run) -> None:
    rules = {rule.id: 1 for rule in rules_of("nano_vllm", "0.2.0")}
    item = Proving(system="nano_vllm", revision="0.2.0", rule="NAN-R40", block=64)
    with opened(Path("L"), write=True) as ledger:
        ledger.begin(SETTINGS)
        ledger.put([Done(item, Result(says={"lemma": status}, exercised=rules), 0.0, "")])
    exit_code, out, _ = run("--ledger", "L", "--report")
    line = f"NAN-R40 (nano_vllm 0.2.0, block 64): lemma: {status}"
    assert (exit_code, line in out) == ((0, False) if status == "proven" else (3, True))


def test_an_empty_ledger_is_no_verdict(run: Run) -> None:
    with opened(Path("L"), write=True):
        pass
    assert run("--ledger", "L", "--report")[:2] == (3, "no verdict after 0 items\n")


def test_a_conflict_is_told(run: Run) -> None:
    item = Sample(system="nano_vllm", revision="0.2.0", scale="small", seed=1, examples=1)
    for path, steps in (("L", 1), ("M", 2)):
        with opened(Path(path), write=True) as ledger:
            ledger.begin(SETTINGS)
            ledger.put([Done(item, Result(steps=steps), 0.0, "")])
    exit_code, out, _ = run("--ledger", "L", "--merge", "M")
    assert exit_code == 3
    assert "gave another result elsewhere: see table conflicts" in out


def test_of_merged_campaigns_the_seed_says_which_goes_on(run: Run) -> None:
    filled(Path("L"), items=1)
    other = Settings(seed=5, pairs=SETTINGS.pairs, scales=SETTINGS.scales, code=code())
    filled(Path("M"), other, items=1)
    run("--ledger", "L", "--merge", "M")
    exit_code, _, err = run("--ledger", "L", "--items", "1")
    assert exit_code == 2
    assert "--seed: L holds 2 campaigns, of seeds 3, 5; valid: one" in err


@pytest.mark.parametrize(
    ("budget", "seconds"), [("2h", 7200), ("1h30m", 5400), ("45s", 45), ("0.5m", 30), ("1d", 86400)]
)
def test_a_budget_is_a_time(budget: str, seconds: float) -> None:
    assert _seconds(budget) == seconds


@pytest.mark.parametrize("budget", ["", "2", "h", "-1h", "1m1h", "1 h", "٣h"])
def test_anything_else_is_no_budget(budget: str) -> None:
    with pytest.raises(InputError, match="--budget"):
        _seconds(budget)
