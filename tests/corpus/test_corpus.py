"""Every scenario of the findings breaks, on the model of its release, the rule that it is for."""

from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.model.systems import make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.json"))
# What a release accepts and its model refuses at the door: the finding is on the release only.
REFUSED = [
    file
    for file in FILES
    if file.stem
    in {
        "lone-sequence-outgrows-the-pool",
        "beyond-the-budget-is-let-in",
        "beyond-the-budget-waits-for-ever",
    }
]
# What a release does that no model does: it is shown by a replay on the release only.
RELEASE_ALONE = [
    file
    for file in FILES
    if file.stem
    in {
        "first-token-comes-twice",
        "promises-run-out",
        "padded-and-cut-computes-its-prompt-twice",
        "scheduled-once-more-than-it-has-tokens",
        "alone-below-the-watermark",
        "loaded-behind-one-without-room",
        "loaded-in-part-before-one-that-holds-the-rest",
        "loaded-without-room-for-drafts",
        "only-the-first-full-group-is-cut",
        "preempted-for-nothing",
        "loads-into-what-is-written",
        "admitted-without-room-for-the-whole",
        "dropped-while-it-is-read",
        "radix-tree-outgrows-the-pool",
        "no-cap-is-no-integer",
        "cached-whole-loses-a-token",
        "evicted-and-never-back",
        "two-victims-free-the-first-twice",
        "equal-blocks-are-freed-once",
        "back-from-the-host-for-nothing",
        "left-out-after-its-hit",
        "prefilled-with-a-cache-for-another-instance",
        "a-long-prompt-waits-for-ever",
        "a-salt-is-taken-for-an-adapter",
        "an-invalid-grammar-ends-the-engine",
        "a-token-of-an-aborted-request",
        "skipped-behind-a-preempted-request",
        "a-token-from-before-a-reset",
        "sessions-wait-for-each-others-blocks",
        "a-turn-has-the-max-tokens-of-the-first",
        "a-dropped-token-names-a-block",
        "a-session-without-a-slot",
        "drafts-before-their-token",
        "no-lookahead-at-first",
        "a-window-is-freed-while-it-is-read",
        "states-are-kept-across-gaps",
        "pictures-wait-for-each-other",
        "a-picture-is-split",
        "a-window-counts-too-few-blocks",
        "a-token-of-the-turn-before",
        "a-preempted-session-is-lost",
        "blocks-freed-late-are-evicted-in-another-order",
        "waits-before-an-input-that-its-drafter-reads",
        "an-input-is-never-whole-beside-a-drafter",
        "a-failed-load-is-read",
        "aborted-while-it-is-loaded-and-sent",
        "a-loaded-window-lacks-a-block",
        "a-failed-load-of-groups",
        "eagle-drops-a-block-in-every-pass",
        "a-landed-load-behind-a-deferred-request",
        "drafts-after-a-failed-load",
        "an-output-is-dropped-when-its-step-is-scheduled",
        "a-chunk-beside-a-drafter-ends-inside-a-block",
        "a-copy-of-a-block-that-is-not-computed-yet",
        "a-copied-block-beyond-the-pool",
        "an-event-removes-a-block-that-has-a-copy",
        "an-event-lists-tokens-of-blocks-that-it-does-not-name",
        "an-event-about-a-hit-names-a-block-that-is-gone",
        "an-event-about-a-hit-inside-a-block",
        "a-picture-is-computed-without-its-data",
        *("a-grammar-that-has-ended", "drafts-beyond-the-end-of-a-grammar"),
        "drafts-that-were-not-checked",
        "a-turn-with-the-grammar-of-the-turn-before",
        "a-mask-with-two-tokens-in-flight",
        "reasoning-ends-among-drafts",
        "two-adapters-with-one-name",
        "drafts-after-the-reasoning-are-not-checked",
    }
]
PAGES = FOLDER.parents[1] / "docs" / "findings"
FINDINGS = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.stem)
def test_the_model_refuses_at_the_door_what_ends_a_release(file):
    scenario = read_scenario(file)
    model = make_model(scenario.system, scenario.revision, scenario.config)
    assert all(model.refusal(request) is not None for request in scenario.requests)


@pytest.mark.parametrize("file", RELEASE_ALONE, ids=lambda file: file.stem)
def test_the_model_keeps_every_rule_in_what_ends_a_release(file):
    scenario = read_scenario(file)
    outcome = replay(ModelTarget(), scenario, load(scenario.system))
    assert outcome.finished
    assert outcome.broken == []


@pytest.mark.parametrize(
    "file",
    [file for file in FILES if file not in (*REFUSED, *RELEASE_ALONE)],
    ids=lambda file: file.stem,
)
def test_a_finding_breaks_the_rule_that_it_is_for_first(file):
    scenario = read_scenario(file)
    assert scenario.expect is not None
    assert scenario.expect.violates
    outcome = replay(ModelTarget(), scenario, load(scenario.system))
    assert outcome.unmet == []
    assert outcome.broken[0].rule == scenario.expect.violates[0]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_is_named_by_its_file_and_told_in_the_findings(file):
    assert read_scenario(file).name == file.stem
    assert f"tests/corpus/{file.name}" in FINDINGS
