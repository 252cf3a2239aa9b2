"""A scheduler class of the user's in the place of a release's own."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from schedproof.gate.targets import releases, scheduler_class
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.protocol_checks import RefusedError
from schedproof.gate.targets.scheduler_class import own_class
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release
from schedproof.gate.targets.target_spec import (
    TargetSpec,
    UnknownTargetError,
    are_versions_of_one,
    parse_target,
)
from schedproof.gate.targets.vllm.release import Release
from schedproof.gate.targets.vllm.target import class_for
from schedproof.model.errors import InputError

from ...command_line import runner


class Own:
    """The release's scheduler."""


@pytest.fixture(autouse=True)
def _nothing_chosen_yet(monkeypatch):
    monkeypatch.delenv(scheduler_class.VARIABLE, raising=False)
    scheduler_class.chosen_class.cache_clear()


def written(folder, text):
    file = folder / "mine.py"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_one_the_releases_own_is_driven_under_its_name():
    assert scheduler_class.chosen_class(Own) is Own
    assert scheduler_class.title("vllm", "0.28.0") == ("vllm", "0.28.0")
    scheduler_class.load_early(lambda: pytest.fail("nothing is loaded before it is asked for"))


def test_a_derived_class_is_driven_under_its_own_name(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "release", cast(Any, SimpleNamespace(Own=Own)))
    file = written(tmp_path, "from release import Own\nclass Mine(Own): ...\n")
    monkeypatch.setenv(scheduler_class.VARIABLE, f"{file}:Mine")
    found = scheduler_class.chosen_class(Own)
    assert issubclass(found, Own)
    assert found.__name__ == "Mine"
    assert scheduler_class.title("vllm", "0.28.0") == ("Mine", "vllm 0.28.0")
    loaded: list[int] = []
    scheduler_class.load_early(lambda: loaded.append(1))
    assert loaded == [1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nowhere_at_all", "cannot import it (ModuleNotFoundError: No module named"),
        ("1 +", "cannot import it (SyntaxError: "),
        ("raise SystemExit(4)", "cannot import it (SystemExit: 4)"),
        ("", "it has no class 'Mine'"),
        ("Mine = 3", "it has no class 'Mine'"),
        ("class Mine: ...", "Mine is not derived from Own; valid: a class that is"),
    ],
)
def test_a_class_that_cannot_be_had_is_one_line(tmp_path, monkeypatch, text, problem):
    file = written(tmp_path, text)
    monkeypatch.setenv(scheduler_class.VARIABLE, f"{file}:Mine")
    with pytest.raises(SystemExit) as caught:
        scheduler_class.chosen_class(Own)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"schedproof: TARGET {file}: {problem}")


def test_the_target_names_the_release_and_the_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "")
    spec = parse_target("vllm==0.28.0:mine.py:Mine")
    assert (str(spec.release), spec.scheduler) == ("vllm==0.28.0", f"{tmp_path}/mine.py:Mine")
    assert spec.default_system == "vllm"


@pytest.mark.parametrize(
    ("words", "folder"), [("pkg.sched.Mine", ""), ("here:pkg.sched.Mine", "/here")]
)
def test_a_class_of_a_package_is_looked_for_in_a_folder(tmp_path, monkeypatch, words, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    spec = parse_target(f"vllm==0.28.0:{words}")
    assert spec.scheduler == f"{tmp_path}{folder}:pkg.sched.Mine"


def test_the_options_name_the_same_class(tmp_path):
    spec = parse_target("vllm==0.28.0", tmp_path, "pkg.sched.Mine")
    assert spec == parse_target(f"vllm==0.28.0:{tmp_path}:pkg.sched.Mine")
    assert spec.text == f"vllm==0.28.0:{tmp_path}:pkg.sched.Mine"
    file = written(tmp_path, "")
    assert parse_target("vllm==0.28.0", None, f"{file}:Mine").scheduler == f"{file}:Mine"


@pytest.mark.parametrize("target", ["model", "nano-vllm", "vllm==0.28.0:mine.py:Mine"])
def test_a_class_is_for_a_release_that_names_none(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "")
    with pytest.raises(InputError) as caught:
        parse_target(target, None, "pkg.Mine")
    assert str(caught.value) == (
        "--scheduler-cls: pkg.Mine: valid only with a release that names no class, such as "
        f"vllm==0.28.0, not with {target}"
    )


def test_a_class_of_a_package_is_driven_and_a_file_beside_it_hides_none_of_the_release(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "release", cast(Any, SimpleNamespace(Own=Own)))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "pkg").mkdir()
    text = "import msgspec.json\nfrom release import Own\nclass Mine(Own): ...\n"
    (tmp_path / "pkg" / "sched.py").write_text(text, encoding="utf-8")
    (tmp_path / "msgspec.py").write_text("raise ImportError('the wrong one')", encoding="utf-8")
    monkeypatch.setenv(scheduler_class.VARIABLE, f"{tmp_path}:pkg.sched.Mine")
    assert scheduler_class.chosen_class(Own).__module__ == "pkg.sched"
    assert scheduler_class.title("vllm", "0.28.0") == ("Mine", "vllm 0.28.0")


def test_what_the_package_lacks_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(scheduler_class.VARIABLE, f"{tmp_path}:not_there.sched.Mine")
    with pytest.raises(SystemExit) as caught:
        scheduler_class.chosen_class(Own)
    assert str(caught.value) == (
        "schedproof: TARGET not_there.sched.Mine: cannot import it (ModuleNotFoundError: No module "
        "named 'not_there')"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("mine.py", "'mine.py' is not a scheduler class; valid: FILE.py:CLASS"),
        ("mine:Mine", "'mine:Mine' is not a scheduler class; valid: FILE.py:CLASS"),
        ("mine.py:No-Name", "'mine.py:No-Name' is not a scheduler class; valid: FILE.py:CLASS"),
        ("mine.py:pkg.Mine", "'mine.py:pkg.Mine' is not a scheduler class; valid: FILE.py:CLASS"),
        ("pkg..Mine", "'pkg..Mine' is not a scheduler class; valid: FILE.py:CLASS"),
        ("gone.py:Mine", "gone.py: no such file; valid: FILE.py:CLASS"),
        ("gone:pkg.Mine", "gone: no such folder; valid: FILE.py:CLASS"),
    ],
)
def test_words_that_name_no_class_are_refused_with_what_would_be_valid(
    tmp_path, monkeypatch, words, problem
):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "")
    with pytest.raises(UnknownTargetError) as caught:
        parse_target(f"vllm==0.28.0:{words}")
    others = ", PACKAGE.MODULE.CLASS, or DIR:PACKAGE.MODULE.CLASS"
    assert str(caught.value) == f"TARGET 'vllm==0.28.0:{words}': {problem}{others}"


def test_what_the_targets_process_says_of_the_class_is_the_error(tmp_path):
    complaint = "schedproof: TARGET mine.py: it has no class 'Mine'"
    command = ("python", "-c", f"raise SystemExit({complaint!r})")
    spec = TargetSpec("cmd:python", "command", command=command)
    with pytest.raises(UnknownTargetError) as caught, opened(spec) as there:
        there.target.start("vllm", "documented", {})
    assert str(caught.value) == "TARGET mine.py: it has no class 'Mine'"


@pytest.mark.parametrize(
    ("spec", "revision"),
    [
        ("sendnn-inference==2.1.2", "2.1.2"),
        ("sendnn-inference==2.1.1", "2.1.2"),
        ("sendnn-inference==2.5.2", "2.5.2"),
        ("sendnn-inference==2.6.3", "2.5.2"),
        ("sendnn-inference==2.0.1", "documented"),
        ("vllm-spyre==1.10.0", "documented"),
        ("vllm==0.28.0", "0.25"),
        ("vllm==0.33.0", "0.33"),
        ("vllm==0.19.1", "documented"),
        ("model", None),
        ("toys:Toy", None),
        ("cmd:python toy.py", None),
    ],
)
def test_a_release_is_held_to_the_model_that_decides_as_it_does(spec, revision):
    assert parse_target(spec).default_revision() == revision


@pytest.mark.parametrize(
    ("spec", "system"),
    [
        ("vllm==0.28.0", "vllm"),
        ("vllm-spyre==1.10.0", "spyre"),
        ("sendnn-inference==2.6.3", "spyre"),
        ("model", "spyre"),
        ("toys:Toy", "spyre"),
    ],
)
def test_a_release_says_which_system_is_meant(spec, system):
    assert parse_target(spec).default_system == system


FACTORY = """
from schedproof.model.target import ModelTarget
def make(): return ModelTarget()
"""


FILE = Path(__file__).with_name("forgetful.py")
RELEASE = "vllm==0.24.0"
PLAIN = ("async_scheduling=false", "kv_connector=false", "num_speculative_tokens=0")
LOOKAHEAD = ("enable_prefix_caching=false", "num_speculative_tokens=2", "num_lookahead_tokens=2")


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    release = parse_release(RELEASE)
    assert release is not None
    try:
        releases.prepare(release, offline=True)
    except ReleaseError as missing:
        pytest.skip(str(missing))
    monkeypatch.chdir(tmp_path)
    return runner(monkeypatch, capfd)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "rule", "changes"),
    [
        ("ForgetsTheWholeSequence", "V1CP-R22", PLAIN),
        ("ForgetsTheLookahead", "V1CP-R30", LOOKAHEAD),
    ],
)
def test_what_a_class_forgets_is_named_by_the_rule(run, name, rule, changes):
    words = ["--rule", rule, "--profile", "quick", "--offline"]
    words += [word for change in changes for word in ("--config", change)]
    own = run("gate", RELEASE, *words, "--json", "own.json")
    assert (own.code, verdict_of("own.json", rule)) == (0, "held"), own
    derived = run("gate", RELEASE, *words, "--scheduler-cls", f"{FILE}:{name}", "--json", "d.json")
    assert (derived.code, verdict_of("d.json", rule)) == (1, "violated"), derived
    assert f"{name} vllm 0.24.0 against documented: does not conform" in derived.out


@pytest.mark.nightly
def test_a_class_is_judged_against_its_base_in_one_command(run):
    result = run(
        *("gate", RELEASE, "--path", str(FILE.parent), "--against-base", "--profile", "quick"),
        *("--scheduler-cls", "forgetful.ForgetsThatNothingRuns", "--offline", "--json", "d.json"),
        *("--config", "async_scheduling=false", "--config", "kv_connector=false"),
        *("--rule", "V1-R07", "--no-coverage"),
    )
    assert result.code == 1, result
    verdict = json.loads(Path("d.json").read_text(encoding="utf-8"))
    assert verdict["base"] == {"spec": RELEASE, "name": "vllm", "version": "0.24.0"}
    assert verdict["target"]["spec"] == f"{RELEASE}:{FILE.parent}:forgetful.ForgetsThatNothingRuns"
    assert [fault["rule"] for fault in verdict["faults"]] == ["V1-R07"]
    assert verdict["decisions"]


@pytest.mark.nightly
def test_doctor_names_a_method_that_the_release_cannot_call(run):
    Path("mine.py").write_text(
        "from vllm.v1.core.sched.scheduler import Scheduler\n"
        "class Mine(Scheduler):\n"
        "    def update_from_output(self, x): ...\n",
        encoding="utf-8",
    )
    result = run("doctor", RELEASE, "--scheduler-cls", "mine.py:Mine", "--offline")
    assert result.code == 1, result
    assert "wrong Mine.update_from_output: mine.py, line 3: has (self, x), but" in result.out


def verdict_of(file, rule):
    rules = json.loads(Path(file).read_text(encoding="utf-8"))["rules"]
    [status] = [rule_id["status"] for rule_id in rules if rule_id["id"] == rule]
    return str(status)


def made(name, base, module):
    return type(name, (base,), {"__module__": module})


OWN = made("Scheduler", object, "vllm.v1.core.sched.scheduler")
AHEAD = made("AsyncScheduler", OWN, "vllm.v1.core.sched.async_scheduler")


def test_the_base_of_a_class_is_the_nearest_one_of_the_release():
    mine = made("Mine", made("Shared", AHEAD, "my_pkg.shared"), "my_pkg.sched")
    assert own_class(mine, OWN) is AHEAD
    assert own_class(made("Mine", OWN, "my_pkg.sched"), OWN) is OWN


def test_a_class_that_always_decides_ahead_gets_a_pipeline_only_when_that_is_said():
    release = Release("0.33.0", frozenset(), made("Mine", AHEAD, "mine"))
    pipeline = {"pipeline_parallel_size": 2, "async_scheduling": False}
    with pytest.raises(RefusedError, match="valid: true with a pipeline"):
        class_for(release, pipeline)
    assert class_for(release, {"async_scheduling": False}) is release.scheduler_class
    plain = replace(release, scheduler_class=made("Mine", OWN, "mine"))
    assert class_for(plain, pipeline) is plain.scheduler_class


@pytest.mark.parametrize(
    ("target", "base", "are"),
    [
        ("vllm:.", "vllm==0.33.0", True),
        ("vllm==0.33.0:my_pkg.sched.MyScheduler", "vllm==0.33.0", True),
        ("vllm==0.33.0", "sendnn-inference==2.1.2", False),
        ("mine:Factory", "other:Factory", False),
        ("model", "model", False),
    ],
)
def test_only_a_real_scheduler_has_versions(target, base, are):
    assert are_versions_of_one(parse_target(target), parse_target(base)) is are
