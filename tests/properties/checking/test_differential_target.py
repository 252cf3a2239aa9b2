"""Two targets in the place of one: what is passed on, what is a difference, what is counted."""

import pytest
from msgspec import structs

from schedproof.model.faults import TargetBroken, TargetCrashed, TargetHung
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.differential_target import DifferentialTarget, Side
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions

PAGED = "vllm", "documented"
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96}


class Bent(ModelTarget):
    """The model, bent in its answers where a test says."""

    def __init__(self, **changes):
        super().__init__()
        self._changes = changes

    def step(self):
        reply = super().step()
        for name, change in self._changes.items():
            reply["step"][name] = change(reply["step"][name])
        return reply


class Raises(ModelTarget):
    """Crashes with two requests in the batch."""

    def step(self):
        reply = super().step()
        if len(reply["step"]["running"]) > 1:
            raise KeyError("two")
        return reply


class Hangs(ModelTarget):
    def step(self):
        raise TargetHung("step", 0.5)


class Choosy(ModelTarget):
    def add(self, request):
        if request["id"] == "b":
            return {"ok": False, "error": "rejected", "message": "not b"}
        return super().add(request)


class NeverAborts(ModelTarget):
    def abort(self, id, inside=False):  # noqa: A002
        return {"ok": False, "error": "unsupported", "message": "no aborts"}


class NoPools(ModelTarget):
    def start(self, system, revision, config):
        if config["num_blocks"] is not None:
            return {"ok": False, "error": "config", "message": "$.config.num_blocks: no pools"}
        return super().start(system, revision, config)


def pair(first, second, system="spyre", revision="sound"):
    return DifferentialTarget(Side(first, system, revision), Side(second, system, revision))


def scenario(**changes):
    requests = tuple(
        Request(id=name, arrival=0, prompt=((name, 5),), max_tokens=4, **changes) for name in "ab"
    )
    config = full_config("spyre", "sound", SMALL)
    return Scenario(system="spyre", revision="sound", config=config, requests=requests)


def ran(two, **changes):
    return replay(two, scenario(**changes), ())


def difference(first, second):
    two = pair(first, second)
    ran(two)
    assert two.difference is not None
    return two.difference


def test_a_target_beside_itself_has_no_difference_and_what_was_compared_is_counted():
    two = pair(ModelTarget(), ModelTarget())
    outcome = ran(two, output_len=2)
    assert outcome.finished
    assert two.difference is None
    assert two.coverage.steps == outcome.steps > 0
    assert two.coverage.events["early EOS"] == 2
    assert two.coverage.fields["scheduled"] == outcome.steps


@pytest.mark.parametrize("exact", [False, True])
def test_numbers_of_blocks_are_compared_only_between_versions_of_one_scheduler(exact):
    def other_numbers(blocks):
        return {name: [block + 7 for block in held] for name, held in blocks.items()}

    two = pair(ModelTarget(), Bent(blocks=other_numbers), *PAGED)
    two.exact = exact
    config = {"block_size": 4, "num_blocks": 8, "max_num_seqs": 2, "max_model_len": 32}
    run = scenario(output_len=2)
    run = structs.replace(
        run, system=PAGED[0], revision=PAGED[1], config=full_config(*PAGED, config)
    )
    assert replay(two, run, ()).finished
    assert two.together
    if not exact:
        assert two.difference is None
        return
    assert (two.difference.kind, two.difference.shape) == ("details", "details: blocks")
    assert two.difference.message.startswith("blocks: a ")


def test_steps_for_which_both_took_no_request_compare_nothing():
    class Closed(ModelTarget):
        def add(self, request):
            return {"ok": False, "error": "rejected", "message": "closed"}

    two = pair(Closed(), Closed())
    assert ran(two).steps > 0
    assert two.coverage.steps == 0


@pytest.mark.parametrize(
    ("bent", "kind"),
    [
        ({"waiting": lambda ids: [*ids, "ghost"]}, "decision"),
        ({"running": lambda ids: ids[::-1]}, "order"),
        ({"tkv": lambda tokens: tokens + 1}, "padding"),
        ({"computed": lambda tokens: dict.fromkeys(tokens, 1)}, "bookkeeping"),
    ],
)
def test_what_one_shows_otherwise_is_a_difference_of_its_class(bent, kind):
    assert difference(ModelTarget(), Bent(**bent)).kind == kind
    assert difference(Bent(**bent), ModelTarget()).kind == kind


def test_other_block_numbers_are_no_difference():
    def renamed(blocks):
        return {name: [100 - number for number in own] for name, own in blocks.items()}

    def renamed_slots(blocks):
        return {name: [n and 100 - n for n in own] for name, own in blocks.items()}

    two = pair(ModelTarget(), Bent(blocks=renamed, slot_blocks=renamed_slots))
    assert ran(two).finished
    assert two.difference is None


def test_a_crash_of_one_is_a_difference_with_its_traceback():
    outcome = difference(ModelTarget(), Raises())
    assert outcome.kind == "crash"
    assert outcome.message == "B: the scheduler raised at 'step': KeyError: 'two'"
    assert "Traceback" in outcome.details


def test_a_crash_of_both_is_none():
    two = pair(Raises(), Raises())
    outcome = ran(two)
    assert two.difference is None
    assert outcome.broken[0].rule == "ALL-R01"
    assert two.coverage.both_failed == 1


def test_a_hang_of_one_is_a_difference_of_its_own_class():
    outcome = difference(Hangs(), ModelTarget())
    assert outcome.kind == "hang"
    assert outcome.message == "A: target hung: no reply to 'step' within 0.5 s"


def test_a_request_that_one_refuses_is_a_difference_and_one_that_both_refuse_is_none():
    outcome = difference(ModelTarget(), Choosy())
    assert (outcome.kind, outcome.message) == ("refusal", "B refuses b: not b")
    both = pair(Choosy(), Choosy())
    assert ran(both).session.rejected == {"b": "not b"}
    assert both.difference is None


def test_nobody_is_aborted_where_one_cannot():
    for two in (pair(ModelTarget(), NeverAborts()), pair(NeverAborts(), ModelTarget())):
        outcome = ran(two, abort_at=1)
        assert outcome.finished
        assert two.difference is None
        assert "no aborts" in two.coverage.cannot_abort[False]
        assert two.coverage.events["abort"] == 0


class ReportsUnknownAborts(ModelTarget):
    """Reports an abort of an id that it does not know, too; the protocol says nothing of that."""

    def start(self, system, revision, config):
        self._ids: set[str] = set()
        self._strangers: dict[str, str] = {}
        return super().start(system, revision, config)

    def add(self, request):
        self._ids.add(request["id"])
        return super().add(request)

    def abort(self, id, inside=False):  # noqa: A002
        if id not in self._ids:
            self._strangers[id] = "aborted"
        return super().abort(id, inside)

    def step(self):
        reply = super().step()
        reply["step"]["finished"] |= self._strangers
        self._strangers = {}
        return reply


def test_what_a_target_makes_of_an_unknown_id_is_no_difference():
    two = pair(ModelTarget(), ReportsUnknownAborts())
    ran(two, abort_at=1)
    assert two.difference is None
    assert two.coverage.events["abort"] == 2


@pytest.mark.parametrize("inside", [False, True])
def test_both_abort_where_both_can(inside):
    two = pair(ModelTarget(), ModelTarget())
    ran(two, abort_at=1, abort_inside=inside)
    assert two.difference is None
    assert two.coverage.events["abort"] == 2


def test_a_configuration_that_one_refuses_is_kept_and_one_that_both_refuse_is_not():
    config = full_config("spyre", "sound", SMALL | {"num_blocks": 64})
    either, both = pair(ModelTarget(), NoPools()), pair(NoPools(), NoPools())
    for two in (either, both):
        assert two.start("spyre", "sound", config)["error"] == "config"
    [refused] = either.coverage.refused.values()
    assert refused.difference.kind == "refusal"
    assert "no pools" in refused.difference.message
    assert both.coverage.refused == {}


def test_a_reason_for_which_both_refuse_a_configuration_is_said_once():
    reply = pair(NoPools(), NoPools()).start("spyre", "sound", {"num_blocks": 4})
    assert "A: " not in reply["message"]
    assert reply["message"].count("no pools") == 1


class Closed(ModelTarget):
    def start(self, system, revision, config):
        return {"ok": False, "error": "config", "message": "closed"}


def test_two_reasons_for_refusing_a_configuration_are_both_said():
    reply = pair(NoPools(), Closed()).start("spyre", "sound", {"num_blocks": 4})
    assert reply["message"].startswith("A: ")
    assert "no pools" in reply["message"]
    assert reply["message"].endswith("; B: closed")


def test_a_crash_of_the_second_target_at_start_names_it():
    class Crashes(ModelTarget):
        def start(self, system, revision, config):
            raise ValueError("no")

    with pytest.raises(TargetCrashed, match="B: ValueError: no"):
        pair(ModelTarget(), Crashes()).start("spyre", "sound", {})


def test_fields_that_only_one_shows_are_not_compared():
    class ShowsNoTkv(Bent):
        def start(self, system, revision, config):
            reply = super().start(system, revision, config)
            return reply | {"observes": [name for name in reply["observes"] if name != "tkv"]}

    two = pair(ModelTarget(), ShowsNoTkv(tkv=lambda tokens: None))
    assert ran(two).finished
    assert two.difference is None
    assert "tkv" not in two.coverage.fields


def test_a_harmless_difference_does_not_hide_a_graver_one_that_follows():
    class First(Bent):
        steps = 0

        def step(self):
            reply = super().step()
            self.steps += 1
            if self.steps > 3:
                reply["step"]["waiting"] = ["ghost"]
            return reply

    two = pair(ModelTarget(), First(reserved_blocks=lambda blocks: blocks + 1))
    assert ran(two).finished
    kinds = [(entry.kind, entry.step) for entry in two.differences]
    assert kinds == [("bookkeeping", 0), ("decision", 3)]


def test_after_another_decision_only_the_first_target_is_driven():
    class Counts(Bent):
        steps = 0

        def step(self):
            self.steps += 1
            return super().step()

    second = Counts(waiting=lambda ids: [*ids, "ghost"])
    assert ran(pair(ModelTarget(), second)).finished
    assert second.steps == 1


def test_a_crash_of_the_second_target_leaves_the_run_of_the_first_whole():
    two = pair(ModelTarget(), Raises())
    outcome = ran(two)
    assert outcome.finished
    assert outcome.broken == []


def test_a_target_that_is_none_is_neither_a_difference_nor_a_pass():
    with pytest.raises(TargetBroken):
        ran(pair(ModelTarget(), Bent(kind=lambda kind: "nonsense")))


@pytest.mark.slow
def test_values_that_are_fixed_are_in_every_configuration():
    seen = []

    class Notes(ModelTarget):
        def start(self, system, revision, config):
            seen.append(config["prefix_caching"])
            return super().start(system, revision, config)

    search = Search(
        SearchOptions(Notes(), "spyre", "sound", (), "small", fixed={"prefix_caching": True})
    )
    run_search(search, 10, 0, 0)
    assert len(seen) >= 10
    assert all(seen)


class CrashesAtStart(ModelTarget):
    """Raises at `start` unless the configuration is the default one."""

    def start(self, system, revision, config):
        if config["max_model_len"] == SMALL["max_model_len"]:
            raise ValueError("small")
        return super().start(system, revision, config)


def test_a_crash_of_one_target_at_the_start_is_a_difference():
    first = pair(CrashesAtStart(), ModelTarget())
    outcome = ran(first)
    assert [broken.rule for broken in outcome.broken] == ["ALL-R01"]
    assert (first.difference.kind, first.together) == ("crash", False)
    assert first.difference.message.startswith("A: the scheduler raised at 'start': ValueError")

    second = pair(ModelTarget(), CrashesAtStart())
    second.start("spyre", "sound", full_config("spyre", "sound", {}))
    assert ran(second).finished
    assert (second.difference.kind, second.together) == ("crash", False)
    assert second.difference.message.startswith("B: the scheduler raised at 'start': ValueError")


class Crashes(ModelTarget):
    def step(self):
        raise KeyError("no")


@pytest.mark.parametrize(("first", "second"), [(Crashes, Hangs), (Hangs, Crashes)])
def test_a_crash_and_a_hang_differ(first, second):
    found = difference(first(), second())
    assert found.kind == "hang"
    assert found.message.startswith("A: ")
    assert "; B: " in found.message
    assert "target hung" in found.message
    assert "the scheduler raised" in found.message


def test_a_crash_of_both_targets_at_the_start_is_no_difference():
    both = pair(CrashesAtStart(), CrashesAtStart())
    assert [broken.rule for broken in ran(both).broken] == ["ALL-R01"]
    assert both.difference is None
    assert both.coverage.both_failed > 0
