"""A comparison begins with the scenarios that come along, and shrinks what differs in them."""

import pytest

from schedproof.gate.compare.context import Diff
from schedproof.gate.compare.corpus import keep_long_ones, replay_corpus, replay_seeds
from schedproof.gate.compare.run import run_diff, search_scale
from schedproof.gate.judging.events import Notice
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.model.faults import TargetHung
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.difference import HANG
from schedproof.properties.checking.differential_target import Pair, Side


class PadsMore(ModelTarget):
    """Nine blocks, left of a request that prefills while a request waits."""

    def step(self):
        reply = super().step()
        step = reply["step"]
        if step["kind"] == "prefill" and step["waiting"]:
            step["left_pad_blocks"] = dict.fromkeys(step["left_pad_blocks"], 9)
        return reply


class HangsWithTwo(ModelTarget):
    def step(self):
        reply = super().step()
        if len(reply["step"]["running"]) > 1:
            raise TargetHung("step", 0.1)
        return reply


def comparison(target, folder, most=3):
    """The model beside a target, and what is said of it."""
    said: list[str] = []

    def note(event):
        if isinstance(event, Notice):
            said.append(event.text)

    pair = Pair(*(Side(one, "spyre", "sound") for one in (ModelTarget(), target)))
    return Diff(pair, ("model", "toy"), "spyre", "sound", {}, "quick", 0, most, folder, note), said


def test_a_difference_in_the_seed_corpus_is_found_at_once_and_shrunk(tmp_path):
    diff, _ = comparison(PadsMore(), tmp_path, 1)
    replay_seeds(diff, "small")
    [found] = diff.found.values()
    assert (found.engine, found.scale, found.kind) == ("corpus", "small", "padding")
    assert found.requests == 2
    [ran] = diff.engines
    assert (ran.name, ran.scale, ran.complete) == ("corpus", "small", False)


def test_one_that_does_not_differ_has_seen_all_of_it(tmp_path):
    diff, _ = comparison(ModelTarget(), tmp_path)
    replay_seeds(diff, "small")
    assert not diff.found
    [ran] = diff.engines
    assert ran.complete
    assert ran.runs + ran.refused_configs > 4
    assert ran.steps == diff.pair.coverage.steps > 100


def test_after_enough_differences_nothing_is_replayed(tmp_path):
    diff, _ = comparison(ModelTarget(), tmp_path, 0)
    replay_seeds(diff, "small")
    search_scale(diff, "small")
    assert not diff.engines


def test_a_target_that_hangs_once_is_asked_no_more(tmp_path):
    diff, said = comparison(HangsWithTwo(), tmp_path)
    replay_seeds(diff, "small")
    search_scale(diff, "small")
    assert [one.kind for one in diff.found.values()] == [HANG]
    assert [(one.name, one.complete) for one in diff.engines] == [
        ("corpus", False),
        ("hypothesis", False),
    ]
    assert said == ["hypothesis, small: a target that hangs is searched no more"]


def test_what_only_a_long_scenario_shows_is_kept_in_the_end(tmp_path, monkeypatch):
    class CountsTooFar(ModelTarget):
        """Differs in a prefill of a long prompt only."""

        def step(self):
            reply = super().step()
            if max(reply["step"]["computed"].values(), default=0) > 1_000:
                reply["step"]["tkv"] = 1
            return reply

    diff, _ = comparison(CountsTooFar(), tmp_path)
    long_ones = replay_corpus(diff)
    assert long_ones
    assert not diff.found
    keep_long_ones(diff, long_ones)
    assert {one.scale for one in diff.found.values()} == {"production"}


@pytest.mark.slow
def test_seeds_come_before_the_search_of_their_scale(tmp_path, monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", Profile(4, 4, 4, corpus_steps=100))
    diff, _ = comparison(ModelTarget(), tmp_path)
    run_diff(diff)
    assert [(one.name, one.scale) for one in diff.engines] == [
        ("corpus", "production"),
        ("corpus", "small"),
        ("hypothesis", "small"),
        ("hypothesis", "tight"),
    ]
