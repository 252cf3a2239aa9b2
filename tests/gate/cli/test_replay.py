"""`schedproof replay`: every step, what broke and why, and what was expected."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from schedproof.gate.cli import replay as command
from schedproof.gate.judging.context import replay_options
from schedproof.gate.targets.target_spec import blame, parse_target
from schedproof.model.target import ModelTarget

from ..toys import broken_scenario, spyre_scenario, written

pytestmark = pytest.mark.usefixtures("folder")


def test_a_scenario_that_holds_shows_its_steps_and_is_exit_0(run):
    result = run("replay", written("s.json", expect={"holds": True}))
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[0].startswith("step     0 prefill r0+5")
    assert result.out.splitlines()[-1] == (
        "no rule is broken in 8 steps (27 of 37 rules were exercised)"
    )
    assert len(run("replay", "s.json", "--quiet").out.splitlines()) == 1


def test_a_scenario_that_breaks_a_rule_shows_all_about_it(run):
    result = run("replay", broken_scenario(), "--quiet")
    assert (result.code, result.err) == (1, "")
    for part in (
        "BROKEN SPY-R47 no join beyond the limit",
        "rule:     The last chunk runs only if",
        "source:   Spyre scheduling page",
        "config:   spyre documented, block_size",
        "scenario: s.json",
        "replay:   schedproof replay s.json\n",
    ):
        assert part in result.out
    assert re.search(r"step \d+:  .*\d+", result.out)
    assert "expected" not in result.out


def release_scenario(config, *requests):
    small = {"block_size": 4, "chunk_size": 8, "max_num_seqs": 4, "max_model_len": 64}
    return {"revision": "2.5.2", "config": small | config, "requests": list(requests)}


@pytest.mark.parametrize(
    ("scenario", "rule", "why"),
    [
        (
            release_scenario(
                {"max_batch_tkv": 64},
                {"id": "r0", "arrival": 0, "prompt": [["r0", 33]], "max_tokens": 20},
                {"id": "r1", "arrival": 0, "prompt": [["r1", 1]], "max_tokens": 2},
                {"id": "r2", "arrival": 0, "prompt": [["r2", 1]], "max_tokens": 1},
            ),
            "SPY-R52",
            [
                "the decoding requests have left, r0 is paused and no request runs: an empty batch",
                "admits the next prefill before checking whether a request is paused",
            ],
        ),
        (
            release_scenario(
                {"max_batch_tkv": 256, "num_blocks": 20},
                {"id": "r0", "arrival": 0, "prompt": [["r0", 8]], "max_tokens": 40, "abort_at": 3},
                {"id": "r1", "arrival": 4, "prompt": [["r1", 8]], "max_tokens": 40},
            ),
            "SPY-R35",
            [
                "step 3: r0 is aborted before the decision, and 9 blocks stay promised to it "
                "forever: only requests that finish after the decision return their promises",
                "step 4: r1 needs 12 of the 20 blocks, but 9 of them are reserved for no request",
            ],
        ),
        (
            release_scenario(
                {"max_batch_tkv": 256, "chunk_size": 16, "prefix_caching": True},
                {"id": "r0", "arrival": 0, "prompt": [["r0", 4]], "max_tokens": 1},
                {
                    **{"id": "r1", "arrival": 0, "prompt": [["r0", 4], ["r1", 28]]},
                    **{"max_tokens": 2, "abort_at": 2},
                },
                {
                    **{"id": "r2", "arrival": 0, "prompt": [["r0", 4], ["r1", 28], ["r2", 1]]},
                    **{"max_tokens": 2},
                },
            ),
            "ALL-R08",
            [
                "step 2: r1 is aborted with 20 tokens published but only 16 computed; the blocks "
                "in between can still be found"
            ],
        ),
    ],
    ids=["forgotten paused", "lost blocks", "published ahead"],
)
def test_a_broken_rule_of_a_release_is_explained(scenario, rule, why, run):
    result = run("replay", written("s.json", **scenario), "--quiet", "--rule", rule)
    assert result.code == 1
    assert f"BROKEN {rule}" in result.out
    explained = result.out.partition("  why:\n")[2].partition("  scenario: ")[0]
    assert [line.removeprefix("    ") for line in explained.splitlines()] == why


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ({"violates": ["SPY-R47"]}, "as expected: the run breaks SPY-R47\n"),
        ({"violates": ["SPY-R35"]}, "not as expected: the run breaks SPY-R47; expected SPY-R35\n"),
        (
            {"holds": True},
            "not as expected: the run breaks SPY-R47; expected that every rule holds\n",
        ),
    ],
)
def test_an_expectation_is_compared_and_a_broken_rule_stays_exit_1(expect, says, run):
    result = run("replay", broken_scenario(expect=expect), "--quiet")
    assert result.code == 1
    assert result.out.splitlines(keepends=True)[-1] == says


def test_a_rule_that_was_expected_to_break_and_holds_is_exit_1(run):
    result = run("replay", written("s.json", expect={"violates": ["ALL-R03"]}), "--quiet")
    assert result.code == 1
    assert result.out == "not as expected: the run breaks no rule; expected ALL-R03\n"
    # This run does not exercise SPY-R07.
    result = run("replay", written("s.json", expect={"violates": ["SPY-R07"]}), "--quiet")
    assert result.code == 3
    assert result.out.endswith(
        "\nSPY-R07 is never exercised on this target, or cannot be checked there; no verdict\n"
    )


def test_a_step_that_differs_is_named_with_its_cell_and_exit_1(run):
    steps = [
        {"step": 0, "kind": "prefill", "scheduled": {"r0": 5}, "blocks": {"r0": [1, 2]}},
        {"step": 1, "scheduled": {"r1": 8}, "tkv": 7, "blocks": {"r0": [1, 2], "r1": [3, 4]}},
    ]
    result = run("replay", written("s.json", expect={"steps": steps}), "--quiet")
    assert result.code == 1
    lines = [line for line in result.out.splitlines() if line.startswith("not as expected")]
    assert "not as expected: step 1: scheduled is " in "\n".join(lines)
    assert not any("step 0" in line for line in lines)


def test_a_chosen_rule_that_a_replay_does_not_exercise_is_no_pass(run):
    path = written("s.json", requests=spyre_scenario()["requests"][:1])
    assert run("replay", path).code == 0
    result = run("replay", path, "--rule", "SPY-R24", "--quiet")
    assert (result.code, result.out) == (3, "never exercised: SPY-R24; no verdict\n")


def test_a_replay_of_refused_requests_is_no_pass(run, toy):
    words = ("--target", toy("Rejects"), "--quiet", "--rule", "ALL-R03")
    result = run("replay", written("s.json"), *words)
    assert result.code == 3
    assert result.out.splitlines() == [
        "r0 refused: no guests",
        "r1 refused: no guests",
        "never exercised: ALL-R03; no verdict",
    ]


def test_a_replay_on_a_broken_target_is_exit_3(run, toy):
    result = run("replay", written("s.json"), "--target", toy("Missing"))
    assert result.code == 3
    assert result.err == (
        "schedproof: ADAPTER: at 'step' the step lacks the field waiting, although observes "
        "lists it\n"
    )


@pytest.mark.parametrize(("scheduler", "word", "code"), [("", "ADAPTER", 3), ("m:C", "BROKEN", 1)])
def test_what_a_release_says_of_a_class_of_the_users_is_the_fault_of_the_class(
    scheduler, word, code, run, monkeypatch
):
    def blame_the_adapter(*args, really=command.replay, **options):
        outcome = really(*args, **options)
        outcome.broken = [b._replace(by_adapter=True) for b in outcome.broken]
        return outcome

    spec = replace(parse_target("vllm==0.33.0"), scheduler=scheduler)
    monkeypatch.setattr(command, "replay", blame_the_adapter)
    monkeypatch.setattr(command, "blame", lambda broken, _: blame(broken, spec))
    result = run("replay", broken_scenario(), "--quiet")
    assert (result.code, result.out.splitlines()[0].split()[0]) == (code, word)


def test_only_a_release_or_a_checkout_has_start_up_checks_to_go_beyond(run):
    result = run("replay", written("s.json"), "--beyond-start-up")
    assert result.code == 2
    assert (
        "--beyond-start-up: model has no start-up checks; the option is valid with a release"
        in result.err
    )
    release = replace(parse_target("vllm==0.33.0"), beyond_start_up=True)
    assert replay_options(release, None) == " --target vllm==0.33.0 --beyond-start-up"


def test_a_target_that_says_whether_its_server_starts_is_quoted_below_a_failure(run, monkeypatch):
    def start(self, system, revision, config, really=ModelTarget.start):
        said = {"starts": True, "why": "release 1 its check"}
        return really(self, system, revision, config) | {"start_up": said}

    monkeypatch.setattr(ModelTarget, "start", start)
    result = run("replay", broken_scenario(), "--quiet")
    assert "  starts in production: yes, by release 1 its check\n" in result.out


FAILING = """
from schedproof.model.target import ModelTarget

class Crashes(ModelTarget):
    def step(self):
        raise ValueError("no")
"""


def test_two_targets_that_crash_are_not_compared_to_the_end(run, folder):
    Path("toys.py").write_text(FAILING, encoding="utf-8")
    both = ("--target", "toys:Crashes", "--base", "toys:Crashes")
    result = run("replay", written("s.json"), *both)
    assert result.code == 3
    assert result.out.startswith("not compared to the end: after 0 steps, both targets fail: the ")
    alone = run("replay", "s.json", *both[:2], "--base", "model")
    assert (alone.code, alone.out.startswith("DIFFERS crash")) == (1, True)


@pytest.mark.parametrize(
    "words",
    [("--rule", "ALL-R01"), ("--trace", "t"), ("--perfetto", "p"), ("--quiet",), ("--fold",)],
)
def test_an_option_that_a_base_makes_useless_is_refused(run, words):
    result = run("replay", written("s.json"), "--base", "model", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"schedproof: {words[0]}: cannot be used with a base: replay com")
    assert not Path("t").exists()
