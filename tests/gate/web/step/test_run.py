"""A run by hand: its verdict is a replay's, undoing is running again, and a fault ends it."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.gate.files.scenario_file import scenario_json, scenario_of
from schedproof.gate.web.step import run as stepping
from schedproof.gate.web.step.run import NotNow
from schedproof.gate.web.step.server import KINDS, MAX_ALONE, Cell, cells, view
from schedproof.model.observation import Step
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay

from .by_hand import SMALLEST, Crashes, broken_run, by_hand


def replayed(run):
    """The steps and the broken rules of the saved scenario, by `replay`."""
    saved = scenario_of(json.loads(scenario_json(run.scenario())), "saved")
    seen: list[Step] = []
    outcome = replay(
        ModelTarget(),
        saved,
        run.setup.rules,
        lambda _, step: seen.append(step),
        last_step=len(run.taken) - 1,
    )
    return seen, [failure.rule for failure in outcome.broken]


def test_what_breaks_by_hand_breaks_in_a_replay_of_what_was_saved():
    run = broken_run()
    assert run.first_broken is not None
    assert run.first_broken.rule == "SPY-R47"
    assert not run.ended
    # A replay ends with the step that breaks a rule; the run goes on.
    assert replayed(run) == ([taken.step for taken in run.taken][:3], ["SPY-R47"])
    assert view(run, "")["verdict"].startswith("SPY-R47 is broken in step 2: r1 joins although")


def test_a_sound_run_breaks_nothing_and_counts_what_was_at_stake():
    run = broken_run(max_batch_tkv=40)
    assert run.first_broken is None
    assert view(run, "")["verdict"].startswith("no rule is broken; ")
    assert any("SPY-R22" in taken.exercised for taken in run.taken)


def test_arrivals_eos_and_aborts_make_the_scenario_that_they_are():
    run = by_hand(prefix_caching=True)
    run.arrive(10, 6, shared=8)
    run.step()
    run.step()
    run.step()
    run.end("r0")
    run.arrive(9, 4, shared=8)
    run.step()
    run.step()
    run.arrive(3, 4)
    run.step()
    run.abort("r1", inside=True)
    run.abort("r2", inside=False)
    run.step()
    first, second, third = run.scenario().requests
    assert first.output_len is not None
    assert first.output_len < first.max_tokens
    assert (second.arrival, second.prompt) == (3, (("shared", 8), ("r1", 1)))
    assert (second.abort_at, second.abort_inside) == (6, True)
    assert (third.abort_at, third.abort_inside) == (6, False)
    ends = {k: v for taken in run.taken for k, v in (taken.step.finished or {}).items()}  # type: ignore[union-attr]
    assert ends["r0"] == "eos"
    assert replayed(run)[0] == [taken.step for taken in run.taken]


def test_undoing_every_move_goes_back_through_the_same_views():
    run = by_hand()
    seen = [view(run, "")]
    moves = [
        lambda: run.arrive(6, 4),
        run.step,
        lambda: run.arrive(13, 4),
        lambda: run.abort("r1", inside=False),
        run.step,
        lambda: run.end("r0"),
        run.step,
    ]
    for move in moves:
        move()
        seen.append(view(run, ""))
    for before in reversed(seen[:-1]):
        run.undo()
        assert view(run, "") == before
    with pytest.raises(NotNow, match="no move to undo"):
        run.undo()


def test_many_steps_are_one_move_that_ends_where_a_rule_breaks():
    one_by_one, at_once = broken_run(), by_hand(**SMALLEST)
    at_once.load(one_by_one.scenario())
    at_once.step(100)
    assert at_once.first_broken == one_by_one.first_broken
    assert at_once.taken[-1].broken
    at_once.undo()
    assert (at_once.clients.steps, at_once.taken) == (0, [])


def test_a_scenario_that_is_loaded_goes_as_it_went():
    before = broken_run()
    after = by_hand()  # in another configuration
    after.load(before.scenario())
    arrivals = [request["where"] for request in view(after, "")["requests"]]
    assert arrivals == ["arrives before the next step", "arrives before step 2"]
    while after.clients.steps < before.clients.steps:
        after.step()
    assert after.taken == before.taken
    assert after.scenario() == before.scenario()
    after.arrive(2, 2)
    assert [request.id for request in after.clients.requests] == ["r0", "r1", "r2"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"system": "vllm", "config": {}}, "is for vllm; valid: a scenario for spyre"),
        ({"config": {"block_size": 7}}, "block_size"),
        ({"requests": ()}, None),
    ],
)
def test_a_scenario_that_cannot_be_loaded_changes_nothing(changes, why):
    run = broken_run()
    other, seen = msgspec.structs.replace(run.scenario(), **changes), view(run, "")
    if why is None:
        run.load(other)
        assert (run.clients.requests, run.taken) == ((), [])
        return
    with pytest.raises(NotNow, match=why):
        run.load(other)
    assert view(run, "") == seen


def test_the_chart_has_what_each_step_took_of_each_limit():
    run = broken_run()
    chart = view(run, "")["chart"]
    assert (chart["first"], chart["broken"]) == (
        0,
        [taken.number for taken in run.taken if taken.broken],
    )
    by_name = {line["name"]: line for line in chart["lines"]}
    assert by_name["batch × tkv"]["limit"] == 6
    volumes = [
        taken.step.tkv * len(taken.step.scheduled)
        if taken.step and taken.step.kind == "decode"
        else None
        for taken in run.taken
    ]
    assert by_name["batch × tkv"]["values"] == volumes


def test_a_request_that_can_never_run_is_said_to_before_it_is_sent():
    run = by_hand()
    run.arrive(31, 2)
    assert run.notice == "r0 can never run in this configuration, so it must be refused"
    run.arrive(6, 4)
    assert run.notice == ""


def test_beginning_anew_leaves_nothing():
    run = broken_run()
    run.restart()
    fresh = by_hand(block_size=2, chunk_size=4, max_num_seqs=3, max_model_len=16, max_batch_tkv=6)
    assert view(run, "") == view(fresh, "")


def test_after_a_broken_rule_the_run_goes_on_and_the_first_stays_the_verdict():
    run = broken_run()
    run.arrive(2, 1)
    run.step()
    assert len(run.taken) == 5
    assert run.first_broken is not None
    assert run.first_broken.step == 2


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ("crash", "ALL-R01 is broken in step 1: the scheduler raised at 'step': RuntimeError"),
        ("hang", "ALL-R02 is broken in step 1: "),
        ("nonsense", "no verdict: "),
    ],
)
def test_a_target_that_fails_ends_the_run_which_can_begin_anew(how, verdict):
    target = Crashes()
    target.how = how
    run = by_hand(target)
    run.arrive(6, 4)
    run.step()
    run.step()
    reported = view(run, "")
    assert run.ended
    assert reported["verdict"].startswith(verdict)
    assert reported["log"][-1]["line"].endswith("no answer")
    assert (reported["details"] != []) == (how == "crash")
    for move in (run.step, lambda: run.arrive(1, 1), lambda: run.end("r0")):
        with pytest.raises(NotNow, match="the run has ended; valid: undo, or start over"):
            move()
    run.undo()
    assert not run.ended
    assert len(run.taken) == 1
    run.restart()
    assert view(run, "") == view(by_hand(Crashes()), "")


def test_a_target_that_answers_otherwise_when_asked_again_is_told():
    class Moody(ModelTarget):
        starts = 0

        def start(self, *args):
            self.starts += 1
            return super().start(*args)  # type: ignore[arg-type]

        def step(self):
            reply = super().step()
            reply["step"]["tkv"] = self.starts
            return reply

    run = by_hand(Moody())
    run.arrive(6, 4)
    run.step()
    run.end("r0")
    assert run.notice == "when the run is repeated, the target answers step 0 differently"
    run.step()
    assert run.notice == ""


def test_who_is_refused_at_the_door_is_told_and_is_not_here():
    run = by_hand()
    run.arrive(40, 4)
    run.arrive(2, 2)
    run.step()
    first, second = view(run, "")["requests"]
    assert first["where"].startswith("refused: prompt + max_tokens - 1 = 43")
    assert (first["here"], second["here"]) == (False, True)
    with pytest.raises(NotNow, match="'r0' is not an unfinished request; valid: r1"):
        run.abort("r0", inside=False)


def test_what_a_run_does_not_allow_changes_nothing(monkeypatch):
    run = by_hand()
    run.arrive(6, 1)
    before = view(run, "")
    with pytest.raises(NotNow, match="one token left of its 1, so it ends anyway"):
        run.end("r0")
    with pytest.raises(NotNow, match="'none_there' is not an unfinished request; valid: r0"):
        run.abort("none_there", inside=True)
    with pytest.raises(NotNow, match="shared 7; valid: 0 to 6"):
        run.arrive(6, 1, shared=7)
    monkeypatch.setattr(stepping, "MAX_REQUESTS", 1)
    with pytest.raises(NotNow, match="1 requests have arrived"):
        run.arrive(6, 1)
    monkeypatch.setattr(stepping, "MAX_STEPS", 0)
    with pytest.raises(NotNow, match="0 steps have been taken"):
        run.step()
    assert view(run, "") == before


@pytest.mark.parametrize("system", ["vllm", "nano_vllm", "llmservingsim"])
def test_every_system_can_be_stepped(system):
    run = by_hand(system=system, block_size=4, num_blocks=16)
    run.arrive(6, 2)
    run.arrive(9, 3)
    for _ in range(5):
        run.step()
    reported = view(run, "")
    assert run.first_broken is None
    assert [request["where"] for request in reported["requests"]] == ["has left", "has left"]
    assert any(name == "blocks held" for name, *_ in reported["measures"]) == (system != "spyre")


def test_the_view_has_the_volume_of_the_last_decode_step_and_the_padding():
    run = by_hand(max_batch_tkv=96)
    run.arrive(10, 6)
    for _ in range(4):
        run.step()
    run.arrive(3, 4)
    while not any(len(t.step.scheduled) > 1 for t in run.taken if t.step is not None):
        run.step()
    reported = view(run, "")
    step = run.taken[-1].step
    assert step is not None
    assert step.tkv is not None
    assert reported["measures"][0] == ["batch × tkv", 2 * step.tkv, 96, "tokens"]
    pads = step.left_pad_blocks or {}
    assert any(pads.values())
    for request in reported["requests"]:
        kinds = [kind for cell in request["cells"] for kind, _ in cell.tokens]
        assert kinds.count("padding") == pads[request["id"]]


COUNT = st.integers(0, 300)


def test_padding_then_prompt_then_what_was_generated():
    assert cells(1, 0, 3, 2, 4) == [
        Cell(1, (("padding", 4),)),
        Cell(1, (("prompt", 3), ("generated", 1))),
        Cell(1, (("generated", 1),)),
    ]
    assert cells(0, 0, 0, 0, 4) == []


@given(padding=st.integers(0, 40), cached=COUNT, prompt=COUNT, out=COUNT, size=st.integers(1, 64))
def test_every_token_is_in_a_block(padding, cached, prompt, out, size):
    row = cells(padding, cached, prompt, out, size)
    lengths = dict(zip(KINDS, (padding * size, cached, prompt, out), strict=True))
    for kind, length in lengths.items():
        assert sum(cell.blocks * dict(cell.tokens).get(kind, 0) for cell in row) == length
    whole = [sum(count for _, count in cell.tokens) for cell in row]
    assert all(tokens == size for tokens in whole[:-1])
    assert all(0 < tokens <= size for tokens in whole[-1:])
    kinds = [kind for cell in row for kind, _ in cell.tokens]
    assert kinds == sorted(kinds, key=KINDS.index)


def test_a_long_row_has_one_cell_for_blocks_that_are_alike():
    assert [cell.blocks for cell in cells(0, 0, 64 * 500, 1, 64)] == [500, 1]
    assert len(cells(0, 0, 64 * MAX_ALONE, 0, 64)) == MAX_ALONE


@pytest.mark.parametrize("system", ["spyre", "vllm", "nano_vllm", "llmservingsim", "generic"])
def test_a_run_to_begin_with_runs_in_every_system(system):
    run = by_hand(system=system)
    run.show_example()
    assert [request.id for request in run.clients.requests] == ["r0", "r1", "r2"]
    assert len(run.taken) == 6
    assert "example" in run.notice
    run.undo()
    assert len(run.taken) == 5
    run.restart()
    assert (run.clients.requests, run.taken, run.notice) == ((), [], "")


def test_an_example_that_the_target_does_not_survive_is_not_shown():
    run = by_hand(system="spyre", max_model_len=8)  # only one of the three can run
    run.show_example()
    assert len(run.clients.requests) < 3
    nonsense = Crashes()
    nonsense.how = "nonsense"
    run = by_hand(nonsense)
    run.show_example()
    assert (run.taken, run.fault) == ([], None)
