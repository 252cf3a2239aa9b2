"""The core does no I/O, commands load only what they need, and the wheel holds what it needs."""

import ast
import subprocess
import sys
import tomllib

import pytest

from schedproof.gate.cli.groups import Commands
from schedproof.tools.house import LAYERS, ROOT, imported, sources

PURE = ("spec", "model", "properties", "solver")
# What reaches the outside world, or differs from run to run.
OUTSIDE = frozenset(
    (
        *("asyncio", "builtins", "ctypes", "datetime", "fcntl", "glob", "http", "importlib", "io"),
        *("logging", "mmap", "multiprocessing", "os", "pathlib", "pickle", "platform", "random"),
        *("secrets", "select", "shelve", "shutil", "socket", "sqlite3", "ssl", "subprocess"),
        *("sys", "tempfile", "threading", "time", "urllib", "uuid"),
    )
)
ALLOWED = {
    ("model/own_code.py", "os"),  # a user's function must not end the process
    ("model/own_code.py", "threading"),  # only the main thread can limit a user's function
    # Whatever process the model is made in, a formula of the user's is read there by its name.
    ("model/spyre/own_formula.py", "pathlib"),
    ("model/spyre/own_formula.py", "runpy"),
    ("properties/search/machine.py", "sys"),  # does an exception end the run?
    ("properties/search/run.py", "time"),  # how long a search took
    ("properties/search/state.py", "time"),
    ("solver/smt/defined.py", "builtins"),  # the builtin errors
    ("solver/smt/expressions.py", "builtins"),  # is a name one of Python's own?
    ("solver/smt/on_symbols.py", "builtins"),  # len, max and sorted, beside those for symbols
    ("solver/smt/obligation.py", "importlib"),  # is the second solver installed?
    ("solver/smt/obligation.py", "time"),  # how long a proof took
    ("properties/search/workloads.py", "random"),  # a generator with a seed of its own
    ("spec/catalogue.py", "importlib"),  # importlib.resources, for the packaged TOML files
    ("spec/systems.py", "importlib"),  # parts of a system, imported when they are first used
}
GROUPED = [*Commands()]
DATA = {".css", ".html", ".jinja", ".js", ".json", ".md", ".pml", ".toml", ".txt", ".typed"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


ALL_SOURCES = [path for layer in LAYERS for path in sources(layer)]


@pytest.mark.slow
def test_the_product_imports_no_test_and_no_tool():
    for path in ALL_SOURCES:
        for name in imported(path):
            outside = name.removeprefix("schedproof.").partition(".")[0]
            assert outside not in ("tests", "tools", "examples"), f"{path}: {name}"


@pytest.mark.parametrize(
    "path",
    [path for layer in PURE for path in sources(layer)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_core_does_no_input_or_output(path):
    place = str(path.relative_to(ROOT))
    for name in imported(path):
        module = name.partition(".")[0]
        assert module not in OUTSIDE or (place, module) in ALLOWED, f"{place} imports {name}"
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input", "exec", "eval", "__import__"}


def test_the_catalogue_reads_packaged_resources_only():
    names = {name for name in imported(ROOT / "spec/catalogue.py") if name.startswith("importlib")}
    assert names == {"importlib.resources"}


def test_the_files_that_run_inside_a_release_need_the_standard_library_only():
    # jsonl.py is imported there by itself.
    for name in imported(ROOT / "gate/targets/jsonl.py"):
        assert not name.startswith("schedproof"), name


def test_every_package_is_listed_and_every_listed_one_exists():
    listed = set(SETUPTOOLS["packages"])
    inits = [ROOT / "__init__.py", *(p for layer in LAYERS for p in sources(layer))]
    there = {
        ".".join(("schedproof", *path.relative_to(ROOT).parent.parts))
        for path in inits
        if path.name == "__init__.py"
    }
    assert listed == there
    stray = {
        str(path.relative_to(ROOT))
        for path in ALL_SOURCES
        if not (path.parent / "__init__.py").exists()
    }
    assert stray == set()


def test_every_data_file_is_in_the_wheel():
    folders = [ROOT / layer for layer in LAYERS if (ROOT / layer).is_dir()]
    data = {
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in DATA
    } | {ROOT / "py.typed"}
    packed = set()
    for package, patterns in SETUPTOOLS["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for pattern in patterns:
            matches = set(folder.glob(pattern))
            assert matches, f"{package}: {pattern} matches nothing"
            packed |= matches
    assert data == packed
    names = {path.relative_to(ROOT).as_posix() for path in packed}
    assert {"py.typed", "spec/common.toml", "spec/spyre.toml"} <= names
    assert "gate/corpus/builtin/spyre/late-arrivals-before-961.json" in names
    assert any(name.startswith("gate/targets/vllm/tinymodel/") for name in names)


def test_the_command_is_what_the_package_says():
    module, _, name = PROJECT["project"]["scripts"]["schedproof"].partition(":")
    path = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    defined = {
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert name in defined


@pytest.mark.slow
def test_the_command_line_starts_without_the_solvers():
    """Z3 alone takes a third of a second to import, and most commands never ask it."""
    assert not {"z3", "plotly"} & loaded_by(*GROUPED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rules", "replay", "show", "check-trace", "corpus", "serve"])
def test_what_does_not_search_starts_without_hypothesis(name):
    assert "hypothesis" not in loaded_by(name)


def test_a_command_loads_no_other():
    others = {f"schedproof.gate.cli.{name.replace('-', '_')}" for name in GROUPED} & loaded_by()
    assert not others


def loaded_by(*commands):
    """The modules that are there when these commands are loaded."""
    asked = (
        "import sys, typer, schedproof.gate.cli.app as it; "
        "one = typer.main.get_command(it.app); [one.commands[n] for n in sys.argv[1:]]; "
        "print(*sys.modules)"
    )
    reported = subprocess.run(
        [sys.executable, "-c", asked, *commands], capture_output=True, text=True, check=True
    )
    return {*reported.stdout.split()}
