"""Findings of one engine: shrunk where that is cheap, confirmed on the target, known or new."""

from dataclasses import replace
from pathlib import Path

import pytest

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.judging.context import shrink_model_of
from schedproof.gate.judging.engines import search_scale
from schedproof.gate.judging.findings import _divergence
from schedproof.properties.checking.replay import replay
from schedproof.properties.shrinking.shrink import simpler

from ..build import Ghosts, Release, Toy


@pytest.mark.slow
def test_a_failure_of_a_known_release_is_shrunk_on_its_model_and_confirmed_on_the_release(gate):
    release = Release()
    shrink_model = shrink_model_of(release, "spyre", "2.5.2")
    judged = gate(release, "SPY-R22", examples=40, max_failures=1, shrink_model=shrink_model)
    search_scale(judged, "small")
    [finding], [engine] = judged.results.findings, judged.results.engines
    # The search, the smallest scenario once, once more to confirm it, and once beside the model: no
    # trial in between.
    assert release.starts == engine.runs + engine.refused_configs + 3
    scenario = read_scenario(Path(finding.scenario))

    def first_broken(candidate):
        broken = replay(Release(), candidate, judged.options.rules, last_step=finding.step).broken  # type: ignore[arg-type]
        return broken[0].rule if broken else None

    assert first_broken(scenario) == finding.rule
    assert [smaller for smaller in simpler(scenario) if first_broken(smaller) == finding.rule] == []


def test_what_the_model_of_the_release_does_not_break_is_shrunk_on_the_release(gate):
    judged = gate(Ghosts(), "ALL-R03", max_failures=1, shrink_model=Toy())
    search_scale(judged, "small")
    [finding] = judged.results.findings
    assert (finding.rule, finding.requests) == ("ALL-R03", 2)


def test_what_the_release_does_not_break_any_more_is_shrunk_on_the_release(gate):
    class GhostsAtOnce(Ghosts):
        crowd = 1

    judged = gate(Ghosts(), "ALL-R03", max_failures=1, shrink_model=GhostsAtOnce())
    search_scale(judged, "small")
    [finding] = judged.results.findings
    assert (finding.rule, finding.requests) == ("ALL-R03", 2)
    scenario = read_scenario(Path(finding.scenario))
    assert replay(Ghosts(), scenario, judged.options.rules).broken[0].step == finding.step


def test_a_needless_refusal_is_found_after_other_requests_too(gate):
    class OneInARun(Toy):
        def add(self, request):
            if self.used:
                return {"ok": False, "error": "rejected", "message": "no more today"}
            reply = super().add(request)
            self.used = reply["ok"]
            return reply

        def start(self, *args):
            self.used = False
            return super().start(*args)

    judged = gate(OneInARun(), "ALL-R12", max_failures=1)
    search_scale(judged, "small")
    [finding] = judged.results.findings
    assert (finding.rule, finding.requests) == ("ALL-R12", 2)


def test_a_finding_names_the_fields_that_differ_from_the_model(gate):
    judged = gate(Ghosts(), "ALL-R03", max_failures=1)
    search_scale(judged, "small")
    assert judged.results.findings[0].differs == "waiting"


def test_a_finding_has_no_option_abort_or_shared_prompt_that_it_does_not_need(gate):
    judged = gate(Ghosts(), "ALL-R03", max_failures=1, seed=1, shrink_model=Ghosts())
    search_scale(judged, "small")
    scenario = read_scenario(Path(judged.results.findings[0].scenario))
    config = scenario.config
    assert (config["interleave"], config["prefix_caching"], config["num_blocks"]) == (
        True,
        False,
        None,
    )
    for request in scenario.requests:
        assert (request.abort_at, request.abort_inside) == (None, False)
        assert [stream for stream, _ in request.prompt] == [request.id]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "revision", "rule", "known"),
    [
        ("2.0.1", "sound", "SPY-R07", "2.0.0 to 2.1.0: "),
        ("2.1.2", "sound", "SPY-R07", None),
        ("2.5.2", "sound", "SPY-R22", "2.4.0 and later: "),
        ("2.6.3", "documented", "SPY-R22", "2.4.0 and later: "),
        ("2.5.2", "2.5.2", "SPY-R22", None),
        ("2.6.3", "2.5.2", "SPY-R22", None),
        ("sendnn-inference 2.6.3", "documented", "SPY-R22", "2.4.0 and later: "),  # a class
        ("my own", "sound", "SPY-R22", None),
    ],
)
def test_what_is_known_of_a_release_is_said_unless_it_is_held_to_itself(
    version, revision, rule, known, gate
):
    class WideAndTwice(Toy):
        def start(self, *asked):
            started = super().start(*asked)
            return {**started, "observes": [*{*started["observes"], "paused"}]}

        def bend(self, step):
            step.setdefault("paused", [])
            if step["kind"] == "decode":
                step["tkv"] = 10**6
                step["emitted"] = dict.fromkeys(step["emitted"], 2)

    target = WideAndTwice()
    target.version = version
    judged = gate(target, rule, max_failures=1, revision=revision)
    search_scale(judged, "small")
    [finding] = judged.results.findings
    if known is None:
        assert finding.divergence is None
    else:
        assert finding.divergence is not None
        assert finding.divergence.startswith(known)


@pytest.mark.parametrize(
    ("revision", "version", "known"),
    [
        ("documented", "after 1.1.0", True),
        ("documented", "1.1.0", True),
        ("documented", "llmservingsim 1.1.0", True),  # a class
        ("head", "after 1.1.0", False),
        ("documented", "my own 1.1.0", False),
    ],
)
def test_a_version_of_two_words_is_no_class_of_a_scheduler(gate, revision, version, known):
    judged = gate(Toy(), "ALL-R01")
    options = replace(judged.options, system="llmservingsim", revision=revision)
    judged = replace(judged, options=options)
    assert (_divergence(judged, "LSS-P03", "llmservingsim", version, {}) is not None) == known


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({}, None),
        ({"kv_connector": True}, "one queue"),
        ({"max_num_encoder_input_tokens": 8, "encoder_cache_size": 8}, "ends admission"),
    ],
)
def test_a_known_difference_excuses_only_a_configuration_in_which_it_can_occur(gate, config, known):
    judged = gate(Toy(), "ALL-R01")
    judged = replace(judged, options=replace(judged.options, system="vllm", revision="0.25"))
    excused = _divergence(judged, "ALL-R07", "my vllm", "vllm 0.30.0", config)
    assert excused is None if known is None else known in excused and "; or " not in excused


def test_what_needs_stages_is_no_excuse_of_a_run_without_them(gate):
    judged = gate(Toy(), "ALL-R01")
    judged = replace(judged, options=replace(judged.options, system="vllm", revision="0.25"))
    item, three = (
        _divergence(judged, "V1-R07", "vllm", "vllm 0.19.1", {"pipeline_parallel_size": stages})
        for stages in (1, 3)
    )
    assert item is None
    assert "three or more stages" in three


@pytest.mark.slow
def test_what_is_known_of_releases_excuses_no_scheduler_of_a_user(gate):
    class EmitsTwice(Toy):
        def bend(self, step):
            step["emitted"] = dict.fromkeys(step["emitted"], 2)

    class Theirs:
        """A target that is not ours: it reports a name of its own."""

        def __init__(self, name):
            self.name, self.inner = name, EmitsTwice()

        def start(self, *asked):
            return {**self.inner.start(*asked), "name": self.name, "version": "2.5.2"}

        def __getattr__(self, attribute):
            return getattr(self.inner, attribute)

    for name, is_known in (("sendnn-inference", True), ("my-scheduler", False)):
        judged = gate(Theirs(name), "SPY-R22", revision="sound", max_failures=1)
        search_scale(judged, "small")
        [finding] = judged.results.findings
        assert (finding.divergence is not None) == is_known
