"""Ids that are used again once their requests are over."""

import json
import re
from itertools import pairwise

import pytest

from schedproof.gate.files.scenario_file import FileError, scenario_json, scenario_of
from schedproof.model.faults import AdapterFault
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.checking.session import Names
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.properties.shrinking.shrink import simpler_requests
from schedproof.spec.catalogue import load

RULES = [rule for rule in load("vllm", "0.33") if rule.checked]
SMALL = {"block_size": 4, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 32}
ADDED = {"prompt": [["p", 6]], "max_tokens": 4}


def request(name, arrival=0, **changes):
    changes = {"prompt": (("p", 6),), "max_tokens": 4, **changes}
    return Request(id=name, arrival=arrival, **changes)


def scenario(*requests, **changes):
    config = full_config("vllm", "0.33", {**SMALL, "reused_ids": True, **changes})
    return Scenario(system="vllm", revision="0.33", config=config, requests=requests)


class Listens(ModelTarget):
    """A target that remembers under which ids requests came and were aborted."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def add(self, sent):
        self.heard.append(sent["id"])
        return super().add(sent)

    def abort(self, id, inside=False):  # noqa: A002
        self.heard.append(f"abort {id}")
        return super().abort(id, inside)


class BooksOnTheNewest(ModelTarget):
    """A target that books the output of a decision on whoever has the id when it completes."""

    def start(self, *args):
        self.flights = [{}]
        return super().start(*args)

    def step(self):
        reply = super().step()
        seen = reply["step"]
        self.flights.append(seen["scheduled"])
        for name in self.flights.pop(0):
            if name in seen["running"] and name not in seen["emitted"]:
                seen["emitted"] = {**seen["emitted"], name: 1}
        return reply


def test_an_id_is_sent_again_once_its_request_is_over():
    run = scenario(request("a", max_tokens=1), request("b", 3, sent_as="a", abort_at=4))
    target = Listens()
    outcome = replay(target, run, RULES)
    assert (outcome.broken, outcome.finished) == ([], True)
    assert target.heard == ["a", "a", "abort a"]
    assert outcome.session.monitor.history.requests["b"].ended == "aborted"


def test_a_request_keeps_its_own_id_while_the_other_is_not_over():
    target = Listens()
    run = scenario(request("a", max_tokens=9), request("b", 1, sent_as="a"))
    assert replay(target, run, RULES).broken == []
    assert target.heard == ["a", "b"]


def test_no_id_is_known_twice_at_a_time():
    names = Names()
    names.accept("b", names.chosen(request("b", sent_as="a"), [])["id"])
    assert names.chosen(request("a"), ["b"]) == {"id": "a'", "stream": "a"}


def test_what_a_worker_drops_is_the_request_that_had_the_id_before():
    names = Names()
    names.accept("a", "a")
    names.restored({"scheduled": {"a": 1}})
    names.accept("b", "a")
    sent = {"computed": {"a": 0}, "new": ["a"], "dropped": ["a"]}
    assert names.restored({"scheduled": {"a": 4}, "sent": sent}) == {
        "scheduled": {"b": 4},
        "sent": {"computed": {"b": 0}, "new": ["b"], "dropped": ["a"]},
    }


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("waiting", [["a"]], "Expected `str`, got `array` - at `$.waiting[0]`"),
        ("sent", [1], "Expected `object | null`, got `array` - at `$.sent`"),
        ("sent", {"computed": {}, "dropped": 5}, "got `int` - at `$.sent.dropped`"),
        ("sent", None, "the step lacks the field sent, although observes lists it"),
    ],
)
def test_a_step_with_a_wrong_field_is_the_adapters_fault_although_ids_are_reused(
    field, value, says
):
    class Wrong(ModelTarget):
        def step(self):
            return {"ok": True, "step": {**super().step()["step"], field: value}}

    with pytest.raises(AdapterFault, match=re.escape(says)):
        replay(Wrong(), scenario(request("a")), RULES)


def test_a_reply_without_a_step_is_the_adapters_fault_although_ids_are_reused():
    class NoStep(ModelTarget):
        def step(self):
            return {"ok": True, "step": [1, 2]}

    with pytest.raises(AdapterFault, match="valid: the step observation"):
        replay(NoStep(), scenario(request("a")), RULES)


def test_an_id_whose_abort_is_not_reported_yet_is_not_sent_again():
    run = scenario(request("a", abort_at=2, max_tokens=9), request("b", 2, sent_as="a"))
    target = Listens()
    replay(target, run, RULES)
    assert target.heard == ["a", "b", "abort a"]


def test_output_of_an_ended_request_on_a_later_one_of_its_id_is_named():
    run = scenario(
        request("a", max_tokens=9, abort_at=3, abort_inside=True),
        request("b", 4, sent_as="a", prompt=(("b", 20),)),
        async_scheduling=True,
    )
    assert replay(ModelTarget(), run, RULES).broken == []
    [first, *_] = replay(BooksOnTheNewest(), run, RULES).broken
    assert (first.rule, first.message) == ("ALL-R04", "b is not scheduled, but emitted 1")


def test_the_tokens_of_two_requests_with_one_id_are_their_own():
    target = ModelTarget()
    target.start("vllm", "0.33", {**SMALL, "reused_ids": True})
    target.add({"id": "a", **ADDED})
    while not target.step()["step"]["finished"]:
        pass
    prompt = [["p", 6], ["out:a", 3], ["q", 4]]
    target.add({"id": "a", "stream": "b", "prompt": prompt, "max_tokens": 4})
    assert target.step()["step"]["prefix_hit"] == {"a": 8}
    assert target.step()["step"]["computed"] == {"a": 14}


def test_a_search_uses_ids_again():
    again = []

    def ended(run):
        again.append(any(request.sent_as for request in run.requests))
        for first, second in pairwise(run.requests):
            assert first.id != second.id

    options = SearchOptions(
        ModelTarget(), "vllm", "0.33", RULES, "small", fixed={"reused_ids": True}
    )
    search = Search(options, Hooks(ended=ended))
    assert not run_search(search, 40, 0, 0)
    assert sum(again) > 4


def test_ids_are_written_read_and_shrunk():
    run = scenario(request("a", max_tokens=1), request("b", 3, sent_as="a"))
    written = json.loads(scenario_json(run))
    assert "sent_as" not in written["requests"][0]
    assert scenario_of(written, "f").requests == run.requests
    assert any(plain.sent_as is None for plain in simpler_requests(run.requests[1], 4))


def test_an_id_that_is_used_again_needs_its_option():
    data = json.loads(scenario_json(scenario(request("a"), request("b", 9, sent_as="a"))))
    data["config"]["reused_ids"] = False
    with pytest.raises(FileError) as error:
        scenario_of(data, "f")
    assert '$.requests[1].sent_as: "a" needs a vllm configuration with reused_ids true' in str(
        error.value
    )
