"""The cause of a failure: its numbers are those of the run, and each kind of evidence is drawn."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from schedproof.model.observation import Step
from schedproof.model.scenario import Event, Request, Scenario, Turn
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.explanations.evidence import Evidence
from schedproof.properties.explanations.pool import BLOCK, spans
from schedproof.properties.explanations.tokens import MOST_BARS, limit_cause
from schedproof.properties.rules.predicate import Broken
from schedproof.spec.catalogue import load, select

SMALL = {
    "block_size": 4,
    "num_blocks": 12,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 16,
    "max_model_len": 32,
}


class Bent(ModelTarget):
    """vLLM's model, with steps that `bend` changes; `number` is that of the step."""

    def start(self, *args):
        self.number = -1
        return super().start(*args)

    def step(self):
        self.number += 1
        reply = super().step()
        self.bend(reply["step"])
        return reply

    def bend(self, step: dict[str, Any]) -> None:
        """Change nothing."""


class Leaks(Bent):
    """Of the blocks of a request that leaves, the last one never comes back."""

    lost = 0

    def bend(self, step):
        self.lost += bool(step["finished"])
        step["free_blocks"] -= self.lost


class LeaksAborted(Bent):
    """Of the blocks of a request that is aborted, the last one never comes back."""

    lost = 0

    def bend(self, step):
        self.lost += "aborted" in step["finished"].values()
        step["free_blocks"] -= self.lost


class FreesTwice(Bent):
    """From step 3 on, one of the blocks that are held is free as well."""

    def bend(self, step):
        step["free_blocks"] += self.number >= 3


class ReturnsTwice(Bent):
    """A request that leaves gives one of its blocks back twice."""

    more = 0

    def bend(self, step):
        self.more += bool(step["finished"])
        step["free_blocks"] += self.more


class ReadsOthers(Bent):
    """The first block of the second request is that of the first one."""

    def bend(self, step):
        if len(step["blocks"]) > 1:
            first, second = list(step["blocks"])[:2]
            table = step["blocks"][second]
            step["blocks"][second] = (step["blocks"][first][0], *table[1:])


class FindsMore(Bent):
    """A request that starts counts a block more as cached than was computed."""

    def bend(self, step):
        for name in step["scheduled"]:
            if step["prefix_hit"].get(name) and step["scheduled"][name] > 4:
                step["prefix_hit"][name] += 4
                step["scheduled"][name] -= 4


class ComputesLess(Bent):
    """A request that leaves in its first step computes fewer tokens than it has to."""

    def bend(self, step):
        if "b" in step["finished"]:
            step["scheduled"]["b"] -= 4


class Overspends(Bent):
    def bend(self, step):
        if self.number == 1:
            step["scheduled"] = dict.fromkeys(step["scheduled"], 9)


class Stands(Bent):
    """From step 2 on, nothing happens any more."""

    def bend(self, step):
        if self.number >= 2:
            step |= {"kind": "idle", "scheduled": {}, "emitted": {}, "finished": {}}


class RunsAlone(ModelTarget):
    """Runs one request at a time, whatever max_num_seqs is."""

    def start(self, system, revision, config):
        return super().start(system, revision, {**config, "max_num_seqs": 1})


class ReversesTables(Bent):
    """A request that finds two blocks has them in the wrong order."""

    def bend(self, step):
        for name in step["scheduled"]:
            if step["prefix_hit"].get(name) == 8:
                first, second, *rest = step["blocks"][name]
                step["blocks"][name] = (second, first, *rest)


class Forgets(Bent):
    """When a client gives up, the last request that waits is forgotten, too."""

    def bend(self, step):
        if "gone" in step["finished"]:
            step["waiting"] = step["waiting"][:-1]


class NeverAdmits(Bent):
    """A request whose prompt is computed already is never admitted."""

    def bend(self, step):
        if self.number >= 2:
            step |= {"kind": "idle", "scheduled": {}, "emitted": {}, "finished": {}}
            step |= {"prefix_hit": {}, "waiting": ["b"], "running": [], "blocks": {}}


class RefusesAfterALeak(Leaks):
    """Refuses what does not fit into the free blocks, of which some are lost."""

    def add(self, request):
        if request["id"] == "b":
            return {"ok": False, "error": "rejected", "message": "no room"}
        return super().add(request)


class HoldsMore(Bent):
    """The second request holds a block that it does not need."""

    def bend(self, step):
        if len(step["blocks"]) > 1:
            second = list(step["blocks"])[1]
            step["blocks"][second] = (*step["blocks"][second], 12)
            step["free_blocks"] -= 1


class Raises(Bent):
    def bend(self, step):
        if self.number == 2:
            raise IndexError("pop from an empty list")


def scenario(*requests: Request, system: str = "vllm") -> Scenario:
    """Two requests that share 8 tokens, and run together for a while."""
    both = (
        Request(id="a", arrival=0, prompt=(("doc", 8), ("a", 2)), max_tokens=4),
        Request(id="b", arrival=1, prompt=(("doc", 8), ("b", 7)), max_tokens=6),
    )
    return Scenario(
        system=system,
        revision="documented",
        config=full_config(system, "documented", SMALL),
        requests=requests or both,
    )


ALONE = [
    Request(id="a", arrival=0, prompt=(("a", 6),), max_tokens=3),
    Request(id="b", arrival=0, prompt=(("b", 6),), max_tokens=5),
]


def cause_of(target, rule, meant=None):
    """What is known of the first step in which the rule breaks."""
    meant, evidence = meant or scenario(), Evidence()
    rules = select(load(meant.system, "documented"), [rule])
    outcome = replay(target, meant, rules, evidence.watch, begun=evidence.begun)
    assert [failure.rule for failure in outcome.broken] == [rule]
    found = evidence.cause(meant, outcome.broken)
    assert found is not None
    return found


def cells(cause):
    return {cell.first: cell for cell in cause.cells}


def test_a_lost_block_is_marked_in_the_pool_with_its_last_owner():
    a, b = scenario().requests
    cause = cause_of(Leaks(), "ALL-R09", scenario(replace(a, max_tokens=3), b))
    assert cause.headline == "1 of 12 blocks is lost"
    assert len(cause.cells) == 12
    lost = [cell for cell in cause.cells if cell.state == "lost"]
    assert {cell.owners for cell in lost} == {("a",)}
    assert [cell.perhaps for cell in lost] == [False]  # it is the only one that `a` gave up
    assert any("a leaves (length), and gives up block" in line for line in cause.why)
    assert "1 block is neither held nor free from this step on" in cause.why


def test_of_several_blocks_that_were_given_up_none_is_accused_alone():
    cause = cause_of(Leaks(), "ALL-R09", scenario(*ALONE))
    assert cause.headline == "1 of 12 blocks is lost"
    assert [cell.perhaps for cell in cause.cells if cell.state == "lost"] == [True, True]


def test_a_block_that_is_free_and_held_is_counted():
    cause = cause_of(FreesTwice(), "ALL-R09")
    assert cause.headline == "1 block is free although a request holds it"
    held = [cell for cell in cause.cells if cell.owners]
    assert {(cell.state, cell.perhaps) for cell in held} == {("held", False), ("twice", True)}


def test_a_block_that_is_free_twice_is_held_by_nobody():
    once = Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=2)
    cause = cause_of(ReturnsTwice(), "ALL-R09", scenario(once))
    assert cause.headline == "1 block is free twice, and none is held"
    assert [(cell.first, cell.state) for cell in cause.cells if cell.state != "free"] == [
        (1, "returned")
    ]
    assert cause.why[0] == "step 1: a leaves (length), and gives up block 1"


def test_a_block_that_is_free_twice_and_was_never_shown_is_counted():
    once = Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=1)
    cause = cause_of(ReturnsTwice(), "ALL-R09", scenario(once))
    assert [(cell.state, cell.count, cell.owners) for cell in cause.cells] == [
        ("free", 11, ()),
        ("returned", 1, ("a",)),
    ]
    assert cause.why[0] == "step 0: a leaves (length), and its blocks are not shown"


def test_a_block_with_other_tokens_is_marked_with_what_it_holds():
    cause = cause_of(ReadsOthers(), "ALL-R11", scenario(*ALONE))
    [foreign] = [cell for cell in cause.cells if cell.state == "foreign"]
    assert set(foreign.owners) == {"a", "b"}
    assert foreign.holds == "b 0–3, read as a 0–3"
    assert cause.headline.endswith("which holds b 0–3")


def test_a_table_in_the_wrong_order_shows_which_tokens_each_block_is_read_for():
    cause = cause_of(ReversesTables(), "ALL-R11")
    wrong = {cell.holds for cell in cause.cells if cell.state == "foreign"}
    assert wrong == {"a 4–7, read as b 0–3", "a 0–3, read as b 4–7"}


def test_a_request_in_no_queue_is_lost_and_does_not_wait():
    requests = (
        *(Request(id=name, arrival=0, prompt=((name, 4),), max_tokens=5) for name in "xyz"),
        Request(id="gone", arrival=0, prompt=(("gone", 4),), max_tokens=3, abort_at=1),
        Request(id="r3", arrival=0, prompt=(("r3", 4),), max_tokens=3),
    )
    cause = cause_of(Forgets(), "ALL-R03", scenario(*requests))
    assert cause.headline == "r3 is lost: in no queue, and not finished"
    assert cause.why == (
        "step 0: r3 still in `waiting`",
        "step 1: the client of gone aborts it",
    )
    rows = {row.request: row for row in cause.rows}
    assert (rows["r3"].state, rows["r3"].needs) == ("LOST: in no queue", ())
    assert rows["gone"].state == "left (aborted)"


def test_a_prompt_that_is_computed_already_is_named_where_a_request_waits_for_nothing():
    requests = (
        Request(id="a", arrival=0, prompt=(("doc", 8),), max_tokens=2),
        Request(id="b", arrival=2, prompt=(("doc", 8),), max_tokens=2),
    )
    cause = cause_of(NeverAdmits(), "ALL-R10", scenario(*requests))
    assert cause.why[-1].endswith("its whole prompt is computed already, for a")


def test_without_a_prefix_cache_no_computed_prompt_is_named():
    requests = (
        Request(id="a", arrival=0, prompt=(("doc", 8),), max_tokens=2),
        Request(id="b", arrival=2, prompt=(("doc", 8),), max_tokens=2),
    )
    meant = scenario(*requests)
    meant = replace(meant, config={**meant.config, "enable_prefix_caching": False})
    cause = cause_of(NeverAdmits(), "ALL-R10", meant)
    assert cause.why[-1].endswith("no limit that is shown holds it back")


def test_a_needless_refusal_says_how_many_blocks_were_free():
    later = Request(id="b", arrival=6, prompt=(("b", 5),), max_tokens=2)
    once = Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=2)
    cause = cause_of(RefusesAfterALeak(), "ALL-R12", scenario(once, later))
    assert cause.why == (
        "step 5: 11 of 12 blocks are free after it",
        "step 6: b arrives: prompt 5, max_tokens 2",
    )


def test_tokens_that_were_never_computed_are_marked_in_the_bar():
    cause = cause_of(FindsMore(), "ALL-R08")
    reader, source = cause.bars
    assert [(part.kind, part.tokens) for part in reader.parts] == [
        ("cached", 8),
        ("never", 4),
        ("now", 3),
    ]
    assert (source.request, source.parts[0].kind) == ("a", "computed")
    assert cause.headline == "4 of 12 cached tokens were never computed"
    assert cause.why[-1].startswith("step 1: b finds these blocks by their content")


def test_a_hit_of_a_request_that_leaves_at_once_is_drawn_as_well():
    a, b = scenario().requests
    cause = cause_of(ComputesLess(), "ALL-R08", scenario(a, replace(b, max_tokens=1)))
    assert cause.headline == "4 of 12 cached tokens were never computed"
    assert [(part.kind, part.tokens) for part in cause.bars[0].parts] == [
        ("cached", 8),
        ("never", 4),
        ("now", 3),
    ]


def test_a_lost_block_that_was_never_shown_is_counted_and_no_block_is_accused():
    once = Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=1)
    cause = cause_of(Leaks(), "ALL-R09", scenario(once))
    assert [(cell.state, cell.count, cell.owners) for cell in cause.cells] == [
        ("free", 11, ()),
        ("lost", 1, ("a",)),
    ]
    assert cause.why[0] == "step 0: a leaves (length), and its blocks are not shown"


def test_a_block_taken_in_the_last_step_of_its_request_may_be_the_lost_one():
    """`a` holds a block; its fifth token, in its last step, takes another one."""
    once = Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=3)
    cause = cause_of(Leaks(), "ALL-R09", scenario(once))
    assert [(cell.state, cell.count) for cell in cause.cells] == [("free", 11), ("lost", 1)]
    assert cause.why[0].endswith("gives up block 1 and 1 that it took in this step")


def test_blocks_that_a_request_held_before_its_preemption_are_not_taken_in_its_last_step():
    """`b` is preempted with 16 tokens, and aborted while it computes them again, four a step."""
    a, b = (Request(id=name, arrival=0, prompt=((name, 4),), max_tokens=20) for name in "ab")
    config = SMALL | {"num_blocks": 8, "max_num_batched_tokens": 4, "enable_prefix_caching": False}
    meant = replace(
        scenario(a, replace(b, abort_at=21, abort_inside=True)),
        config=full_config("vllm", "documented", config),
    )
    cause = cause_of(LeaksAborted(), "ALL-R09", meant)
    assert cause.why[0].endswith("gives up block 6 and 1 that it took in this step")


def over_the_limit(**more):
    """A failure of SPY-R07: a batch of two at tkv 40, beyond a limit of 64."""
    last = Step(kind="decode", scheduled={"a": 1, "b": 1}, tkv=40)
    return SimpleNamespace(
        config={"max_batch_tkv": 64},
        message="2 requests x tkv 40 = 80 > 64",
        numbers={2, 40, 64, 80},
        last=last,
        steps=[last],
        first=Broken("SPY-R07", 0, ""),
        **more,
    )


def test_the_volume_of_a_batch_that_nobody_joined_has_no_projection():
    """As with pausing, where requests join unchecked."""
    failure = over_the_limit(
        projections=(),
    )
    cause = limit_cause(failure)
    assert cause is not None
    assert cause.curve is not None
    assert cause.curve.projected == ()


def test_a_standstill_names_the_last_progress_and_what_was_free():
    cause = cause_of(Stands(), "ALL-R10")
    assert cause.headline == "nothing is computed after step 1"
    assert cause.why[0] == "step 1: tokens are computed for the last time, for a, b"
    rows = {row.request: row for row in cause.rows}
    assert rows["a"].turns[:2] == ("10", "1")
    assert set(rows["a"].turns[2:]) == {"·"}
    assert all(need.needs <= need.free for row in cause.rows for need in row.needs)
    assert any("no limit that is shown holds it back" in line for line in cause.why)


def test_a_request_that_waits_needlessly_lacks_nothing():
    """It needs blocks for a chunk, which the threshold bounds, not for its whole prompt."""
    bounds = {"num_blocks": 6, "max_num_seqs": 2, "long_prefill_token_threshold": 4}
    meant = Scenario(
        system="vllm",
        revision="documented",
        config=full_config("vllm", "documented", SMALL | bounds | {"reserve_full_isl": False}),
        requests=(ALONE[0], Request(id="b", arrival=0, prompt=(("b", 22),), max_tokens=1)),
    )
    cause = cause_of(RunsAlone(), "V1-R07", meant)
    assert cause.headline == "b waits for 1 step, with 1 slot and 5 blocks free"
    [b] = [row for row in cause.rows if row.request == "b"]
    assert [(need.needs, need.what) for need in b.needs] == [
        (1, "slots"),
        (1, "blocks"),
        (4, "tokens of the budget"),
    ]
    [a] = [row for row in cause.rows if row.request == "a"]
    assert a.needs == ()  # it has had its turn


def test_blocks_that_a_request_holds_needlessly_are_marked():
    cause = cause_of(HoldsMore(), "V1-R14", scenario(*ALONE))
    assert "b holds 3 blocks" in cause.headline
    named = {cell.first: cell.owners for cell in cause.cells if cell.state == "named"}
    assert {owner for owners in named.values() for owner in owners} == {"b"}
    assert len(named) == 3
    assert cells(cause)[12].holds == ""  # nothing was written to it


class HoldsMany(Bent):
    def bend(self, step):
        for name, table in step["blocks"].items():
            step["blocks"][name] = (*table, *range(40, 140))


def test_many_blocks_that_one_request_holds_are_one_box():
    config = full_config("vllm", "documented", SMALL | {"num_blocks": 200})
    meant = Scenario(system="vllm", revision="documented", config=config, requests=(ALONE[0],))
    cause = cause_of(HoldsMany(), "V1-R14", meant)
    named = [(cell.first, cell.last) for cell in cause.cells if cell.state == "named"]
    assert named[-1] == (40, 139)


def test_a_request_that_leaves_in_the_step_is_shown_if_the_rule_names_it():
    meant, evidence = scenario(*ALONE), Evidence()
    rules = select(load("vllm", "documented"), ["ALL-R03"])
    replay(ModelTarget(), meant, rules, evidence.watch, begun=evidence.begun)
    last = evidence.cause(meant, [Broken("V1CP-R14", 4, "b preempted, a stays")])
    assert last is not None
    assert {row.request for row in last.rows} == {"a", "b"}


def test_a_crash_shows_the_requests_as_they_stood():
    cause = cause_of(Raises(), "ALL-R01")
    assert cause.headline == "IndexError: pop from an empty list"
    assert [row.request for row in cause.rows] == ["a", "b"]
    budgets = {need.free for row in cause.rows for need in row.needs if "budget" in need.what}
    assert budgets == {16}  # the step that raised had all of it


def test_steps_that_a_replay_leaves_out_keep_their_numbers():
    late = Request(id="a", arrival=40, prompt=(("a", 6),), max_tokens=3)
    meant = Scenario(
        system="vllm", revision="documented", config=scenario().config, requests=(late,)
    )
    evidence, skipped = Evidence(), list[int]()
    rules = select(load("vllm", "documented"), ["ALL-R03"])
    replay(
        *(ModelTarget(), meant, rules, evidence.watch),
        begun=evidence.begun,
        skipped=lambda first, _: skipped.append(first),
    )
    assert skipped == [1]
    found = evidence.cause(meant, [Broken("ALL-R03", 41, "a is lost")])
    assert found is not None
    assert (found.first, found.rows[0].turns) == (40, ("6", "1", "1"))


def test_a_run_that_never_began_has_no_cause():
    assert Evidence().cause(scenario(), []) is None


@pytest.mark.parametrize(
    ("numbers", "words"), [((), ""), ((3,), "3"), ((1, 2, 3, 7), "1–3, 7"), ((9, 4), "4, 9")]
)
def test_numbers_in_a_row_are_one_span(numbers, words):
    assert spans(numbers) == words


class LosesWindow(Bent):
    """A block that slides out of the window never comes back."""

    lost, held = 0, frozenset[int]()

    def bend(self, step):
        now = {number for groups in step["group_blocks"].values() for number in groups[0]}
        self.lost += len(self.held - now)
        self.held = frozenset(now)
        step["free_blocks"] -= self.lost


def test_the_pool_has_the_blocks_of_all_groups():
    config = {
        **{"block_size": 4, "num_blocks": 12, "max_num_seqs": 2, "max_num_batched_tokens": 8},
        **{"max_model_len": 20, "enable_prefix_caching": False},
        "kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 6}],
    }
    meant = Scenario(
        system="vllm",
        revision="documented",
        config=full_config("vllm", "documented", config),
        requests=(Request(id="a", arrival=0, prompt=(("a", 8),), max_tokens=6),),
    )
    cause = cause_of(LosesWindow(), "ALL-R09", meant)
    lost = [cell for cell in cause.cells if cell.state == "lost"]
    assert {cell.owners for cell in lost} == {("a",)}
    assert cause.headline.startswith(f"{len(lost)} of 12 blocks")
    assert not any(cell.perhaps for cell in lost)


def test_an_admission_that_the_formula_refuses_is_named():
    """The target admits by another formula than the one it names."""
    join = SimpleNamespace(step=0, joined=True, newcomer="b", largest=90)
    failure = over_the_limit(
        projections=(join,),
        version="sound",
    )
    cause = limit_cause(failure)
    assert cause is not None
    assert cause.why[0] == "step 0: b joins, although the formula of sound projects 90"


def test_a_volume_without_projection_says_who_finished_its_prompt_last():
    """The target does not use the check that the model knows."""
    failure = over_the_limit(projections=())
    prefill = Step(kind="prefill", scheduled={"b": 8})
    failure.steps, failure.first = [prefill, failure.last], Broken("SPY-R07", 1, "")
    cause = limit_cause(failure)
    assert cause is not None
    assert cause.why == (
        "step 0: b computes the last of its prompt, and joins the batch",
        "step 1: batch × tkv is 80; scheduled: a 1, b 1",
    )


class Miscounts(Bent):
    """The first request counts a token too many."""

    def bend(self, step):
        if self.number == 1:
            step["computed"]["a"] += 1


def test_a_wrong_count_does_not_blame_the_requests_that_wait():
    config = full_config("vllm", "documented", SMALL | {"max_num_seqs": 1})
    meant = Scenario(
        system="vllm", revision="documented", config=config, requests=scenario().requests
    )
    cause = cause_of(Miscounts(), "V1CP-R05", meant)
    assert [row.request for row in cause.rows] == ["a", "b"]
    assert not any(row.needs for row in cause.rows)
    assert cause.why == ("step 0: a computes 10 tokens, and has computed 10",)


def vllm_run(*requests: Request, events: tuple[Event, ...] = (), **config: Any) -> Scenario:
    full = full_config("vllm", "documented", SMALL | config)
    return Scenario(
        system="vllm", revision="documented", config=full, requests=requests, events=events
    )


def test_a_later_turn_of_a_session_is_told_with_its_tokens():
    turn = Turn(prompt=(("next", 3),), max_tokens=2)
    session = replace(ALONE[0], max_tokens=2, turns=(turn,))

    class MiscountsTurn(Bent):
        def bend(self, step):
            if self.number == 2:
                step["computed"]["a"] += 1

    cause = cause_of(MiscountsTurn(), "V1CP-R05", vllm_run(session, streaming_inputs=True))
    assert cause.why == (
        "step 1: turn 1 of a ends, and its last token is dropped; turn 2 adds 3 tokens to the 7 "
        "before",
    )


def test_a_control_event_in_the_failing_step_is_told():
    meant = vllm_run(ALONE[0], events=(Event(1, "reset_prefix_cache"),))
    cause = cause_of(Miscounts(), "V1CP-R05", meant)
    assert cause.why == ("step 1: the operator calls reset_prefix_cache",)


def test_the_adapters_of_a_step_are_told():
    class Crowds(ModelTarget):
        """Has a slot for an adapter more than it is given."""

        def start(self, system, revision, config):
            return super().start(system, revision, {**config, "max_loras": 2})

    a, b = (replace(request, lora=request.id) for request in ALONE)
    meant = vllm_run(a, b, cache_partitions=True, max_loras=1)
    cause = cause_of(Crowds(), "V1-R62", meant)
    assert cause.why == ("a has adapter a, b has adapter b",)


def test_the_tables_of_scheduler_and_worker_are_told():
    class ForgetsBlock(Bent):
        def bend(self, step):
            if self.number == 0:
                step["sent"]["blocks"]["a"] = ((1,),)

    cause = cause_of(ForgetsBlock(), "V1-R71", vllm_run(ALONE[0]))
    assert cause.why == ("a's block table: the scheduler has 1 2, the worker 1",)


def test_a_request_whose_load_has_landed_needs_the_rest_of_its_blocks():
    first = Request(
        id="a", arrival=0, prompt=(("a", 20),), max_tokens=1, external_tokens=8, load_steps=0
    )

    class Strands(Bent):
        """Nothing happens once the load has begun."""

        def bend(self, step):
            step |= {"kind": "idle", "scheduled": {}, "emitted": {}, "finished": {}}
            step |= {"parked": ("a",), "waiting": ("a",), "running": (), "free_blocks": 2}
            step |= {"blocks": {"a": (1, 2)}, "computed": {}}

    cause = cause_of(Strands(), "ALL-R10", vllm_run(first, num_blocks=5, kv_connector=True))
    [row] = [row for row in cause.rows if row.request == "a"]
    assert [(need.needs, need.free) for need in row.needs if need.what == "blocks"] == [(3, 2)]
    assert (
        "step 0: the connector begins to load tokens 0 to 7 of a; the load has finished"
        in cause.why
    )


def test_a_request_behind_one_that_does_not_fit_is_said_to_be_behind_it():
    class Blocked(Bent):
        def bend(self, step):
            step |= {"kind": "idle", "scheduled": {}, "emitted": {}, "finished": {}}
            step |= {"waiting": ("a", "b"), "running": (), "free_blocks": 2, "computed": {}}
            step["blocks"] = {}

    meant = vllm_run(replace(ALONE[0], prompt=(("a", 14),)), ALONE[1], num_blocks=8)
    cause = cause_of(Blocked(), "ALL-R10", meant)
    assert any("b gets nothing" in line and "it is behind a" in line for line in cause.why)
    assert (
        "step 0: a gets nothing from here on; it needs 1 slot (3 free), 4 blocks (2 free) and 14 "
        "tokens of the budget (16 free): 2 blocks too few"
    ) in cause.why


def test_a_load_that_has_been_used_is_not_told():
    class MiscountsLoaded(Bent):
        def bend(self, step):
            if self.number == 3:
                step["computed"]["a"] += 1

    loaded = replace(ALONE[0], prompt=(("a", 9),), external_tokens=8, max_tokens=4)
    cause = cause_of(MiscountsLoaded(), "V1CP-R05", vllm_run(loaded, kv_connector=True))
    assert cause.why == ("step 2: a computes 1 token, and has computed 10",)


def test_the_adapters_of_those_that_wait_are_told():
    class Admits(ModelTarget):
        """Runs one request at a time."""

        def start(self, system, revision, config):
            return super().start(system, revision, {**config, "max_num_seqs": 1})

    a, b = (replace(request, lora="x") for request in ALONE)
    meant = vllm_run(a, b, cache_partitions=True, max_loras=1)
    assert cause_of(Admits(), "V1-R07", meant).why[0] == "a has adapter x, b has adapter x"


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("r1 reads block 7, which holds r0 0-3", ["7"]),
        ("block 3 of group 2 holds no state", ["3"]),
        ("written again, to block 8 of the pool", ["8"]),
        ("block 1 of r4 is 0, but block 5 is written", ["5"]),
    ],
)
def test_a_place_in_a_table_is_no_block_of_the_pool(message, numbers):
    assert BLOCK.findall(message) == numbers


def parts(bar):
    return [(part.kind, part.tokens) for part in bar.parts]


def test_a_budget_that_is_exceeded_is_drawn_as_the_sum_of_its_requests():
    cause = cause_of(Overspends(), "V1-I2", scenario(*ALONE))
    limit, a, b = cause.bars
    assert cause.curve is None
    assert cause.headline == "tokens of the step: 18/16 tokens, 2 over"
    assert parts(limit) == [("limit", 16)]
    assert (a.request, parts(a)) == ("a", [("now", 9)])
    assert (b.request, parts(b)) == ("b", [("gap", 9), ("now", 7), ("over", 2)])


def test_many_requests_of_a_budget_share_a_bar():
    names = [f"r{number}" for number in range(30)]
    step = Step(kind="decode", scheduled=dict.fromkeys(names, 1))
    history = SimpleNamespace(live={}, requests={}, features=None, config={})
    failure = SimpleNamespace(
        last=step,
        steps=[step],
        config={"max_num_batched_tokens": 29},
        numbers={29, 30},
        message="30 tokens scheduled > max_num_batched_tokens 29",
        first=Broken("V1-I2", 0, ""),
        history=history,
    )
    cause: Any = limit_cause(failure)  # type: ignore[arg-type]
    assert len(cause.bars) == 1 + MOST_BARS
    assert cause.bars[1].request == f"{30 - MOST_BARS + 1} others"
    assert parts(cause.bars[-1]) == [("gap", 29), ("over", 1)]


class Pads(ModelTarget):
    """From step 1 on, every request has a block of left padding too many."""

    def step(self):
        reply = super().step()
        step = reply["step"]
        if step["kind"] == "decode":
            step["left_pad_blocks"] = {n: p + 1 for n, p in step["left_pad_blocks"].items()}
        return reply


def test_padding_is_drawn_with_the_tokens_and_the_tkv():
    config = {"block_size": 4, "chunk_size": 8, "max_num_seqs": 2, "max_model_len": 32}
    meant = Scenario(
        system="spyre",
        revision="sound",
        config=full_config("spyre", "sound", config),
        requests=(Request(id="a", arrival=0, prompt=(("a", 3),), max_tokens=3),),
    )
    cause = cause_of(Pads(), "SPY-R24", meant)
    tkv, a = cause.bars
    assert (tkv.request, parts(tkv)) == ("tkv", [("tkv", 4)])
    assert (a.request, parts(a)) == ("a", [("pad", 4), ("computed", 3), ("now", 1)])


def test_the_requests_of_a_preemption_are_in_the_order_in_which_they_ran():
    requests = [
        Request(id=name, arrival=0, prompt=((name, 4),), max_tokens=9) for name in ("a", "b", "c")
    ]
    meant, evidence = scenario(*requests), Evidence()
    replay(Bent(), meant, [], evidence.watch, begun=evidence.begun)
    evidence._before = Step(kind="decode", scheduled={}, running=("a", "b", "c"))
    evidence._last = Step(kind="decode", scheduled={}, preempted=("b",))
    last = len(evidence._steps) - 1
    message = "b preempted instead of c; a, b, c ran, in this order"
    cause = evidence.cause(meant, [Broken("V1-R05", last, message)])
    assert [row.request for row in cause.rows] == ["a", "b", "c"]


def test_a_request_that_is_aborted_in_the_step_is_shown():
    gone = Request(id="gone", arrival=0, prompt=(("gone", 4),), max_tokens=9, abort_at=2)
    meant, evidence = scenario(gone), Evidence()
    replay(Bent(), meant, [], evidence.watch, begun=evidence.begun)
    cause = evidence.cause(meant, [Broken("V1-I2", 2, "1 block is promised")])
    assert [(row.request, row.state) for row in cause.rows] == [("gone", "left (aborted)")]


def test_priorities_are_shown_where_the_message_speaks_of_them():
    a, b = (Request(id=name, arrival=0, prompt=((name, 4),), max_tokens=9) for name in "ab")
    meant, evidence = scenario(replace(a, priority=2), b), Evidence()
    replay(Bent(), meant, [], evidence.watch, begun=evidence.begun)
    message = "a with priority 2 starts, but b with priority 0 has not started"
    last = len(evidence._steps) - 1
    cause = evidence.cause(meant, [Broken("V1-I2", last, message)])
    assert {row.request: row.state.split(", ")[1] for row in cause.rows} == {
        "a": "priority 2",
        "b": "priority 0 (more important)",
    }


def test_a_block_that_a_group_lacks_is_marked_in_its_table():
    config = SMALL | {"kv_groups": [{"kind": "full"}, {"kind": "sliding_window", "window": 8}]}
    a = Request(id="a", arrival=0, prompt=(("a", 15),), max_tokens=9)
    meant = replace(scenario(a), config=full_config("vllm", "documented", config))
    evidence = Evidence()
    replay(Bent(), meant, [], evidence.watch, begun=evidence.begun)
    evidence._last = Step(
        kind="prefill",
        scheduled={"a": 9},
        blocks={"a": (1, 2, 3)},
        group_blocks={"a": ((4, 0, 5),)},
    )
    last = len(evidence._steps) - 1
    message = "a reads or writes block 1 of group 1, which it does not hold"
    cause = evidence.cause(meant, [Broken("V1-R52", last, message)])
    assert cause.columns == "block"
    assert [(row.request, row.state, row.turns) for row in cause.rows] == [
        ("a, group 0", "full", ("1", "2", "3")),
        ("a, group 1", "sliding_window", ("4", "× none", "5")),
    ]
    assert [row.is_named for row in cause.rows] == [False, True]


class FindsOthers(Bent):
    """A request finds the first block of another one although other tokens come before it."""

    def bend(self, step):
        if step["scheduled"].get("b", 0) > 4:
            step["prefix_hit"]["b"] = 4
            step["scheduled"]["b"] -= 4


def test_the_same_tokens_after_others_are_named_where_a_hit_takes_them():
    a = Request(id="a", arrival=0, prompt=(("x", 4), ("doc", 4), ("a", 1)), max_tokens=9)
    b = Request(id="b", arrival=1, prompt=(("doc", 4), ("b", 3)), max_tokens=2)
    cause = cause_of(FindsOthers(), "ALL-R08", scenario(a, b))
    assert [(bar.request, parts(bar)) for bar in cause.bars] == [
        ("b", [("never", 4), ("now", 3)]),
        ("a", [("computed", 4), ("same", 4), ("computed", 2)]),
    ]
    assert cause.why[0] == (
        "step 0: a begins; it has computed 4 of these tokens, but after 4 other tokens"
    )


def cause_with_connector(message, rule, *requests):
    config = SMALL | {"kv_connector": True, "enable_prefix_caching": False}
    meant = replace(
        scenario(*requests, system="generic"), config=full_config("generic", "documented", config)
    )
    evidence = Evidence()
    replay(ModelTarget(), meant, [], evidence.watch, begun=evidence.begun)
    return evidence.cause(meant, [Broken(rule, len(evidence._steps) - 1, message)])


def test_a_load_that_fails_is_told():
    a = Request(
        id="a", arrival=0, prompt=(("a", 9),), max_tokens=1, external_tokens=8, load_fails_at=4
    )
    cause = cause_with_connector("a starts with 8 tokens, but 4 were loaded", "GEN-R19", a)
    assert cause.why[0].startswith("step 0: the connector begins to load tokens 0 to 7 of a; ")
    assert cause.why[0].endswith("the load fails at token 4")


def test_blocks_that_are_still_sent_are_told():
    a = Request(id="a", arrival=0, prompt=(("a", 9),), max_tokens=1, send_steps=2)
    cause = cause_with_connector(
        "a has ended and its blocks are to be sent, but it holds none", "GEN-R18", a
    )
    assert cause.why[0] == (
        "step 0: a leaves (length); the connector sends its blocks in the step after this one and "
        "in 2 more steps"
    )


def test_a_load_that_is_used_too_early_is_told_with_its_length():
    a = Request(
        id="a", arrival=0, prompt=(("a", 9),), max_tokens=1, external_tokens=8, load_steps=2
    )
    config = full_config("generic", "documented", SMALL | {"kv_connector": True})
    meant = replace(scenario(a, system="generic"), config=config)
    evidence = Evidence()
    replay(ModelTarget(), meant, [], evidence.watch, begun=evidence.begun)
    failure = Broken("GEN-R16", len(evidence._steps) - 1, "a is scheduled, but its load takes 1")
    cause = evidence.cause(meant, [failure])
    assert cause.why[0] == (
        "step 0: the connector begins to load tokens 0 to 7 of a; the load takes 2 more steps"
    )
