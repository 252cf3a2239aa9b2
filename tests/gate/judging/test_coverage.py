"""What a gate says of the code that no run entered."""

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from schedproof.gate.judging.coverage import (
    Changes,
    changed_functions,
    changes_since,
    coverage_lines,
    coverage_of,
    missed_lines,
    never_entered,
    only_here,
)
from schedproof.gate.judging.judge import _changes as changes_of_target
from schedproof.gate.judging.judge import judge
from schedproof.gate.judging.verdict import Found, TargetInfo
from schedproof.gate.reports.outcome import explanation_lines
from schedproof.gate.targets import coverage as probes_of
from schedproof.gate.targets.coverage import places, read_probes
from schedproof.gate.targets.target_spec import TargetSpec, parse_target
from schedproof.gate.web.gate_page import coverage_page
from schedproof.spec.catalogue import load, select
from schedproof.tools.hostile.inputs import bounded

from ..build import Toy

SOURCE = """class Scheduler:
    def step(self):
        if self.waiting:
            self.admit()
            self.count += 1
        return self.running

    def reset(self):
        self.waiting = []
        self.running = []

    def pause(self):
        self.paused = True
"""
STEP = {3, 6}  # the lines that were entered


@pytest.fixture
def folder(tmp_path):
    """A folder with what a process wrote of a package of two modules."""
    probes = tmp_path / "probes"
    probes.mkdir()
    for module, lines in {"engine.sched.scheduler": STEP, "engine.sched.queue": set[int]()}.items():
        file = tmp_path / f"{module.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SOURCE, encoding="utf-8")
        passed = bytes(line in lines for _, line in places(SOURCE))
        (probes / module.rpartition(".")[2]).write_bytes(passed + f"{file}\0{module}".encode())
    return probes


def report(coverage):
    return [f"{word}: {what}" for word, what in coverage_lines(coverage)]


def test_lines_and_functions_that_no_run_entered_are_named(folder):
    coverage = coverage_of(folder, Path("out/coverage.html"))
    assert report(coverage) == [
        "coverage: 14 % of 14 lines in functions of engine/sched: scheduler.py 28 %, queue.py 0 %",
        "never entered: 5 of 6 functions: Scheduler.reset, Scheduler.pause, Scheduler.step, "
        "Scheduler.reset, Scheduler.pause (out/coverage.html lists them)",
    ]
    scheduler, _ = coverage.files
    step = scheduler.functions[0]
    assert (step.name, step.line, step.lines, step.entered) == ("Scheduler.step", 2, 4, 2)
    assert step.missed == "4-5"
    assert missed_lines(step) == {4, 5}


TARGET = """class Target:
    def start(self, system, revision, config):
        return {"ok": True}

    def add(self, request):
        return {"ok": True}

    def abort(self, id, inside=False):
        return {"ok": True}

    def step(self):
        return {"ok": True}

    def stop(self):
        return {"ok": True}


class Scheduler:
    def stop(self):
        self.running = []
"""


def test_stop_of_a_target_is_left_out_because_no_gate_calls_it(tmp_path):
    file, probes = tmp_path / "adapter.py", tmp_path / "probes"
    file.write_text(TARGET, encoding="utf-8")
    probes.mkdir()

    def functions(passed):
        (probes / "adapter").write_bytes(passed + f"{file}\0adapter".encode())
        coverage = coverage_of(probes, tmp_path / "page.html")
        assert coverage is not None
        [of_file] = coverage.files
        assert coverage.lines == of_file.lines == len(of_file.functions) == coverage.functions
        return [function.name for function in of_file.functions]

    operations = [f"Target.{name}" for name in ("start", "add", "abort", "step")]
    assert functions(bytes([1, 1, 0, 1, 0, 0])) == [*operations, "Scheduler.stop"]
    entered = functions(bytes([1, 1, 0, 1, 1, 0]))  # by its start, for example
    assert entered == [*operations, "Target.stop", "Scheduler.stop"]


def test_what_changed_since_the_base_and_was_never_entered_comes_first(folder):
    path = str(folder.parent / "engine" / "sched" / "queue.py")
    changes = Changes("main", {path: frozenset({"Scheduler.pause", "Scheduler.gone"})})
    coverage = coverage_of(folder, Path("out/coverage.html"), changes)
    first = never_entered(coverage)[0]
    assert (first.file.name, first.function.name) == ("engine/sched/queue.py", "Scheduler.pause")
    changed, share = report(coverage)
    assert changed == "never entered: 1 function changed since main: Scheduler.pause"
    assert share.endswith(" (out/coverage.html lists the rest)")
    assert "Changed since main, and never entered" in coverage_page(
        TargetInfo("x", "x", "1"), coverage
    )


def test_the_page_marks_the_lines_that_were_missed(folder):
    page = coverage_page(TargetInfo("x", "<b>", "1"), coverage_of(folder, Path("coverage.html")))
    assert "<mark>    4              self.admit()</mark>" in page
    assert "\n    3          if self.waiting:\n" in page
    assert "&lt;b&gt;" in page
    assert "Changed since" not in page


def test_a_file_that_is_another_one_by_now_is_left_out(folder):
    (folder.parent / "engine/sched/queue.py").write_text("def f(): ...\n", encoding="utf-8")
    (folder.parent / "engine/sched/scheduler.py").unlink()
    assert coverage_of(folder, Path("coverage.html")) is None


@pytest.mark.parametrize(
    "source",
    [
        "pipe",
        "/dev/zero",
        "def f():\n return 1" + "+1" * 100_000,
        "def f():\n return " + "-" * 10**5,
    ],
    ids=["a pipe", "endless", "a long sum", "deep"],
)
def test_the_target_cannot_make_the_gate_read_what_is_no_module(source, folder, tmp_path):
    path = tmp_path / "other.py"
    if source == "pipe":
        os.mkfifo(path)
    elif source.startswith("/"):
        path = Path(source)
    else:
        path.write_text(source, encoding="utf-8")
    (folder / "other").write_bytes(b"\1" + f"{path}\0other".encode())
    with bounded(5):
        coverage = coverage_of(folder, Path("out/coverage.html"))
        changes_since("base", None, Path("/"), [str(path)])
    assert {Path(file.path).name for file in coverage.files} == {"scheduler.py", "queue.py"}


def test_a_huge_file_among_the_probes_is_left_out(folder):
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert len(coverage_of(folder, Path("out/coverage.html")).files) == 2


def test_where_nothing_was_counted_there_is_no_coverage(tmp_path):
    assert coverage_of(None, Path("coverage.html")) is None
    assert coverage_of(tmp_path, Path("coverage.html")) is None


def test_a_function_is_changed_by_its_code_alone():
    same = SOURCE.replace(
        "def pause(self):", 'def pause(self):\n        """Pauses."""\n        # why'
    )
    assert changed_functions(SOURCE, same) == frozenset()
    other = SOURCE.replace("= True", "= False") + "    def more(self):\n        return 1\n"
    assert changed_functions(SOURCE, other) == {"Scheduler.pause", "Scheduler.more"}
    nested = "def f():\n    def g():\n        return {}\n    return g\n"
    assert changed_functions(nested.format(1), nested.format(2)) == {"f", "f.<locals>.g"}


def test_modules_are_compared_with_the_files_of_the_base(tmp_path):
    for name in ("base/a.py", "head/a.py", "head/new.py", "elsewhere.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(SOURCE, encoding="utf-8")
    (tmp_path / "base" / "a.py").write_text(SOURCE.replace("= True", "= False"), encoding="utf-8")
    paths = [
        str(tmp_path / name) for name in ("head/a.py", "head/new.py", "elsewhere.py", "gone.py")
    ]
    changes = changes_since("main", tmp_path / "base", tmp_path / "head", paths)
    whole = {"Scheduler.step", "Scheduler.reset", "Scheduler.pause"}
    assert changes.functions == {paths[0]: {"Scheduler.pause"}, paths[1]: whole}
    assert changes_since("x", None, tmp_path, paths[3:] + paths[2:3]).functions == {paths[2]: whole}


def test_a_release_is_compared_with_the_release_that_is_its_base(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SCHEDPROOF_CACHE", str(tmp_path))
    for version, source in (
        ("0.33.0", SOURCE),
        ("0.28.0", SOURCE.replace("= True", "= False")),
    ):
        file = tmp_path / f"vllm-{version}" / "vllm" / "v1" / "core" / "queue.py"
        file.parent.mkdir(parents=True)
        file.write_text(source, encoding="utf-8")
    path = str(tmp_path / "vllm-0.33.0" / "vllm" / "v1" / "core" / "queue.py")
    words = f"{path}\0vllm.v1.core.queue".encode()
    (folder / "release").write_bytes(bytes(len(places(SOURCE))) + words)
    base = SimpleNamespace(spec=parse_target("vllm==0.28.0"))
    spec = replace(parse_target("vllm==0.33.0"), coverage=folder)
    changes = changes_of_target(SimpleNamespace(spec=spec, base=base))
    assert changes == Changes("vllm==0.28.0", {path: frozenset({"Scheduler.pause"})})


def test_lines_that_only_one_run_entered_are_ranges_of_its_files(folder):
    here = read_probes(folder)
    assert only_here(here, here) == ()
    assert only_here(here, []) == ("engine/sched/scheduler.py:3, 6",)
    others = [module._replace(probes=module.probes[:1] + bytes(6)) for module in here]
    assert only_here(here, others) == ("engine/sched/scheduler.py:6",)
    assert only_here(here, here[:1]) == ("engine/sched/scheduler.py:3, 6",)


FAULTY = """def bend(step):
    running = len(step["running"])
    if running < 2:
        return
    lost = ["ghost"]
    step["waiting"] = lost
"""


def test_a_fault_names_the_lines_that_the_nearest_runs_without_it_did_not_enter(
    gate, tmp_path, monkeypatch
):
    (probes := tmp_path / "probes").mkdir()
    (tmp_path / "faulty_scheduler.py").write_text(FAULTY, encoding="utf-8")
    monkeypatch.setenv(probes_of.VARIABLE, str(probes))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(probes_of, "FINDER", probes_of._Finder())
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "faulty_scheduler", raising=False)
    probes_of.count_packages("faulty_scheduler")
    target = Toy()
    target.bend = importlib.import_module("faulty_scheduler").bend  # type: ignore[method-assign]
    spec = TargetSpec("toy", "factory", module="toy", factory="make", coverage=probes)
    verdict = judge(gate(target, "ALL-R03", examples=20, spec=spec))
    [fault] = verdict.faults
    assert fault.only_here == ("faulty_scheduler.py:5-6",)
    assert 1 <= fault.nearest <= 12
    event = next(
        event
        for event in gate.events
        if isinstance(event, Found) and event.finding.scenario == fault.scenario
    )
    [rule] = select(load("spyre"), ["ALL-R03"])
    lines = [
        line for line in explanation_lines(event, rule, fault) if line.startswith("only here: ")
    ]
    number = f"{fault.nearest} " if fault.nearest > 1 else ""
    runs = f"the {number}most similar passing run{'s' if number else ''}"
    what = f"lines that {runs} did not enter"
    assert lines == [f"only here: faulty_scheduler.py:5-6 ({what})"]
    whole = {line for file in verdict.coverage.files for line in missed_lines(file.functions[0])}
    assert whole == set(), "what the gate has entered is still known"
