"""Real releases: what is installed is whole, repeatable and for the CPU; nothing else is left."""

import fcntl
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from schedproof.gate.targets import releases, scheduler_class
from schedproof.gate.targets.checkouts import ADAPTERS
from schedproof.gate.targets.coverage import VARIABLE as COVERAGE
from schedproof.gate.targets.release_adapter import BEYOND_START_UP
from schedproof.gate.targets.releases import complaint
from schedproof.gate.targets.supported_releases import Release, ReleaseError, parse_release

from .wheel_files import make_wheel

SPYRE = Release("sendnn-inference", "2.1.2", "0.19.1")
WHEEL = {
    "{module}/__init__.py": "",
    "{module}/_C.abi3.so": "machine code",
    "{module}/kernels/gemm.cu": "more of it",
    "{module}/third_party/deep/fine.py": "",
    "{module}/third_party/deep/big.json": "null",
    "{module}/configs/a.json": "null",
    "{module}-{version}.dist-info/METADATA": "Version: {version}",
}


@dataclass
class Index:
    """Stands for pip and the package index: does what they would, from nothing."""

    commands: list[list[str]] = field(default_factory=list)
    answers: list[tuple[str, int, str]] = field(default_factory=list)
    before: Callable[[str], None] = lambda _: None
    cuda: str = "None"

    def answer(self, part_of_command, code, output):
        self.answers.append((part_of_command, code, output))

    def run(self, command, env, lock):
        assert not any(name.startswith("PYTHON") for name in env)
        os.fstat(lock)
        self.commands.append(list(command))
        line = " ".join(command)
        self.before(line)
        for part, code, output in self.answers:
            if part in line:
                return code, output
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir()
            python.symlink_to(sys.executable)
        if "download" in command:
            package, _, version = command[-1].partition("==")
            names = {"module": package.replace("-", "_"), "version": version}
            members = {key.format(**names): text.format(**names) for key, text in WHEEL.items()}
            destination = next(word for word in command if word.startswith("--dest="))
            name = "{module}-{version}-py3-none-any.whl".format(**names)
            make_wheel(Path(destination.removeprefix("--dest=")) / name, members)
        return 0, self.cuda if "-c" in command else ""

    def asked(self, word):
        return [" ".join(command) for command in self.commands if word in command]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCHEDPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(cache, monkeypatch):
    index = Index()
    monkeypatch.setattr(releases, "run", index.run)
    monkeypatch.setattr(releases, "published_digests", dict)
    return index


def prepare(release=SPYRE, *, offline=False):
    return releases.prepare(release, offline=offline, report=lambda _: None)


def there(cache):
    names = sorted(path.name for path in cache.iterdir())
    return ["env" if name.startswith("env-") and "." not in name else name for name in names]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("sendnn-inference==2.1.2", SPYRE),
        (" sendnn-inference == 2.1.2 ", SPYRE),
        ("SendNN_Inference==2.1.2", SPYRE),
        ("vllm-spyre==1.10.0", Release("vllm-spyre", "1.10.0", "0.18.0")),
        ("sendnn-inference==2.5.2", Release("sendnn-inference", "2.5.2", "0.24.0")),
        ("sendnn-inference==2.6.1", Release("sendnn-inference", "2.6.1", "0.27.1")),
        ("sendnn-inference==2.6.3", Release("sendnn-inference", "2.6.3", "0.28.0")),
        ("vllm==0.28.0", Release("vllm", "0.28.0", "0.28.0")),
        ("vllm == 0.33.0", Release("vllm", "0.33.0", "0.33.0")),
    ],
)
def test_a_supported_release_comes_with_its_version_of_vllm(text, release):
    assert parse_release(text) == release


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model",
        "sendnn-inference",
        "sendnn-inference=2.1.2",
        "python x.py",
        "torch==2.13.0",
        "==",
    ],
)
def test_a_text_that_names_no_known_release_is_none(text):
    assert parse_release(text) is None


@pytest.mark.parametrize(
    "version",
    [
        *("", "2.1.9", "2.2.1", "=2.1.2", "2.1.2 --fast", "latest", "2.1.2;id", "2.1.2\n-i x"),
        *("../../x", "2.1.2/../../x", "$(id)", "@file:///etc", "2.1.*", "1!2.1.2", "--index-url=x"),
    ],
)
def test_an_unsupported_version_is_refused_with_those_that_are(version):
    with pytest.raises(ReleaseError) as caught:
        parse_release(f"sendnn-inference=={version}")
    message = str(caught.value)
    assert message.startswith(f"sendnn-inference: version {version!r} is not supported")
    assert message.endswith("2.6.2, 2.6.3")
    assert "\n" not in message


def test_a_release_is_written_as_it_is_read():
    assert parse_release(str(SPYRE)) == SPYRE


def test_the_cache_is_where_the_user_wants_it(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("SCHEDPROOF_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert releases.cache_folder() == Path("/home/me/.cache/schedproof")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert releases.cache_folder() == Path("/var/cache/me/schedproof")
    monkeypatch.setenv("SCHEDPROOF_CACHE", "~/sp")
    assert releases.cache_folder() == Path("/home/me/sp")


def test_one_environment_and_one_tree_per_version(cache, index):
    prepare()
    prepare(Release("sendnn-inference", "2.1.0", "0.19.1"))
    assert there(cache) == [
        "env",
        "lock",
        "sendnn-inference-2.1.0",
        "sendnn-inference-2.1.2",
        "vllm-0.19.1",
    ]
    assert [line.split()[-1] for line in index.asked("download")] == [
        "vllm==0.19.1",
        "sendnn-inference==2.1.2",
        "sendnn-inference==2.1.0",
    ]


def test_a_release_of_vllm_is_one_tree_and_loads_no_plugin(cache, index):
    prepared = prepare(Release("vllm", "0.28.0", "0.28.0"))
    assert there(cache) == ["env", "lock", "vllm-0.28.0"]
    assert [line.split()[-1] for line in index.asked("download")] == ["vllm==0.28.0"]
    assert prepared.command[1:] == [str(ADAPTERS), "vllm"]
    assert ADAPTERS.exists()
    assert prepared.env["PYTHONPATH"] == str(cache / "vllm-0.28.0")
    assert prepared.env["VLLM_PLUGINS"] == ""


@pytest.mark.usefixtures("index")
def test_each_version_of_vllm_keeps_what_it_keeps_to_itself():
    older, newer = (prepare(Release("vllm", v, v)).env for v in ("0.28.0", "0.33.0"))
    assert older["VLLM_CACHE_ROOT"] != newer["VLLM_CACHE_ROOT"]


@pytest.mark.usefixtures("index")
def test_only_the_python_part_of_a_wheel_is_kept(cache):
    prepare()
    tree = cache / "vllm-0.19.1"
    kept = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
    assert kept == [
        "vllm-0.19.1.dist-info/METADATA",
        "vllm-0.19.1.dist-info/RECORD",
        "vllm/__init__.py",
        "vllm/configs/a.json",
        "vllm/third_party/deep/fine.py",
    ]


@pytest.mark.usefixtures("index")
def test_the_command_runs_the_target_in_the_environment_with_both_trees_on_the_path(
    cache, monkeypatch
):
    dropped = {"PYTHONDONTWRITEBYTECODE", "VLLM_USE_V1", "SENDNN_X"}
    dropped |= {scheduler_class.VARIABLE, scheduler_class.OWN_CLASS, BEYOND_START_UP, COVERAGE}
    for name in ("PYTHONPATH", "KEPT", *dropped):
        monkeypatch.setenv(name, "1")
    prepared = prepare()
    python, *adapter = prepared.command
    assert Path(python).is_relative_to(cache)
    assert Path(python).exists()
    assert adapter == [str(ADAPTERS), "spyre"]
    env = prepared.env
    assert env["PYTHONPATH"] == f"{cache / 'vllm-0.19.1'}:{cache / 'sendnn-inference-2.1.2'}"
    assert env["VLLM_PLUGINS"] == "sendnn_inference"
    assert env["HF_HUB_OFFLINE"] == env["OMP_NUM_THREADS"] == env["KEPT"] == "1"
    assert Path(env["VLLM_CACHE_ROOT"]).is_relative_to(cache)
    assert env.keys().isdisjoint(dropped)


@pytest.mark.usefixtures("index")
def test_vllm_spyre_1_x_has_a_plugin_of_another_name():
    assert prepare(Release("vllm-spyre", "1.10.0", "0.18.0")).env["VLLM_PLUGINS"] == "spyre"


@pytest.mark.usefixtures("index")
def test_the_folder_of_a_release_that_is_empty_is_made_anew(cache):
    prepare()
    tree = cache / "vllm-0.19.1"
    shutil.rmtree(tree)
    tree.mkdir()
    with pytest.raises(ReleaseError, match=r"not installed: vllm 0\.19\.1 \(RECORD has changed"):
        prepare(offline=True)
    prepare()
    assert any(tree.iterdir())


CHANGES: dict[str, Callable[[Path], object]] = {
    "vllm/__init__.py": lambda tree: (tree / "vllm/__init__.py").write_text("x = 1"),
    "vllm/configs/a.json": lambda tree: (tree / "vllm/configs/a.json").unlink(),
    "torch.py": lambda tree: (tree / "torch.py").touch(),
    "vllm/_C.so": lambda tree: (tree / "vllm/_C.so").touch(),
    "RECORD": lambda tree: (tree / "vllm-0.19.1.dist-info/RECORD").unlink(),
}


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("name", CHANGES)
def test_a_tree_that_is_not_as_its_wheel_is_named_and_made_anew(name, cache):
    prepare()
    tree, lines = cache / "vllm-0.19.1", list[str]()
    CHANGES[name](tree)
    why = f"vllm 0.19.1 ({name} has changed since it was installed)"
    with pytest.raises(ReleaseError, match=re.escape(f"not installed: {why}; ")):
        prepare(offline=True)
    releases.prepare(SPYRE, report=lines.append)
    assert f"{why}: installing all of it again" in lines
    assert releases.difference(tree) == ""


@pytest.mark.usefixtures("index")
def test_what_python_has_compiled_of_a_tree_is_no_change(cache):
    prepare()
    kept = cache / "vllm-0.19.1/vllm/__pycache__/a.pyc"
    kept.parent.mkdir()
    kept.touch()
    prepare()
    assert kept.exists()


def test_a_wheel_that_was_not_published_is_refused_and_not_kept(cache, index, monkeypatch):
    monkeypatch.setattr(releases, "published_digests", lambda: {"vllm==0.19.1": ("0" * 64,)})
    with pytest.raises(ReleaseError) as caught:
        prepare()
    text = str(caught.value)
    assert text.startswith("vllm-0.19.1-py3-none-any.whl is not what was published as vllm==0.19.1")
    assert f"valid: {'0' * 64}; check which package index pip uses" in text
    assert not [*cache.rglob("*.whl")]
    assert "vllm-0.19.1" not in there(cache)
    assert index.asked("download")


def test_a_wheel_that_is_on_no_list_is_said_to_be(index):
    lines = list[str]()
    releases.prepare(SPYRE, report=lines.append)
    assert "vllm 0.19.1: its wheel is not checked (no list has its digest)" in lines
    assert index.commands


@pytest.mark.usefixtures("index")
def test_whatever_the_umask_is_nobody_else_writes_into_the_cache(cache):
    before = os.umask(0)
    try:
        prepare()
    finally:
        os.umask(before)
    assert cache.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("index")
def test_an_environment_whose_python_has_gone_is_made_anew():
    python = Path(prepare().command[0])
    python.unlink()
    python.symlink_to("/nonexistent/python")
    with pytest.raises(ReleaseError, match=r"Python environment \(bin/python has changed"):
        prepare(offline=True)
    prepare()
    assert python.exists()


@pytest.mark.usefixtures("index")
def test_progress_is_reported_in_short_lines():
    lines: list[str] = []
    releases.prepare(SPYRE, offline=False, report=lines.append)
    assert lines[1] == "torch 2.13.0 (CPU), about 200 MB"
    assert "vllm 0.19.1: 1 MB in 0 s" in lines
    assert all(len(line) < 80 for line in lines)


def no_such(requirement, offered):
    return (
        "WARNING: Location 'file:///x/' is ignored\n"
        "ERROR: Could not find a version that satisfies the requirement "
        f"{requirement} (from versions: {offered})\n"
        f"ERROR: No matching distribution found for {requirement}\n"
    )


@pytest.mark.skipif(sys.platform == "darwin", reason="every build for macOS is for the CPU")
def test_torch_is_asked_for_as_a_cpu_build_then_from_the_cpu_index(index):
    index.answer("torch==2.13.0+cpu", 1, no_such("torch==2.13.0+cpu", "2.12.0, 2.13.0"))
    prepare()
    first, second, packages = index.asked("install")
    assert first.endswith("--no-deps --no-compile torch==2.13.0+cpu")
    assert second.endswith("torch==2.13.0 --index-url=https://download.pytorch.org/whl/cpu")
    assert "--no-deps" in packages
    assert "torch==" not in packages


def test_without_a_cpu_build_nothing_is_installed(cache, index):
    index.answer("torch==", 1, no_such("torch==2.13.0", "2.11.0, 2.12.0"))
    with pytest.raises(ReleaseError, match=r"no CPU build of torch 2\.13\.0") as caught:
        prepare()
    assert "PIP_FIND_LINKS" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "env" not in there(cache)


def test_a_cuda_build_is_never_used(cache, index):
    index.cuda = "12.9"
    with pytest.raises(ReleaseError, match="CUDA build"):
        prepare()
    assert "env" not in there(cache)


def test_every_package_has_a_fixed_version_and_none_is_of_cuda():
    packages = releases._packages()
    assert all(package.count("==") == 1 for package in packages)
    assert not [name for name in packages if name.startswith(("nvidia", "triton", "torch"))]


def test_offline_refuses_with_what_is_missing_and_how_to_get_it(cache, index):
    with pytest.raises(ReleaseError) as caught:
        prepare(offline=True)
    assert str(caught.value) == (
        "not installed: Python environment, vllm 0.19.1, sendnn-inference 2.1.2; "
        "install with: schedproof gate sendnn-inference==2.1.2 (without --offline)"
    )
    assert not cache.exists()
    assert index.commands == []


@pytest.mark.usefixtures("index")
def test_offline_names_only_what_is_missing():
    prepare()
    with pytest.raises(ReleaseError, match=r"^not installed: sendnn-inference 2\.1\.0; install"):
        prepare(Release("sendnn-inference", "2.1.0", "0.19.1"), offline=True)


def test_what_is_installed_is_used_without_the_index(index):
    online = prepare()
    index.commands.clear()
    assert prepare(offline=True) == prepare() == online
    assert index.commands == []


@pytest.mark.parametrize(
    "moment", ["venv", "torch==", "packages.txt", "download", "sendnn-inference=="]
)
def test_an_interrupted_run_leaves_nothing_that_looks_complete(moment, cache, index):
    def interrupt(line):
        if moment in line:
            raise KeyboardInterrupt

    index.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        prepare()
    with pytest.raises(ReleaseError, match=r"not installed:.*sendnn-inference 2\.1\.2"):
        prepare(offline=True)
    index.before = lambda _: None
    prepare()
    assert there(cache) == ["env", "lock", "sendnn-inference-2.1.2", "vllm-0.19.1"]


def test_an_interrupted_unpacking_leaves_nothing_and_keeps_the_download(cache, index, monkeypatch):
    with monkeypatch.context() as patch:

        def interrupt(path):
            if str(path) == "vllm/configs/a.json":
                raise KeyboardInterrupt
            return True

        patch.setattr(releases, "_is_wanted", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare()
    with pytest.raises(ReleaseError, match=r"not installed: vllm 0\.19\.1, sendnn"):
        prepare(offline=True)
    prepare()
    assert [line.split()[-1] for line in index.asked("download")] == [
        "vllm==0.19.1",
        "sendnn-inference==2.1.2",
    ]
    assert there(cache) == ["env", "lock", "sendnn-inference-2.1.2", "vllm-0.19.1"]


def test_two_runs_wait_for_each_other(cache, index):
    cache.mkdir()
    lines: list[str] = []
    with (cache / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def report(line):
            assert lines or index.commands == []
            lines.append(line)
            if len(lines) == 1:  # the other run ends as soon as this one has begun to wait
                threading.Timer(0.05, lambda: fcntl.flock(held, fcntl.LOCK_UN)).start()

        releases.prepare(SPYRE, offline=False, report=report)
    assert lines[:2] == ["waiting for another installation to finish", "Python environment: 1.1 GB"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path, index, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SCHEDPROOF_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ReleaseError, match=r"cannot install into .*file/cache: Not a directory"):
        prepare()
    assert index.commands == []


def test_a_python_without_venv_is_told_what_to_install(index):
    index.answer("venv", 1, "ensurepip is not available.\n")
    with pytest.raises(ReleaseError, match=r"ensurepip is not available\.\); .* python3-venv"):
        prepare()


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (
            no_such("sendnn-inference==2.1.4", "2.0.0"),
            "the package index has no sendnn-inference==2.1.4 for this machine; it has 2.0.0",
        ),
        (
            "ERROR: Ignored the following versions that require a different python version: "
            "0.19.1 Requires-Python <3.14,>=3.10\n" + no_such("vllm==0.19.1", "0.24.0"),
            "vllm==0.19.1 does not support this Python",
        ),
        (
            "WARNING: Retrying: NewConnectionError('Name or service not known')\n"
            + no_such("vllm==0.19.1", "none"),
            "the package index cannot be reached",
        ),
        ("ERROR: No space left on device\n\nhint: clean up\n", "No space left on device"),
        ("Killed\n", "Killed"),
        ("", "no output"),
    ],
)
def test_the_last_thing_that_matters_is_said_in_one_line(output, says):
    assert complaint(output).startswith(says)
    assert "\n" not in complaint(output)


def test_a_version_that_is_not_on_the_index_is_one_clear_line(cache, index):
    index.answer("sendnn-inference==", 1, no_such("sendnn-inference==2.1.2", "2.0.0, 2.0.1"))
    with pytest.raises(ReleaseError, match=r"has no sendnn-inference==2\.1\.2 for this"):
        prepare()
    assert there(cache) == ["downloads", "env", "lock", "vllm-0.19.1"]
