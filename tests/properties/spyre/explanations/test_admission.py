"""Explanations of a broken limit carry the projection's own numbers, or stay silent."""

from pathlib import Path

import msgspec
import pytest

from schedproof.gate.corpus.folder import builtin_scenarios
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.model.observation import Step
from schedproof.model.scenario import Request, Scenario
from schedproof.model.spyre.model import SpyreModel, with_formula
from schedproof.model.systems import full_config, make_model
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.explanations.failure import explain, projections
from schedproof.properties.spyre.explanations import explain_passed_by, explain_volume
from schedproof.spec.catalogue import load

CONFIG = {"chunk_size": 128, "max_num_seqs": 2, "max_model_len": 512, "max_batch_tkv": 512}


def _scenario(*requests, revision="documented"):
    return Scenario(
        system="spyre",
        revision=revision,
        config=full_config("spyre", revision, CONFIG),
        requests=tuple(
            Request(id=f"r{i}", arrival=0, prompt=((f"r{i}", prompt),), max_tokens=tokens)
            for i, (prompt, tokens) in enumerate(requests)
        ),
    )


def test_the_document_is_explained_in_its_own_terms():
    lines = explain("SPY-R07", _scenario((1, 290), (1, 256)), 257, "documented")
    assert lines[0] == "step 2: r1 joins; the projection accepts it:"
    assert "current tkv 1 + 255 tokens that it may still generate" in lines[1]
    assert "current tkv 2 + 288 tokens that it may still generate + one block of 64" in lines[2]
    assert "until r1 ends: 2 requests x 256 = 512 <= 512" in lines[3]
    assert "r1 is at tkv 320, 64 beyond its projection" in lines[4]


def test_a_run_that_goes_on_where_the_model_ends_is_not_explained():
    """A server of 2.1.2 does not start with so few blocks; `--beyond-start-up` runs it."""
    few = {"chunk_size": 256, "max_num_seqs": 2, "max_model_len": 1024, "max_batch_tkv": 2048}
    config = full_config("spyre", "2.1.2", {**few, "num_blocks": 21})
    scenario = msgspec.structs.replace(_scenario((575, 112), (759, 1)), config=config)
    assert explain("ALL-R05", scenario, 126, "2.1.2") == []


def test_a_release_is_explained_by_its_own_formula():
    scenario = builtin_scenarios("spyre")["late-arrivals-before-961.json"]
    lines = explain("SPY-R07", scenario, 502, "2.1.0")
    assert "  r4 reaches tkv 26176 at most" in lines
    assert any(line.startswith("  r4 is at tkv 26215, 39 beyond") for line in lines)


@pytest.mark.parametrize(
    ("rule", "version", "step"),
    [
        ("SPY-R07", "of another request", 257),
        ("SPY-R32", "documented", 257),
        ("SPY-R07", "documented", 100),
    ],
    ids=["unknown admission rule", "rule without explanation", "step that keeps the limit"],
)
def test_nothing_is_said_where_the_model_does_not_show_the_fault(rule, version, step):
    assert explain(rule, _scenario((1, 290), (1, 256)), step, version) == []


def test_an_idle_step_is_explained_by_the_stale_tkv():
    config = CONFIG | {"chunk_size": 64, "max_model_len": 1024, "max_batch_tkv": 1024}
    scenario = msgspec.structs.replace(
        _scenario((830, 3), (116, 142), revision="2.1.2"),
        config=full_config("spyre", "2.1.2", config),
    )
    idle = [broken.step for broken in replay(ModelTarget(), scenario, load("spyre")).broken]
    lines = explain("SPY-R35", scenario, idle[0], "2.1.2")
    assert "max-model-length rule: it uses tkv 832 of the last forward pass" in lines[0]
    assert "> 1024" in lines[1]


def test_a_tkv_that_the_projection_did_not_look_at_is_named():
    config = CONFIG | {"chunk_size": 256, "max_batch_tkv": 520}
    scenario = msgspec.structs.replace(
        _scenario((3, 3), (256, 2)), config=full_config("spyre", "documented", config)
    )
    lines = explain("SPY-R07", scenario, 3, "documented")
    assert "until r1 ends: 2 requests x 257 = 514 <= 520" in lines[-2]
    assert "so it never compared r0, whose tkv is 261" in lines[-1]


def test_a_shorter_projection_is_named_if_the_limit_breaks_before_its_end(tmp_path):
    """The walk compares the widest request, but with fewer requests than are in the batch."""
    formula = tmp_path / "formula.py"
    formula.write_text(
        "def last(request, tkv, prompt, block_size):\n"
        "    return max(tkv, prompt) + request.remaining\n"
    )
    small = {"block_size": 2, "chunk_size": 2, "max_num_seqs": 4, "max_model_len": 16}
    config = full_config("spyre", "documented", small | {"max_batch_tkv": 15})
    requests = _scenario((2, 6), (1, 5), (1, 2)).requests
    arrive = dict(zip(requests, (0, 3, 2), strict=True))
    scenario = Scenario(
        system="spyre",
        revision="documented",
        config=config,
        requests=tuple(msgspec.structs.replace(r, arrival=step) for r, step in arrive.items()),
    )
    made = with_formula(model(scenario, "documented"), f"{formula}:last")
    assert made is not None
    assert explain_volume(made, scenario, 7)[-2:] == [
        "  until r0 ends: 2 requests x 7 = 14 <= 15",
        "  r0 has not ended when r1 is at tkv 8: "
        "within its own projection, and 1 beyond that of r0",
    ]


def test_the_comparison_is_that_of_the_request_that_is_beyond_its_projection(tmp_path):
    """Not that of the newcomer, which runs longest here: it is then compared alone."""
    formula = tmp_path / "formula.py"
    formula.write_text(
        "def last(request, tkv, prompt, block_size):\n"
        "    return max(tkv, prompt) + request.remaining\n"
    )
    small = {"block_size": 2, "chunk_size": 2, "max_num_seqs": 4, "max_model_len": 16}
    late, early = _scenario((4, 6), (1, 6)).requests
    scenario = Scenario(
        system="spyre",
        revision="documented",
        config=full_config("spyre", "documented", small | {"max_batch_tkv": 14}),
        requests=(msgspec.structs.replace(late, arrival=2), early),
    )
    made = with_formula(model(scenario, "documented"), f"{formula}:last")
    assert made is not None
    assert explain_volume(made, scenario, 7)[-2:] == [
        "  until r1 ends: 2 requests x 7 = 14 <= 14",
        "  r1 is at tkv 8, 1 beyond its projection: r0 needs one block more, which pads r1 on the "
        "left",
    ]


FILE = Path(__file__).parents[3] / "corpus" / "a-refused-head-is-passed-by.json"


def model(scenario, revision):
    config = full_config("spyre", revision, {"block_size": 64, **scenario.config})
    made = make_model("spyre", revision, config)
    assert isinstance(made, SpyreModel)
    return made


def test_who_is_passed_by_and_by_whom_is_named():
    scenario = read_scenario(FILE)
    lines = explain_passed_by(model(scenario, "2.5.2"), scenario, 645)
    assert lines[0].startswith("r2 exceeds the volume of the batch while later requests fit")
    assert lines[0].endswith("r3 overtook it,")
    assert lines[1].endswith("a refused request does not stop the queue")


def test_nothing_is_said_before_anyone_passed():
    scenario = read_scenario(FILE)
    assert explain_passed_by(model(scenario, "2.5.2"), scenario, 3) == []


def test_where_the_model_ends_later_steps_have_no_projection():
    small = {"block_size": 4, "chunk_size": 8, "max_num_seqs": 4, "max_model_len": 64}
    scenario = Scenario(
        system="spyre",
        revision="2.1.2",
        config=full_config("spyre", "2.1.2", small | {"max_batch_tkv": 256, "num_blocks": 12}),
        requests=tuple(
            Request(id=name, arrival=0, prompt=((name, 8),), max_tokens=20) for name in "abcd"
        ),
    )
    steps: list[Step] = []
    outcome = replay(ModelTarget(), scenario, (), lambda _, step: steps.append(step))
    assert not outcome.finished
    found = projections(scenario, "2.1.2", steps)
    assert found
    assert projections(scenario, "2.1.2", [*steps, *steps[-1:] * 3]) == found
