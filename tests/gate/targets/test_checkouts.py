"""Schedulers in a checkout: how one is named, found and told from the other generation."""

import importlib.metadata
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from schedproof.gate.targets import checkouts
from schedproof.gate.targets.checkouts import ADAPTERS, known_checkouts, metadata_folder
from schedproof.gate.targets.nano_vllm.releases import CHECKOUT as NANO
from schedproof.gate.targets.supported_releases import Release, packages
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.errors import InputError
from schedproof.model.systems import revisions_of
from schedproof.tools import house

VARIABLE = "SCHEDPROOF_NANO_VLLM"
EVERY_NAME = ", ".join(known_checkouts())
OLD = "class BlockManager:\n    def may_append(self, seq): pass\n"
NEW = f"{OLD}    def hash_blocks(self, seq): pass\n"


@pytest.fixture(autouse=True)
def nobody_says(monkeypatch):
    """The environment names no checkout."""
    monkeypatch.delenv(VARIABLE, raising=False)


def checkout(folder, code=NEW):
    """A folder with the files that a checkout has."""
    engine = folder / "nanovllm" / "engine"
    engine.mkdir(parents=True)
    (engine / "scheduler.py").write_text("class Scheduler: pass\n")
    (engine / "block_manager.py").write_text(code)
    (engine / "model_runner.py").write_text("class ModelRunner: pass\n")
    (folder / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    return folder


@pytest.mark.parametrize(
    ("spec", "folder"),
    [
        ("nano-vllm", ""),
        ("nano-vllm:/some/where", "/some/where"),
        ("nano-vllm:here", "here"),
        ("nano-vllm:C:/there", "C:/there"),
    ],
)
def test_a_checkout_is_named_alone_or_with_its_folder(spec, folder):
    assert checkouts.parse_checkout(spec) == (NANO, folder)
    assert parse_target(spec).default_system == "nano_vllm"


@pytest.mark.parametrize(
    "spec", ["model", "nano-vllm==0.2.0", "nano_vllm", "nano", "vllm==0.28.0", "toys:nano-vllm"]
)
def test_other_targets_are_no_checkouts(spec):
    assert checkouts.parse_checkout(spec) is None


def test_a_path_is_added_to_the_name():
    assert checkouts.with_path("nano-vllm", Path("/some/where")) == "nano-vllm:/some/where"
    assert checkouts.with_path("nano-vllm", None) == "nano-vllm"
    assert checkouts.with_path("model", None) == "model"


def test_the_folder_is_what_the_word_says_before_the_environment(tmp_path, monkeypatch):
    named, known = checkout(tmp_path / "said"), checkout(tmp_path / "known")
    assert checkouts.folder_of(NANO, str(named)) == named
    monkeypatch.setenv(VARIABLE, str(known))
    assert checkouts.folder_of(NANO, str(named)) == named
    assert checkouts.folder_of(NANO, "") == known


def test_a_folder_is_made_absolute(tmp_path, monkeypatch):
    checkout(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    assert checkouts.folder_of(NANO, "one") == tmp_path / "one"


def test_nobody_says_where_the_checkout_is():
    with pytest.raises(InputError) as caught:
        checkouts.folder_of(NANO, "")
    assert str(caught.value) == f"{NANO.name}: for a checkout add --path FOLDER, or set ${VARIABLE}"


@pytest.mark.parametrize("from_environment", [False, True])
def test_no_such_folder_is_named_with_who_said_so(tmp_path, monkeypatch, from_environment):
    gone = str(tmp_path / "gone")
    monkeypatch.setenv(VARIABLE, gone)
    with pytest.raises(InputError) as caught:
        checkouts.folder_of(NANO, "" if from_environment else gone)
    where = f"${VARIABLE}" if from_environment else "--path"
    assert str(caught.value) == f"{where}: {gone}: no such folder; valid: a checkout of nano_vllm"


@pytest.mark.parametrize("file", NANO.needs)
def test_a_file_that_is_missing_is_named(tmp_path, file):
    clone = checkout(tmp_path / "one")
    (clone / file).unlink()
    with pytest.raises(InputError) as caught:
        checkouts.folder_of(NANO, str(clone))
    assert str(caught.value) == f"--path: {clone} has no {file}; valid: a checkout of nano_vllm"


@pytest.mark.parametrize(("code", "revision"), [(NEW, "0.2.0"), (OLD, "documented")])
def test_code_that_publishes_blocks_is_compared_with_the_release_and_older_with_the_deck(
    tmp_path, monkeypatch, code, revision
):
    clone = checkout(tmp_path / "one", code)
    assert checkouts.revision_of(NANO, str(clone)) == revision
    assert parse_target(f"nano-vllm:{clone}").default_revision() == revision
    monkeypatch.setenv(VARIABLE, str(clone))
    assert parse_target("nano-vllm").default_revision() == revision


def vllm_checkout(folder):
    core = folder / "vllm" / "v1" / "core" / "sched"
    core.mkdir(parents=True)
    (core / "scheduler.py").write_text("class Scheduler: pass\n")
    return folder


@pytest.mark.parametrize(
    ("version", "revision"),
    [("0.19.1", "documented"), ("0.28.0", "0.25"), ("0.31.1.dev7+gabc", "0.31"), ("", "newest")],
)
def test_a_checkout_of_vllm_is_compared_as_the_release_of_its_version(tmp_path, version, revision):
    folder = vllm_checkout(tmp_path)
    if version:
        words = f"__version__ = version = '{version}'\n"
        (folder / "vllm" / "_version.py").write_text(words)
    newest = revisions_of("vllm")[-1]
    named = newest if revision == "newest" else revision
    assert parse_target("vllm", folder).default_revision() == named
    (folder / "vllm-0.30.0.dist-info").mkdir()
    assert parse_target("vllm", folder).default_revision() == "0.30"


def test_the_last_tag_of_a_checkout_is_its_version(tmp_path):
    folder = vllm_checkout(tmp_path)
    (folder / "vllm-0.19.1.dist-info").mkdir()
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["tag", "v0.30.1"]):
        subprocess.run([*git, *words], check=True)
    assert parse_target("vllm", folder).default_revision() == "0.30"


def test_the_script_gets_the_folder_by_the_environment_and_a_fixed_hash_seed(tmp_path):
    clone = checkout(tmp_path / "one")
    command, env = checkouts.command_of(NANO, str(clone))
    assert command[0] == sys.executable
    assert Path(command[1]).is_file()
    assert command[2:] == ["nano_vllm"]
    assert (env[VARIABLE], env["PYTHONHASHSEED"]) == (str(clone), "0")
    assert env.items() >= {key: os.environ[key] for key in ("PATH",)}.items()


def wrong(run, *words):
    """What a wrong command line says in its one line."""
    result = run("gate", *words, "--profile", "quick")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("schedproof: ")
    assert result.err.count("\n") == 1
    return result.err.removeprefix("schedproof: ").rstrip("\n")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_missing_path_is_one_line(run, here):
    assert wrong(run, "nano-vllm").startswith(
        "nano-vllm: for a checkout add --path FOLDER, or set "
    )


def test_a_folder_that_does_not_exist_is_one_line(run, here):
    message = wrong(run, "nano-vllm", "--path", "gone")
    assert message.startswith("--path: gone: no such folder")
    assert wrong(run, "nano-vllm:gone").startswith("--path: gone: no such folder")


def test_a_folder_that_is_no_checkout_is_one_line(run, here):
    (here / "empty").mkdir()
    message = wrong(run, "nano-vllm", "--path", "empty")
    assert message.startswith(
        "--path: empty has no nanovllm/engine/scheduler.py; valid: a checkout"
    )
    assert list(here.iterdir()) == [here / "empty"]


def test_a_wrong_environment_is_one_line_that_names_the_variable(run, here, monkeypatch):
    monkeypatch.setenv(VARIABLE, "gone")
    assert wrong(run, "nano-vllm").startswith(f"${VARIABLE}: gone: no such folder")


@pytest.mark.parametrize("target", ["model", "vllm==0.28.0", "toys:Toy", "cmd:python toy.py"])
def test_a_path_for_another_target_is_one_line(run, here, target):
    message = wrong(run, target, "--path", "there")
    assert message.startswith(f"--path: there: valid only for {EVERY_NAME}, not for {target}")


def test_a_replay_reads_a_path_as_well(run, here):
    (here / "one.json").write_text("{}")
    result = run("replay", "one.json", "--target", "model", "--path", "there")
    assert (result.code, result.out) == (2, "")
    message = f"schedproof: --path: there: valid only for {EVERY_NAME}, not for model"
    assert result.err.startswith(message)


def plugin(folder, *lines):
    core = folder / "sendnn_inference" / "v1" / "core"
    core.mkdir(parents=True)
    (core / "scheduler.py").write_text("class ChunkedPrefillSpyreScheduler: pass\n")
    project = ["[project]", 'name = "sendnn-inference"', *lines]
    (folder / "pyproject.toml").write_text("\n".join(project) + "\n")
    return folder


def release_in(folder):
    checkout = known_checkouts()["sendnn-inference"]
    assert checkout.package is not None
    return checkouts.release_of(checkout.package, checkout, str(folder))


def test_a_checkout_of_vllm_brings_its_own_vllm(tmp_path):
    core = tmp_path / "vllm" / "v1" / "core" / "sched"
    core.mkdir(parents=True)
    (core / "scheduler.py").write_text("class Scheduler: pass\n")
    spec = parse_target("vllm", tmp_path)
    assert (spec.text, spec.default_system) == (f"vllm:{tmp_path}", "vllm")
    assert spec.default_revision() == revisions_of("vllm")[-1]
    assert spec.checkout is not None
    release = checkouts.release_of(packages()["vllm"], spec.checkout, spec.folder)
    assert release == Release("vllm", "checkout", "checkout", tmp_path)


@pytest.mark.parametrize(
    ("dependencies", "vllm"),
    [([], "0.33.0"), (["vllm<0.28.1,>=0.26.0"], "0.28.0"), (["torch", "vllm==0.24.0"], "0.24.0")],
)
def test_a_checkout_of_the_plugin_runs_on_the_latest_vllm_that_it_takes(
    tmp_path, dependencies, vllm
):
    folder = plugin(tmp_path, f"dependencies = {dependencies}")
    release = release_in(folder)
    assert release == Release("sendnn-inference", "checkout", vllm, folder)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dependencies = ['vllm==0.1']", "needs vllm==0.1; valid: one of 0.19.1, "),
        ("dependencies = ['v llm']", "$.project.dependencies: "),
        ("dependencies = [1]", "$.project.dependencies: "),
        ("name =", "cannot be read ("),
    ],
)
def test_a_project_file_that_says_nothing_usable_is_one_line(tmp_path, text, problem):
    folder = plugin(tmp_path, text)
    with pytest.raises(InputError) as caught:
        release_in(folder)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"--path: {folder}/pyproject.toml: {problem}")


def test_the_plugin_is_found_by_what_its_project_file_says(tmp_path):
    points = ['[project.entry-points."vllm.platform_plugins"]', 'x = "x:register"']
    folder = metadata_folder(plugin(tmp_path / "here", *points), tmp_path / "made")
    [found] = importlib.metadata.distributions(path=[str(folder)])
    assert (found.name, found.version) == ("sendnn_inference", "0+checkout")
    [point] = found.entry_points
    assert (point.group, point.name, point.value) == ("vllm.platform_plugins", "x", "x:register")


# Serves an empty stdin, and then looks for what lies beside the launcher.
CODE = """
import importlib.util, runpy, sys
sys.argv = [FILE, SYSTEM]
sys.path.insert(0, FOLDER)
runpy.run_path(FILE, run_name="__main__")
print([name for name in NAMES if importlib.util.find_spec(name)], "schedproof" in sys.modules)
"""


@pytest.mark.parametrize("system", ["nano_vllm", "llmservingsim"])
def test_no_file_beside_the_launcher_can_be_imported_by_its_name(tmp_path, system):
    folder = ADAPTERS.parent
    values: dict[str, object] = {"FILE": str(ADAPTERS), "FOLDER": str(folder), "SYSTEM": system}
    values["NAMES"] = [path.parent.name for path in folder.glob("*/__init__.py")]
    values["NAMES"] += [path.stem for path in folder.glob("[a-z]*.py")]
    script = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + CODE
    done = subprocess.run(
        [sys.executable, "-c", script],
        input="",
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stderr == "[] False\n"  # whatever is printed goes there


imports = cache(house.imports)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        *(f"{checkout.system}.target" for checkout in known_checkouts().values()),
        "vllm.recorder",
        "vllm.connector",
    ],
)
def test_an_adapter_needs_no_file_outside_the_targets_and_nothing_that_is_to_be_installed(module):
    graph, named = imports(), house.modules()
    reached, new = set[str](), {f"gate.targets.{module}"}
    while new:
        reached |= new
        new = {target for name in new for target in graph[name]} - reached
    assert all(name.startswith("gate.targets.") for name in reached)
    for name in reached:
        for imported in house.imported(named[name]):
            top = imported.partition(".")[0]
            assert top in sys.stdlib_module_names or imported.startswith("schedproof."), imported
