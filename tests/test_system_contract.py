"""What the model of every system does, whatever it decides: one test for all of them."""

import json
from typing import NamedTuple

import msgspec
import pytest

from schedproof.model.errors import InputError
from schedproof.model.observation import FIELDS, REQUIRED, Step
from schedproof.model.scenario import Request
from schedproof.model.systems import config_keys, full_config, make_model, reference
from schedproof.model.target import ModelTarget, model_name
from schedproof.spec import systems
from schedproof.spec.systems import SYSTEMS

from .toy_system import REVISIONS as TOY_REVISIONS
from .toy_system import TOY_SYSTEM

# Small values of the keys that systems have in common; a pool that every revision takes.
SMALL = {
    **{"block_size": 4, "chunk_size": 8, "max_num_seqs": 4},
    **{"max_num_batched_tokens": 16, "max_model_len": 64, "num_blocks": 100},
}
# Keys that decide which fields a step shows.
SHOWN_BY = ("enable_prefix_caching", "prefix_caching")


class Subject(NamedTuple):
    """One revision of one system."""

    system: str
    revision: str

    def config(self, **changes):
        """Small values of the keys that the system has, and the changes."""
        keys = config_keys(self.system, self.revision)
        return {key: value for key, value in SMALL.items() if key in keys} | changes

    def model(self, **changes):
        return make_model(self.system, self.revision, self.config(**changes))

    def variants(self):
        """Configurations that differ in what they show: with a prefix cache or without, and with
        the default pool."""
        keys = config_keys(self.system, self.revision)
        default = full_config(self.system, self.revision, {})
        yield self.config()
        for key in SHOWN_BY:
            if key in keys:
                yield self.config(**{key: not default[key]})
        if "num_blocks" in keys:
            yield self.config(num_blocks=default["num_blocks"])


SUBJECTS = [
    *(Subject(system, revision) for system in SYSTEMS for revision in SYSTEMS[system].revisions),
    *(Subject("toy", revision) for revision in TOY_REVISIONS if "toy" not in SYSTEMS),
]


@pytest.fixture(params=SUBJECTS, ids="-".join)
def subject(request, tmp_path):
    if request.param.system in SYSTEMS:
        yield request.param
        return
    systems.register(TOY_SYSTEM)
    yield request.param
    systems.unregister("toy")


def request(name="a", prompt=5, max_tokens=3, output_len=None):
    content = ((name, prompt - 1), (f"{name} ends", 1))
    return Request(id=name, arrival=0, prompt=content, max_tokens=max_tokens, output_len=output_len)


def arrived(model, *names):
    state = model.initial()
    for name in names:
        state = model.arrive(state, request(name, max_tokens=6))
    return state


def free(seen):
    """No request holds a block, where blocks are shown."""
    return not seen.get("blocks") and seen.get("free_blocks") in (None, SMALL["num_blocks"])


def test_a_whole_configuration_reads_as_itself(subject):
    whole = full_config(*subject, subject.config())
    assert whole.items() >= subject.config().items()
    assert full_config(*subject, json.loads(json.dumps(whole))) == whole
    assert {*whole} <= {*config_keys(*subject)}


def test_what_is_left_out_is_at_its_default(subject):
    assert full_config(*subject, full_config(*subject, {})) == full_config(*subject, {})


def test_an_unknown_key_is_refused_with_those_that_are_valid(subject):
    with pytest.raises(InputError) as caught:
        make_model(*subject, {"unheard_of": 1})
    assert caught.value.path == "$.config.unheard_of"
    assert caught.value.problem == f"unknown key; valid: {', '.join(config_keys(*subject))}"


def test_a_value_of_another_type_is_refused_with_its_place(subject):
    for key in config_keys(*subject):
        with pytest.raises(InputError) as caught:
            full_config(*subject, {key: {"a": [1]} if key != "own" else 1})
        assert caught.value.path == f"$.config.{key}"


def test_parameters_are_given_by_name_and_do_not_change(subject):
    read = reference(subject.system).read_config(subject.config(), subject.revision)
    with pytest.raises(TypeError):
        type(read)(4)
    for key in config_keys(*subject):
        with pytest.raises(AttributeError):
            setattr(read, key, getattr(read, key))


def test_a_model_is_what_it_was_made_and_stays_so(subject):
    model = subject.model()
    for name in ("config", "revision"):
        if hasattr(model, name):
            with pytest.raises(AttributeError):
                setattr(model, name, None)
    assert model == subject.model()


def test_a_step_shows_the_fields_that_the_model_names_and_no_others(subject):
    for config in subject.variants():
        model = make_model(*subject, config)
        assert {*model.observes} <= FIELDS
        assert len({*model.observes}) == len(model.observes)
        state = model.arrive(model.initial(), request(max_tokens=2))
        kinds = []
        while "idle" not in kinds:
            state, seen = model.step(state)
            kinds.append(seen["kind"])
            assert {*seen} == {*model.observes} | REQUIRED
            msgspec.convert(json.loads(json.dumps(seen)), Step)
            assert len(kinds) < 20, "the only request never ends"
        # A system may cut the prompt into several steps.
        assert list(dict.fromkeys(kinds)) == ["prefill", "decode", "idle"]
        assert kinds.count("decode") == 1


def test_a_model_is_pure(subject):
    for config in subject.variants():
        model = make_model(*subject, config)
        state = arrived(model, "a", "b")
        first = model.step(state)
        assert model.step(state) == first
        assert state == arrived(model, "a", "b")
        aborted = model.abort(first[0], "a")
        assert model.abort(first[0], "a") == aborted
        second = model.step(first[0])
        assert model.step(first[0]) == second
        assert second[0] != first[0]


def test_a_step_with_nothing_to_do_is_idle_and_changes_nothing(subject):
    model = subject.model()
    state, seen = model.step(model.initial())
    assert state == model.initial()
    assert seen["kind"] == "idle"
    assert free(seen)
    empty = {field for field, value in seen.items() if isinstance(value, dict | list)}
    assert empty >= {"scheduled", "emitted", "waiting", "running", "finished"}
    assert not any(seen[field] for field in empty - {"sent"})
    assert not any(seen.get("sent", {}).values())


def test_the_model_stands_in_for_a_target(subject):
    target = ModelTarget()
    started = target.start(*subject, subject.config())
    assert (started["name"], started["version"]) == (model_name(subject.system), subject.revision)
    assert started["defaults"] == full_config(*subject, {})
    refused = target.start(*subject, {"unheard_of": 1})
    assert (refused["ok"], refused["error"]) == (False, "config")


def test_what_a_request_will_generate_does_not_count_when_it_is_added(subject):
    model = subject.model()
    for max_tokens in (1, 20, 60, 61, 500):
        refusals = {
            model.refusal(request(max_tokens=max_tokens, output_len=length)) for length in (None, 1)
        }
        assert len(refusals) == 1
        assert not any("\n" in (reason or "") for reason in refusals)
    assert model.refusal(request()) is None


@pytest.mark.parametrize(("output_len", "reason"), [(None, "length"), (3, "length"), (2, "eos")])
def test_a_request_ends_with_its_last_token_and_leaves_nothing(subject, output_len, reason):
    model = subject.model()
    state = model.arrive(model.initial(), request(output_len=output_len))
    tokens = 0
    finished: dict[str, tuple[str, int]] = {}
    for _ in range(12):
        state, seen = model.step(state)
        assert not (finished and seen["scheduled"])
        tokens += seen["emitted"].get("a", 0)
        finished |= {name: (why, tokens) for name, why in seen["finished"].items()}
    assert finished == {"a": (reason, output_len or 3)}
    assert (seen["waiting"], seen["running"]) == ([], [])
    assert free(seen)


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("inside", [False, True])
def test_an_aborted_request_leaves_once_and_others_stay(subject, inside, steps):
    """While it waits, in the step of its prompt, and while it decodes."""
    model = subject.model()
    state = arrived(model, "a", "b")
    for _ in range(steps):
        state, _ = model.step(state)
    if not inside:
        state = model.abort(state, "a")
    state, seen = model.step(state, ("a",) if inside else ())
    assert seen["finished"] == {"a": "aborted"}
    assert "a" not in seen["emitted"]
    assert "a" not in (*seen["waiting"], *seen["running"], *seen.get("blocks", ()))
    if not inside:
        assert "a" not in seen["scheduled"]
    finished = []
    for _ in range(20):
        state, seen = model.step(model.abort(state, "a"))
        finished.append(seen["finished"])
    assert [ended for ended in finished if ended] == [{"b": "length"}]
    assert free(seen)


def test_to_abort_a_stranger_changes_nothing(subject):
    model = subject.model()
    for state in (arrived(model, "a", "b"), model.step(arrived(model, "a", "b"))[0]):
        assert model.abort(state, "stranger") == state
        assert model.step(state, ("stranger",)) == model.step(state)
