"""The examination of an adapter: each fault of one is told, and a sound one has none."""

import re
from pathlib import Path

import pytest

from schedproof.gate.targets import doctor
from schedproof.gate.targets.doctor import Remark, examine, signatures
from schedproof.gate.targets.probe import ProbeRequest
from schedproof.model.faults import TargetBroken
from schedproof.model.systems import revisions_of
from schedproof.model.target import ModelTarget
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

from ..build import Toy


class SaysMore(Toy):
    """Shows a field that it never declared, and one that is none."""

    def bend(self, step):
        step["preempted"] = []
        step["mood"] = "good"


class DeclaresMore(Toy):
    def start(self, system, revision, config):
        reply = super().start(system, revision, config)
        return reply | {"observes": [*reply.get("observes", ()), "mood"]}


class TakesAnyKey(Toy):
    def start(self, system, revision, config):
        known = {key: value for key, value in config.items() if key != "no_such_key"}
        return super().start(system, revision, known)


class Remembers(Toy):
    """Once three runs were made, a prompt is another one's."""

    runs, stepped = 0, False

    def start(self, system, revision, config):
        self.runs, self.stepped = self.runs + self.stepped, False
        return super().start(system, revision, config)

    def add(self, request):
        if self.runs > 3 and request["id"] == "r1":
            request = request | {"prompt": [["r1", 2]]}
        return super().add(request)

    def bend(self, step):
        self.stepped = True


class HidesTheEnd(Toy):
    def start(self, system, revision, config):
        reply = super().start(system, revision, config)
        shown = [name for name in reply.get("observes", ()) if name != "finished"]
        return reply | {"observes": shown}

    def bend(self, step):
        del step["finished"]


class WrongReason(Toy):
    def bend(self, step):
        step["finished"] = dict.fromkeys(step["finished"], "length")


class AbortsTheEnded(Toy):
    """Reports every aborted request as finished, also one that has ended before."""

    aborted: tuple[str, ...] = ()

    def abort(self, id, inside=False):  # noqa: A002 (the protocol's word)
        self.aborted = (*self.aborted, id)
        return super().abort(id, inside)

    def bend(self, step):
        step["finished"] |= {name: "aborted" for name in self.aborted if name[0] == "r"}
        self.aborted = ()


class NoAborts(Toy):
    def abort(self, id, inside=False):  # noqa: A002 (the protocol's word)
        return {"ok": False, "error": "unsupported", "message": "no"}


class Overrides(Toy):
    """Hosts a scheduler class, as a release does."""

    def __init__(self, *methods):
        super().__init__()
        self.methods = methods

    def start(self, system, revision, config):
        return super().start(system, revision, config) | {"overrides": [*self.methods]}


class TakesAll(Toy):
    def add(self, request):
        return {"ok": True} if request["id"] == "endless" else super().add(request)


@pytest.fixture
def examined(gate):
    return lambda target: [*examine(gate(target).probe_request, None)]


def wrong(remarks):
    return [(remark.what, remark.why) for remark in remarks if remark.says == "wrong"]


def test_a_sound_adapter_has_no_fault(examined):
    remarks = examined(Toy())
    assert wrong(remarks) == []
    assert len([remark for remark in remarks if remark.says == "ok"]) >= 9


METHOD = (str(Path.cwd() / "mine.py"), 7, "Mine.schedule", "(self, x)", "Base.schedule", "(self)")


@pytest.mark.parametrize(
    ("methods", "says", "what", "why"),
    [
        (
            [(*METHOD, "missing a required argument: 'x'", "")],
            *("wrong", "Mine.schedule"),
            "mine.py, line 7: has (self, x), but Base.schedule of the release has (self); missing "
            "a required argument: 'x'",
        ),
        (
            [(*METHOD, "", "called by keyword: no y")],
            *("note", "Mine.schedule"),
            "mine.py, line 7: has (self, x), but Base.schedule of the release has (self); called "
            "by keyword: no y",
        ),
        (
            [(*METHOD, "", ""), ("b.py", 1, "Mine.add", "(self)", "Base.add", "(self)", "", "")],
            *("ok", "overrides"),
            "Mine.schedule, Mine.add: every call that the release's class accepts",
        ),
    ],
)
def test_a_method_that_the_release_cannot_call_is_told_with_its_place(
    examined, methods, says, what, why
):
    assert (says, what, why) in examined(Overrides(*methods))


@pytest.mark.parametrize(
    ("target", "what", "why"),
    [
        (SaysMore, "step", "'mood' is not a field"),
        (SaysMore, "step", "preempted is sent but not declared"),
        (DeclaresMore, "observes", "'mood'; valid: "),
        (TakesAnyKey, "start", "accepts the unknown key no_such_key"),
        (WrongReason, "ALL-R04", "finished says length, expected eos"),
        (AbortsTheEnded, "ALL-R03", "aborting a request that has ended must change nothing"),
    ],
)
def test_each_fault_of_an_adapter_is_told(examined, target, what, why):
    assert [
        remark for remark in wrong(examined(target())) if remark[0] == what and why in remark[1]
    ]


def test_a_crash_at_the_start_is_told_with_the_feature(examined):
    class Crashes(Toy):
        def start(self, system, revision, config):
            if config["prefix_caching"]:
                raise ValueError("no cache")
            return super().start(system, revision, config)

    [wrong] = [remark for remark in examined(Crashes()) if remark.says == "wrong"]
    assert wrong.what == "start with prefix_caching True"
    assert "ValueError: no cache" in wrong.why
    assert wrong.why.endswith("; to refuse it, answer with the error 'config'")


def test_an_adapter_that_refuses_every_request_is_wrong_even_if_it_may_have_a_reason():
    class RefusesAll(ModelTarget):
        def add(self, request):
            return {"ok": False, "error": "rejected", "message": "closed"}

    generic = ProbeRequest(RefusesAll(), "generic", "documented", load("generic"))
    assert ("accounting", "every request is refused: r0: closed") in wrong(examine(generic, None))


def test_an_adapter_that_refuses_some_plain_requests_is_told_how_many():
    class OneAtATime(ModelTarget):
        def add(self, request):
            if request["id"] != "r0":
                return {"ok": False, "error": "rejected", "message": "busy"}
            return super().add(request)

    generic = ProbeRequest(OneAtATime(), "generic", "documented", load("generic"))
    remarks = [remark for remark in examine(generic, None) if remark.what == "accounting"]
    assert [remark.says for remark in remarks] == ["note"]
    assert remarks[0].why.startswith("3 of 4 requests are refused, such as r1: busy; ")


def test_what_is_left_over_of_an_earlier_run_is_told(examined):
    found = dict(wrong(examined(Remembers())))
    assert {"start during a run", "start after a stop"} <= found.keys()
    assert " differs: " in found["start after a stop"]


@pytest.mark.parametrize(
    ("target", "what", "why"),
    [
        (NoAborts, "abort", "not supported"),
        (TakesAll, "add", "only a gate shows what"),
        (HidesTheEnd, "accounting", "the target does not show `finished`"),
    ],
)
def test_what_may_be_left_out_is_a_note(examined, target, what, why):
    remarks = examined(target())
    assert wrong(remarks) == []
    assert [
        remark
        for remark in remarks
        if remark.says == "note" and remark.what == what and why in remark.why
    ]


def test_rules_that_cannot_be_judged_are_told_with_the_field_that_is_missing(examined):
    class Shy(Toy):
        def start(self, system, revision, config):
            reply = super().start(system, revision, config)
            return reply | {"observes": [n for n in reply.get("observes", ()) if n != "tkv"]}

        def bend(self, step):
            step.pop("tkv", None)

    said = {remark.what: remark.why for remark in examined(Shy())}
    assert "more rules could be judged if the target showed this field" in said["tkv"]
    assert said["rules"] != "40 of 40 can be judged"
    of_none = doctor.judgeable(load("generic"), "documented", frozenset())
    several = {what: why for _, what, why in of_none if ", " in what}
    assert several
    assert all(why.endswith("if the target showed these fields") for why in several.values())


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_models_of_all_systems_are_sound_adapters(system):
    revision = revisions_of(system)[0]
    subject = ProbeRequest(ModelTarget(), system, revision, load(system))
    assert wrong([*examine(subject, None)]) == []


def test_signatures_are_compared_with_those_that_the_adapter_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sched.py").write_text("class S:\n    def run(self, budget): pass\n")
    names = "RELIES_ON = {'sched:S.run': '(self, budget)', 'sched:S.gone': '()'}\n"
    (tmp_path / "adapter.py").write_text("import sched\n" + names)
    good, gone = signatures("adapter")
    assert good == Remark("ok", "sched:S.run", "(self, budget)")
    assert (gone.says, gone.what) == ("wrong", "sched:S.gone")
    assert "AttributeError" in gone.why
    (tmp_path / "sched.py").write_text("class S:\n    def run(self, budget, slots): pass\n")
    assert [signature.says for signature in signatures("adapter")] == ["wrong", "wrong"]


@pytest.mark.parametrize(
    ("text", "says", "why"),
    [
        ("", "note", "none to check"),
        ("RELIES_ON = 3", "wrong", "TypeError: RELIES_ON; valid: "),
        ("print('noise')", "note", "none to check"),
        ("import os; os.write(1, b'noise')", "note", "none to check"),
    ],
)
def test_an_adapter_without_signatures_or_with_bad_ones(tmp_path, monkeypatch, text, says, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter.py").write_text(text)
    [remark] = signatures("adapter")
    assert (remark.says, why in remark.why) == (says, True)


def test_an_import_that_takes_too_long_is_named_and_its_processes_are_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "PATIENCE", 2.0)
    start = "import subprocess, time\ndaemon = subprocess.Popen(['sleep', '99'])\n"
    write = "open('pid', 'w').write(str(daemon.pid))\ntime.sleep(99)\n"
    (tmp_path / "adapter.py").write_text(start + write)
    [remark] = signatures("adapter")
    assert remark.why == "RELIES_ON cannot be read: the import took longer than 2 s"
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


@pytest.mark.parametrize("text", ["raise SystemExit('no')", "import nothing_like_this"])
def test_the_signatures_of_an_adapter_that_cannot_be_imported_are_left_to_its_start(
    tmp_path, monkeypatch, text
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter.py").write_text(text)
    assert list(signatures("adapter")) == []
    assert list(signatures("no_such_adapter")) == []


@pytest.mark.slow
def test_the_command_says_a_line_per_check_and_exits_with_1_for_a_fault(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sound = run("doctor", "model")
    assert (sound.code, sound.out.splitlines()[-1][:19]) == (0, "found nothing wrong")
    (tmp_path / "adapter.py").write_text(
        "from schedproof.model.target import ModelTarget\n"
        "class Target(ModelTarget):\n"
        "    def add(self, request):\n"
        "        raise ValueError('broken')\n"
    )
    faulty = run("doctor", "adapter:Target")
    assert faulty.code == 1
    assert "wrong the scheduler raised at 'add': ValueError: broken" in faulty.out
    assert faulty.out.splitlines()[-1].endswith("wrong")


@pytest.mark.slow
def test_what_is_no_target_is_one_line(run):
    for words in (("nix:Target",), ("model", "--system", "sglang"), ("model", "--revision", "9")):
        result = run("doctor", *words)
        assert (result.code, result.out) == (2, "")
        assert len(result.err.splitlines()) == 1


class ForgetsAborts(Toy):
    """What was given up is never reported."""

    def bend(self, step):
        step["finished"] = {name: why for name, why in step["finished"].items() if why != "aborted"}


class CountsCachedBlocks(Toy):
    """A pool of which a block is never free."""

    def bend(self, step):
        if step.get("free_blocks"):
            step["free_blocks"] -= 1


class AnswersInWords(Toy):
    """A number that is a text."""

    def bend(self, step):
        step["computed"] = {name: str(tokens) for name, tokens in step["computed"].items()}


@pytest.mark.parametrize(
    ("target", "rule", "says", "mend"),
    [
        (
            ForgetsAborts,
            "ALL-R04",
            "not reported as aborted",
            "in the next step, with reason aborted",
        ),
        (
            CountsCachedBlocks,
            "ALL-R09",
            "the pool has 4",
            "free_blocks must count all blocks of the pool",
        ),
    ],
)
def test_faults_that_few_requests_do_not_show_are_told_with_how_to_mend_them(
    examined, target, rule, says, mend
):
    found = dict(wrong(examined(target())))
    assert says in found[rule]
    assert mend in found[rule]


def test_a_field_of_another_type_is_named(examined):
    with pytest.raises(TargetBroken, match=r"Expected `int`, got `str` - at `\$.computed"):
        examined(AnswersInWords())


def test_a_crash_where_blocks_run_out_is_the_gates_to_judge():
    subject = ProbeRequest(ModelTarget(), "spyre", "2.1.2", load("spyre"))
    remarks = [*examine(subject, None)]
    assert wrong(remarks) == []
    assert [remark.what for remark in remarks if remark.why.startswith("few blocks, step")] == [
        "ALL-R01"
    ]


class NamesAnyGeneratorADecode(ModelTarget):
    """A request that has emitted a token is said to decode, also where it computes all again."""

    def start(self, system, revision, config):
        self.emitted: set[str] = set()
        return super().start(system, revision, config)

    def step(self):
        reply = super().step()
        step = reply["step"]
        if step["scheduled"] and self.emitted.issuperset(step["scheduled"]):
            step["kind"] = "decode"
        self.emitted.update(step["emitted"])
        return reply


@pytest.mark.parametrize("system", ["vllm", "nano_vllm"])
def test_a_wrong_kind_after_a_preemption_is_told(system):
    subject = ProbeRequest(NamesAnyGeneratorADecode(), system, "documented", load(system))
    remarks = [remark for remark in examine(subject, None) if remark.says == "wrong"]
    assert [remark.what for remark in remarks] == ["ALL-R13"]
    assert "few blocks, step" in remarks[0].why
    assert re.search(
        r"kind is decode in step \d+, but r\d computes \d+ lost tokens", remarks[0].why
    )
    assert "a preempted request has no computed tokens" in remarks[0].why


class CountsTokensFromOne(ModelTarget):
    def step(self):
        reply = super().step()
        places = reply["step"].get("emitted_at", {})
        places.update({name: place + 1 for name, place in places.items()})
        return reply


def test_an_optional_feature_is_tried_with_plain_requests():
    subject = ProbeRequest(CountsTokensFromOne(), "generic", "documented", load("generic"))
    remarks = [remark for remark in examine(subject, None) if remark.says == "wrong"]
    assert [remark.what for remark in remarks] == ["GEN-R14", "GEN-R14"]
    assert [remark.why.partition(",")[0] for remark in remarks] == ["steps in flight", "a pipeline"]
    assert "position of the first emitted token" in remarks[0].why
