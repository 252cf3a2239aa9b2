"""The scenarios that a gate begins with: the user's own corpus, and what earlier gates found."""

from typing import Any

import pytest
from msgspec.structs import replace

from schedproof.gate.corpus.folder import entries, seed_corpus
from schedproof.gate.judging.initial_replays import replay_own, replay_workloads
from schedproof.gate.judging.judge import judge
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.judging.verdict import Notice
from schedproof.gate.targets import probe as probing
from schedproof.model.faults import TargetCrashed, TargetHung
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.model.vllm.model import VllmModel
from schedproof.properties.checking.session import STUCK
from schedproof.properties.rules.registry import NEVER_HANGS

from ..build import Ghosts, Toy, entry


@pytest.fixture
def found(gate, monkeypatch):
    """The folder of findings of a gate that broke ALL-R03."""
    monkeypatch.setattr(probing, "SCALES", ("small",))
    judged = gate(Ghosts(), "ALL-R03", max_failures=1)
    assert judge(judged).exit_code == 1
    return judged.options.out


def test_what_a_gate_found_is_a_corpus(found):
    [kept] = entries(found)
    assert (kept.rule, kept.shape.partition(":")[0]) == ("ALL-R03", "ALL-R03")
    assert kept.found_on == "schedproof model of spyre sound"
    assert kept.scenario.origin is not None
    assert kept.scenario.origin["engine"] == "hypothesis"


def test_the_own_corpus_is_replayed_before_anything_is_searched(gate, found, monkeypatch):
    monkeypatch.setitem(PROFILES, "none", Profile(0, 0, 0, 0))
    corpus = [kept.scenario for kept in entries(found)]
    verdict = judge(gate(Ghosts(), "ALL-R03", corpus=corpus, profile_name="none"))
    [finding] = verdict.findings
    assert (finding.engine, finding.scale, finding.rule) == ("own corpus", "given", "ALL-R03")
    [own] = [engine for engine in verdict.engines if engine.name == "own corpus"]
    assert (own.runs, own.complete) == (1, True)


def test_a_crash_is_behind_what_broke_before_it_and_not_behind_itself(gate, monkeypatch):
    class Crashes(Ghosts):
        crowd = 1

        def bend(self, step):
            super().bend(step)
            if step["tkv"] > 6:
                raise TargetCrashed("step", "RuntimeError: no", "")

    monkeypatch.setattr(probing, "SCALES", ("small",))
    monkeypatch.setitem(PROFILES, "none", Profile(0, 0, 0, 0))
    request = Request(id="r", arrival=0, prompt=(("r", 4),), max_tokens=9)
    corpus = [Scenario(system="spyre", revision="sound", requests=(request,))]
    verdict = judge(gate(Crashes(), "ALL-R01 ALL-R03", corpus=corpus, profile_name="none"))
    behind = {finding.rule: finding.behind for finding in verdict.findings}
    assert behind == {"ALL-R03": (), "ALL-R01": ("ALL-R03",)}


def test_what_is_repaired_holds_and_counts_as_run(gate, found):
    corpus = [kept.scenario for kept in entries(found)]
    verdict = judge(gate(Toy(), "ALL-R03", corpus=corpus, examples=1))
    assert (verdict.exit_code, entry(verdict, "ALL-R03").status) == (0, "held")
    assert [engine.runs for engine in verdict.engines if engine.name == "own corpus"] == [1]


def test_what_is_not_replayed_of_the_own_corpus_is_said(gate, found, monkeypatch):
    class Refuses(Toy):
        def start(self, *about):
            return {"ok": False, "error": "config", "message": "too small"}

    [kept] = entries(found)
    corpus = [kept.scenario, replace(kept.scenario, system="vllm")]
    judged = gate(Refuses(), "ALL-R03", corpus=corpus)
    gate.events.clear()
    replay_own(judged)
    assert [event.text for event in gate.events if isinstance(event, Notice)] == [
        "own corpus: 1 of 2 scenarios left out: they are not for spyre",
        f"own corpus: {kept.scenario.name} left out, the target refuses it: too small",
    ]


def test_an_entry_that_does_not_exercise_its_own_rule_is_named(gate):
    request = Request(id="r", arrival=0, prompt=(("r", 4),), max_tokens=2)
    item = Scenario(system="spyre", revision="sound", requests=(request,))
    rules = ("ALL-R02", "ALL-R08", "OUR-R01")
    corpus = [replace(item, name=rule, origin={"rule": rule}) for rule in rules]
    judged = gate(Toy(), corpus=corpus)
    gate.events.clear()
    replay_own(judged)
    without = "was not exercised, or cannot be checked here"
    assert [event.text for event in gate.events if isinstance(event, Notice)] == [
        f"own corpus: ALL-R08: its rule ALL-R08 {without}",
        f"own corpus: OUR-R01: its rule OUR-R01 {without}",
    ]
    judged = gate(Toy(), "ALL-R03", corpus=corpus)  # other rules are left out on purpose
    gate.events.clear()
    replay_own(judged)
    assert not [event for event in gate.events if isinstance(event, Notice)]


def test_an_entry_whose_requests_are_all_refused_is_not_judged(gate, found):
    class Full(Toy):
        def add(self, request):
            return {"ok": False, "error": "rejected", "message": "full"}

    judged = gate(Full(), "ALL-R03", corpus=[kept.scenario for kept in entries(found)])
    replay_own(judged)
    assert [engine.refused_configs for engine in judged.results.engines] == [1]


@pytest.mark.slow
def test_the_command_reads_a_corpus_and_says_what_is_wrong_with_one(
    run, found, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ("--rule", "ALL-R03", "--profile", "quick", "--corpus")
    good = run("gate", "model", *words, str(found))
    assert good.code == 0
    assert "own corpus, given: 1 run," in good.out
    missing: Any = run("gate", "model", *words, "nix")
    assert (missing.code, len(missing.err.splitlines())) == (2, 1)
    (found / "broken.json").write_text("{")
    broken = run("gate", "model", *words, str(found))
    assert broken.code == 2
    assert "broken.json: not JSON" in broken.err


def test_what_the_seed_corpus_breaks_is_shrunk_and_searched_no_more(gate, monkeypatch):
    monkeypatch.setattr(probing, "SCALES", ("small",))
    verdict = judge(gate(Ghosts(), "ALL-R03", corpus_steps=100))
    [finding] = verdict.findings
    assert (finding.engine, finding.scale, finding.rule) == ("corpus", "small", "ALL-R03")
    assert finding.requests == 2
    ran = {(engine.name, engine.scale): engine.runs for engine in verdict.engines}
    assert ran["corpus", "small"] >= 1
    assert ran["hypothesis", "small"] == 0


@pytest.mark.slow
def test_the_search_goes_on_for_the_rules_that_the_seed_corpus_did_not_break(gate, monkeypatch):
    monkeypatch.setattr(probing, "SCALES", ("small",))
    verdict = judge(gate(Ghosts(), corpus_steps=100))
    assert [finding.rule for finding in verdict.findings if finding.scale == "small"] == ["ALL-R03"]
    [searched] = [engine for engine in verdict.engines if engine.name == "hypothesis"]
    assert searched.runs >= 12
    assert searched.complete


def test_a_target_that_hangs_in_the_seed_corpus_is_asked_no_further_run_of_it(gate, monkeypatch):
    class Hangs(Toy):
        """Does not answer once two requests run."""

        def bend(self, step):
            if len(step["running"]) > 1:
                raise TargetHung("step", 1.0)

    monkeypatch.setattr(probing, "SCALES", ("small",))
    verdict = judge(gate(Hangs(), corpus_steps=100))
    [finding] = verdict.findings
    assert (finding.engine, finding.rule) == ("corpus", NEVER_HANGS)
    ran = {
        (engine.name, engine.scale): (engine.runs, engine.complete) for engine in verdict.engines
    }
    assert ran["corpus", "small"][0] < len(seed_corpus("spyre", "small"))
    assert "hypothesis" not in {name for name, _ in ran}


def test_a_configuration_that_the_revision_has_no_rule_for_is_refused_whatever_the_target_takes(
    gate,
):
    class TakesAnyPool(Toy):
        def start(self, system, revision, config):
            return super().start(system, revision, {**config, "num_blocks": None})

    # The model of 2.5.2 reserves blocks, and has none for a request of max_model_len.
    config = {"chunk_size": 128, "max_model_len": 512, "max_batch_tkv": 2048, "num_blocks": 5}
    request = Request(id="r0", arrival=0, prompt=(("r0", 128),), max_tokens=3)
    small = Scenario(system="spyre", revision="2.1.2", config=config, requests=(request,))
    asked: dict[str, Any] = {"revision": "2.5.2", "corpus": [small], "examples": 1}
    verdict = judge(gate(TakesAnyPool(), "SPY-R30", **asked))
    [own] = [engine for engine in verdict.engines if engine.name == "own corpus"]
    assert (own.runs, own.refused_configs) == (0, 1)


@pytest.mark.slow
def test_what_is_fixed_makes_no_request_too_large_that_a_target_need_not_refuse(gate, monkeypatch):
    """vLLM counts no drafts at its door: a server with so small a pool does not start."""
    monkeypatch.setattr(probing, "SCALES", ("small",))
    drafts = {"num_speculative_tokens": 2, "num_lookahead_tokens": 2, "async_scheduling": True}
    fixed = {**drafts, "enable_prefix_caching": False}
    vllm = {"system": "vllm", "revision": "documented", "fixed": fixed}
    asked: dict[str, Any] = {**vllm, "examples": 60, "corpus_steps": 200}

    with_drafts = VllmModel.refusal

    def refusal(model, request):
        without = replace(model.config, num_speculative_tokens=0, num_lookahead_tokens=0)
        return with_drafts(VllmModel(without), request)

    class CountsNoDrafts(ModelTarget):
        def add(self, request):
            with monkeypatch.context() as patched:
                patched.setattr(VllmModel, "refusal", refusal)
                return super().add(request)

    verdict = judge(gate(CountsNoDrafts(), "ALL-R06 ALL-R10", **asked))
    assert [finding.rule for finding in verdict.findings] == []
    [small] = [
        engine for engine in verdict.engines if (engine.name, engine.scale) == ("corpus", "small")
    ]
    assert 0 < small.runs < len(seed_corpus("vllm", "small"))


@pytest.mark.parametrize(("runs", "steps"), [(1, STUCK), (3, 500)])
def test_a_workload_of_a_target_that_stands_still_ends_with_the_steps_of_the_profile(
    gate, monkeypatch, runs, steps
):
    class StandsStill(ModelTarget):
        def step(self):
            return {"ok": True, "step": {"kind": "idle", "scheduled": {}}}

        def start(self, *about):
            return super().start(*about) | {"observes": []}

    monkeypatch.setitem(PROFILES, "short", Profile(1, 0, 0, 0, steps=500, workloads=runs))
    judged = gate(
        *(StandsStill(), "ALL-R01"),
        profile_name="short",
        system="generic",
        revision="documented",
    )
    replay_workloads(judged, "crowd", "small", {}, frozenset())
    [engine] = judged.results.engines
    assert engine.steps == steps


def test_aborts_that_the_target_does_not_support_are_not_reached(gate, monkeypatch):
    class AbortsBetweenSteps(ModelTarget):
        def abort(self, id, inside=False):  # noqa: A002 (the protocol's word)
            if inside:
                return {"ok": False, "error": "unsupported", "message": "only between two steps"}
            return super().abort(id)

    monkeypatch.setitem(PROFILES, "short", Profile(1, 0, 0, 0, steps=500, workloads=2))
    judged = gate(
        *(AbortsBetweenSteps(), "ALL-R01"),
        profile_name="short",
        system="generic",
        revision="documented",
    )
    replay_workloads(judged, "crowd", "small", {}, frozenset())
    reached = judged.results.reach.features
    assert reached["abort"]
    assert not reached["abort inside a step"]


def test_a_run_that_stands_still_is_not_repeated_up_to_the_bound_of_completion(gate):
    class StandsStill(ModelTarget):
        def step(self):
            step = {"kind": "idle", "scheduled": {}, "waiting": ["r0"], "finished": {}}
            return {"ok": True, "step": step}

        def start(self, *about):
            return super().start(*about) | {"observes": ["waiting", "finished"]}

    request = Request(id="r0", arrival=0, prompt=(("r0", 10),), max_tokens=20_000)
    long = Scenario(system="generic", config={"max_model_len": 32_768}, requests=(request,))
    about = {"system": "generic", "revision": "documented", "corpus": [long]}
    judged = gate(StandsStill(), "ALL-R10 ALL-R06", **about)
    replay_own(judged)
    assert [finding.rule for finding in judged.results.findings] == ["ALL-R10"]
    [engine] = judged.results.engines
    assert engine.steps < 2_000
