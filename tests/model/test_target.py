"""ModelTarget answers as the target protocol says."""

import pytest

from schedproof.model.observation import FIELDS
from schedproof.model.replies import read_started, read_step
from schedproof.model.spyre.config import REVISIONS
from schedproof.model.target import ModelTarget

from ..golden_tables import started


def request(name="a", tokens=4, max_tokens=3, **changes):
    return {"id": name, "prompt": [[name, tokens]], "max_tokens": max_tokens} | changes


def rejection(target, sent):
    reply = target.add(sent)
    assert reply.keys() == {"ok", "error", "message"}
    assert (reply["ok"], reply["error"]) == (False, "rejected")
    return str(reply["message"])


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("revision", REVISIONS)
def test_start_says_what_it_is_and_shows_what_it_promises(revision, caching):
    target = ModelTarget()
    config = {"num_blocks": 10_000, "prefix_caching": caching}
    says = read_started(target.start("spyre", revision, config))
    assert (says.name, says.version) == ("schedproof model of spyre", revision)
    assert says.observes <= FIELDS
    assert target.add(request()) == {"ok": True}
    for _ in range(5):
        read_step(target.step(), says.observes)


@pytest.mark.parametrize(
    ("revision", "config", "shown"),
    [
        ("sound", {}, {"reserved_blocks"}),
        ("sound", {"num_blocks": 100}, {"reserved_blocks", "free_blocks"}),
        ("sound", {"prefix_caching": True}, {"reserved_blocks", "prefix_hit"}),
        ("2.1.2", {}, set()),
        ("2.5.2", {}, {"reserved_blocks", "paused"}),
        ("2.5.2", {"pausing": False}, {"reserved_blocks", "paused"}),
    ],
)
def test_fields_are_promised_only_where_they_mean_something(revision, config, shown):
    optional = {"free_blocks", "reserved_blocks", "prefix_hit", "paused"}
    reply = ModelTarget().start("spyre", revision, config)
    assert set(reply["observes"]) & optional == shown


@pytest.mark.parametrize(
    ("system", "revision", "config", "path"),
    [
        ("orca", "documented", {}, "$.system"),
        ("spyre", "3.0", {}, "$.revision"),
        ("spyre", "sound", {"foo": 1}, "$.config.foo"),
        ("spyre", "sound", {"block_size": 0}, "$.config.block_size"),
        ("spyre", "sound", {"chunk_size": "512"}, "$.config.chunk_size"),
        ("spyre", "sound", {"chunk_size": 100}, "$.config.chunk_size"),
        ("spyre", "sound", {"prefix_caching": 1}, "$.config.prefix_caching"),
        ("spyre", "sound", {"long_output_priority": True}, "$.config.long_output_priority"),
        ("spyre", "2.5.2", {"num_blocks": 511}, "$.config.num_blocks"),
    ],
)
def test_a_configuration_that_cannot_be_honoured_is_refused_with_its_path(
    system, revision, config, path
):
    reply = ModelTarget().start(system, revision, config)
    assert (reply["ok"], reply["error"]) == (False, "config")
    assert reply["message"].startswith(f"{path}: ")


@pytest.mark.parametrize("config", [None, 7, [1], "ab"])
def test_a_configuration_that_is_no_object_is_refused(config):
    assert ModelTarget().start("spyre", "sound", config) == {
        "ok": False,
        "error": "config",
        "message": f"$.config: {config!r} is not an object",
    }


@pytest.mark.parametrize(("revision", "blocks"), [("2.1.2", 1), ("2.5.2", 512)])
def test_a_release_takes_the_smallest_pool_with_which_it_starts(revision, blocks):
    """At the defaults 2.5.2 wants 32768 / 64 blocks, those of one request."""
    assert ModelTarget().start("spyre", revision, {"num_blocks": blocks})["ok"]


@pytest.mark.parametrize(
    ("config", "sent", "message"),
    [
        (
            {"max_model_len": 64},
            request(tokens=60, max_tokens=6),
            "prompt + max_tokens - 1 = 65 tokens exceeds max_model_len (64)",
        ),
        (
            {"max_batch_tkv": 64},
            request(tokens=60, max_tokens=6),
            "prompt + max_tokens - 1 = 65 tokens exceeds max_batch_tkv (64)",
        ),
        (
            {"num_blocks": 1},
            request(tokens=60, max_tokens=6),
            "prompt + max_tokens - 1 = 65 tokens needs 2 blocks, but the pool has 1",
        ),
    ],
)
def test_what_can_never_run_is_refused_at_the_door(config, sent, message):
    target = started("sound", **config)
    assert rejection(target, sent) == message
    assert target.add(request(tokens=60, max_tokens=5)) == {"ok": True}


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (request(id=""), "$.id"),
        (request(prompt=[]), "$.prompt"),
        (request(prompt=[["a", 0]]), "$.prompt"),
        (request(max_tokens=0), "$.max_tokens"),
        (request(output_len=4), "output_len"),
        (request(colour="red"), "colour"),
        ({"id": "a", "prompt": [["a", 1]]}, "max_tokens"),
    ],
)
def test_a_request_that_means_nothing_is_rejected(sent, problem):
    assert problem in rejection(started("sound"), sent)


def test_the_first_unknown_key_of_a_request_is_named_with_the_known_ones():
    assert rejection(started("sound"), request(colour="red", arrival=3)) == (
        "unknown key 'arrival'; valid: accepted, cache_salt, encoder_inputs, external_tokens, "
        "grammar_begins, grammar_drafts, grammar_ends, grammar_fails, grammar_steps, id, "
        "load_deferrals, load_fails_at, load_steps, lora, max_tokens, output_len, priority, "
        "prompt, send_aborted, send_steps, stream, tool_steps, turns"
    )


def test_an_id_is_accepted_once_even_after_its_request_has_finished():
    target = started("sound")
    sent = request(max_tokens=1)
    assert target.add(sent) == {"ok": True}
    assert rejection(target, sent) == "'a' is already the id of a request"
    assert target.step()["step"]["finished"] == {"a": "length"}
    assert rejection(target, sent) == "'a' is already the id of a request"


def test_a_refused_request_is_not_part_of_the_run_and_its_id_stays_free():
    target = started("sound", max_model_len=64)
    rejection(target, request(tokens=65))
    assert target.step()["step"]["kind"] == "idle"
    assert target.add(request()) == {"ok": True}


@pytest.mark.parametrize("inside", [False, True])
def test_aborting_an_unknown_or_finished_request_does_nothing(inside):
    target = started("sound")
    target.add(request(max_tokens=1))
    target.step()
    for name in ("a", "none_there"):
        assert target.abort(name, inside) == {"ok": True}
    assert target.step()["step"]["finished"] == {}


def test_an_abort_inside_holds_for_the_next_step_only():
    target = started("sound")
    target.abort("a", inside=True)
    assert target.step()["step"]["finished"] == {}
    target.add(request())
    assert target.step()["step"]["emitted"] == {"a": 1}


def test_a_second_abort_changes_nothing():
    target = started("sound")
    target.add(request())
    target.abort("a")
    target.abort("a", inside=True)
    target.abort("a")
    assert target.step()["step"]["finished"] == {"a": "aborted"}
    assert target.step()["step"]["finished"] == {}


def test_the_last_token_of_a_shorter_output_is_eos():
    target = started("sound")
    target.add(request(max_tokens=3, output_len=2))
    target.add(request("b", max_tokens=1))
    seen = [target.step()["step"] for _ in range(4)]
    assert {name: why for step in seen for name, why in step["finished"].items()} == {
        "a": "eos",
        "b": "length",
    }


def test_start_discards_everything():
    target = started("sound")
    target.add(request())
    target.step()
    target.abort("a", inside=True)
    assert target.start("spyre", "2.1.2", {})["ok"]
    assert target.add(request()) == {"ok": True}
    seen = target.step()["step"]
    assert (seen["emitted"], seen["finished"]) == ({"a": 1}, {})


def test_a_refused_start_leaves_the_run_as_it_was():
    target = started("sound")
    target.add(request())
    assert not target.start("spyre", "sound", {"foo": 1})["ok"]
    assert target.step()["step"]["scheduled"] == {"a": 4}


@pytest.mark.parametrize("stopped", [False, True])
def test_nothing_works_without_a_start(stopped):
    target = started("sound") if stopped else ModelTarget()
    assert target.stop() == {"ok": True}
    for reply in (target.add(request()), target.abort("a"), target.step()):
        assert (reply["ok"], reply["error"]) == (False, "protocol")
    assert target.start("spyre", "sound", {})["ok"]


def test_two_targets_do_not_share_anything():
    first, other = started("sound"), started("sound")
    first.add(request())
    assert other.step()["step"]["kind"] == "idle"


def test_a_paused_request_can_be_aborted():
    """7 tokens beside 6: b is asked first, a paused."""
    target = started("2.5.2", block_size=4, chunk_size=8, max_model_len=16, max_batch_tkv=13)
    target.add(request("a", tokens=5, max_tokens=4))
    target.add(request("b", tokens=5, max_tokens=4))
    assert [target.step()["step"]["paused"] for _ in range(4)] == [[], [], [], ["a"]]
    target.abort("a")
    seen = target.step()["step"]
    assert (seen["paused"], seen["running"], seen["finished"]) == ([], ["b"], {"a": "aborted"})


def test_what_a_finished_request_said_can_be_found_by_one_that_goes_on_from_it():
    """a computes 7 of its 8 tokens: a block of 4 and 3 more."""
    target = started("sound", block_size=4, chunk_size=8, prefix_caching=True)
    target.add(request("a", tokens=3, max_tokens=5))
    steps = [target.step()["step"] for _ in range(5)]
    assert steps[-1]["finished"] == {"a": "length"}
    target.add(request("b", prompt=[["a", 3], ["out:a", 5]]))
    seen = target.step()["step"]
    assert (seen["prefix_hit"], seen["scheduled"]) == ({"b": 4}, {"b": 4})
    # Its first block is that of a.
    assert seen["blocks"]["b"][0] == steps[0]["blocks"]["a"][0]


@pytest.mark.parametrize("revision", REVISIONS)
def test_without_caching_priority_and_prompt_content_do_not_matter_to_spyre(revision):
    shown = []
    for sent in (request(tokens=9), request(prompt=[["x", 4], ["y", 5]], priority=-7)):
        target = started(revision)
        target.add(sent)
        shown.append([target.step() for _ in range(4)])
    assert shown[0] == shown[1]


@pytest.mark.parametrize("formula", ["2.1.0", "2.1.0+64", "exact"])
def test_a_target_that_admits_by_a_formula_says_that_this_is_its_version(formula):
    reply = ModelTarget(formula).start("spyre", "sound", {})
    assert (reply["ok"], reply["version"]) == (True, formula)
