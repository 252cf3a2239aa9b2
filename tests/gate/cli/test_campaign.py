"""`schedproof campaign`: what is said of options, and what a ledger tells."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedproof.gate.campaign.items import Kind, Result, Sample, Settings
from schedproof.gate.campaign.ledger import Done, open_ledger
from schedproof.gate.campaign.options import CampaignOptions, pairs_of
from schedproof.gate.campaign.running import run_campaign
from schedproof.gate.cli import app
from schedproof.gate.cli.campaign import _seconds
from schedproof.gate.processes.executors import our_code
from schedproof.model.errors import InputError

from ..campaign.fake import Erratic

KIND = Kind(system="nano_vllm", revision="0.2.0", scale="small")
SETTINGS = Settings(
    seed=3, pairs=pairs_of(["nano_vllm"], ["0.2.0"]), kinds=(KIND,), code=our_code()
)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def ran(*words):
        monkeypatch.setattr("sys.argv", ["schedproof", "campaign", *words])
        with pytest.raises(SystemExit) as ended:
            app.main()
        reported = capsys.readouterr()
        return int(ended.value.code or 0), reported.out, reported.err

    return ran


def filled(path, settings=SETTINGS, items=60):
    with open_ledger(path, lambda _: settings) as ledger:
        run_campaign(
            ledger,
            Erratic(0),
            items=items,
            ends=float("inf"),
            report=lambda _: None,
            progress=lambda _: None,
        )
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--budget: not given; valid: a time, such as 2h, or --items N"),
        (["--budget", "2x"], "--budget: '2x'; valid: a time, such as 2h, 30m, 45s or 1h30m"),
        (["--budget", "0s"], "--budget: '0s'; valid: a time, such as 2h, 30m, 45s or 1h30m"),
        (["--items", "0"], "--items: 0; valid: at least 1"),
        (["--items", "1", "--workers", "0"], "--workers: 0; valid: at least 1"),
        (["--items", "1", "--seed", "-1"], "--seed: -1; valid: at least 0"),
        (["--items", "1", "--system", "tgi"], "--system: 'tgi' is not a system; valid: spyre"),
        (["--items", "1", "--revision", "9"], "--revision: '9' is not a revision of spyre, "),
        (["--items", "1", "--rule", "SPY-R99"], "'SPY-R99'"),
        (
            ["--items", "1", "--target", "m:f", "--system", "vllm,spyre"],
            "--system and --revision: m:f is one target, so it needs one system and one revision; ",
        ),
        (["--items", "1", "--cluster", "here"], "--cluster: 'here'; valid: tcp://HOST:PORT"),
        (
            ["--items", "1", "--cluster", "tcp://h:1", "--workers", "2"],
            "--workers: a cluster has its own workers; valid: --workers or --cluster",
        ),
        (
            ["--report", "--budget", "1h"],
            "--report: runs nothing; only --ledger and --out are valid with it",
        ),
        (["--report", "--ledger", "none"], "none: there is no such file; valid: the ledger of "),
    ],
)
def test_bad_options_are_one_line(words, said, run):
    exit_code, out, err = run(*words)
    assert exit_code == 2
    assert out == ""
    assert err.startswith("schedproof: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "4"], "--seed: 4; L was started with 3; valid: the same, or another --ledger"),
        (["--system", "vllm"], "--system and --revision: vllm documented, vllm 0.25, "),
        (["--rule", "NAN-R40"], "--rule: NAN-R40; L was started with all; "),
        (["--target", "m:f"], "--target: m:f; L was started with model; "),
    ],
)
def test_options_that_contradict_the_ledger_are_refused(words, said, run):
    filled(Path("L"), items=1)
    exit_code, _, err = run("--ledger", "L", "--items", "9", *words)
    assert exit_code == 2
    assert said in err
    assert err.count("\n") == 1


def test_the_same_command_goes_on_with_a_campaign_of_a_target():
    begun = replace(SETTINGS, seed=0, pairs=pairs_of(["nano_vllm"], ["documented"]), target="m:f")
    nothing = CampaignOptions()
    for words in (
        {"systems": ("nano_vllm",)},
        {"systems": ("nano_vllm",), "revisions": ("documented",)},
    ):
        asked = nothing._replace(target="m:f", **words)
        assert asked.settings(Path("L"), begun) is begun
    other = nothing._replace(target="m:f", systems=("nano_vllm",), revisions=("0.2.0",))
    with pytest.raises(InputError, match="was started with nano_vllm documented"):
        other.settings(Path("L"), begun)


@pytest.mark.parametrize(
    ("target", "may_change"),
    [
        ("model", False),
        ("vllm==0.33.0", False),
        ("m:f", True),
        ("cmd:./s", True),
        ("nano-vllm:/co", True),
        (f"vllm==0.33.0:{__file__}:C", True),
    ],
)
def test_earlier_results_of_a_target_that_may_have_changed_are_named(
    target, may_change, run, monkeypatch
):
    monkeypatch.setattr("schedproof.gate.campaign.running.run_campaign", lambda *_, **__: None)
    monkeypatch.setattr(
        "schedproof.gate.processes.executors.make_executor", lambda *_: nullcontext()
    )
    filled(Path("L"), replace(SETTINGS, target=target), items=1)
    words = [] if target == "model" else ["--target", target]
    _, out, _ = run("--ledger", "L", "--items", "1", *words)
    says = f"1 item of earlier runs counts as well; if {target} has changed since, use a new --led"
    assert (says in out) == may_change
    filled(Path("N"), replace(SETTINGS, target=target), items=0)
    assert "of earlier runs" not in run("--ledger", "N", "--items", "1", *words)[1]


def test_a_pattern_of_rules_is_the_same_when_it_is_given_again():
    options = CampaignOptions(rules=("NAN-R*",), systems=("nano_vllm",))
    begun = options.settings(Path("L"), None)
    assert len(begun.rules) > 1
    assert options.settings(Path("L"), begun) is begun


def test_a_ledger_of_another_version_is_refused(run):
    filled(Path("L"), replace(SETTINGS, code="older"), 1)
    exit_code, _, err = run("--ledger", "L", "--items", "9")
    assert (exit_code, err.count("\n")) == (2, 1)
    assert "L was started by another version of schedproof, Hypothesis or Z3; valid: " in err


def test_a_ledger_tells_what_is_in_it(run):
    filled(Path("L"))
    exit_code, out, _ = run("--ledger", "L", "--report")
    assert exit_code == 1
    assert out.startswith("60 items, 3,600 runs, ")
    assert "nano_vllm 0.2.0: " in out
    assert "BROKEN" in out
    replays = [line for line in out.splitlines() if "schedproof replay" in line]
    assert replays
    for line in replays:
        assert Path(line.split()[3]).is_file()


def test_items_without_a_result_and_rules_never_at_stake_are_no_verdict(run):
    item = Sample(kind=KIND, seed=1, examples=1)
    with open_ledger(Path("L"), lambda _: SETTINGS) as ledger:
        ledger.write(Done(item, Result(failed="OSError: why", complete=False)))
    exit_code, out, _ = run("--ledger", "L", "--report")
    assert exit_code == 3
    assert "1 items (1 incomplete), 0 runs" in out
    assert "has no result: OSError: why" in out
    assert "0 of 36 rules exercised; never " in out


def test_where_every_rule_was_exercised_and_none_is_broken_it_passes(run):
    settings = replace(SETTINGS, rules=("NAN-R40",))
    item = Sample(kind=KIND, seed=1, examples=1, rules=settings.rules)
    with open_ledger(Path("L"), lambda _: settings) as ledger:
        ledger.write(Done(item, Result(scenarios=1, exercised={"NAN-R40": 1})))
    exit_code, out, _ = run("--ledger", "L", "--report")
    assert exit_code == 0
    assert out.endswith("no rule is broken in 1 items, and every rule was exercised\n")


def test_an_item_of_which_the_target_refused_every_run_is_no_verdict(run):
    settings = replace(SETTINGS, rules=("NAN-R40",))
    judged, refused = (
        Sample(kind=KIND, seed=seed, examples=1, rules=settings.rules) for seed in (1, 2)
    )
    with open_ledger(Path("L"), lambda _: settings) as ledger:
        ledger.write(Done(judged, Result(scenarios=1, exercised={"NAN-R40": 1})))
        ledger.write(Done(refused, Result(complete=False)))
    exit_code, out, _ = run("--ledger", "L", "--report")
    assert exit_code == 3
    assert "2 items (1 incomplete), 1 runs" in out
    assert "1 item incomplete: the target refused every run, or it hung\n" in out
    assert out.endswith("no verdict after 2 items\n")


def test_an_empty_ledger_is_no_verdict(run):
    with open_ledger(Path("L"), lambda _: replace(SETTINGS, pairs=())):
        pass
    assert run("--ledger", "L", "--report")[:2] == (3, "no verdict after 0 items\n")


@pytest.mark.parametrize(
    ("budget", "seconds"), [("2h", 7200), ("1h30m", 5400), ("45s", 45), ("0.5m", 30), ("1d", 86400)]
)
def test_a_budget_is_a_time(budget, seconds):
    assert _seconds(budget) == seconds


@pytest.mark.parametrize("budget", ["", "2", "h", "-1h", "1m1h", "1 h", "٣h"])
def test_anything_else_is_no_budget(budget):
    with pytest.raises(InputError, match="--budget"):
        _seconds(budget)
