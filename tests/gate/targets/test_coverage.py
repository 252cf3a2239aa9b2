"""The probes in a target's modules: what they count, and that they change nothing else."""

import ast
import copy
import importlib
import pickle
import sys
import types

import pytest

from schedproof.gate.targets import coverage
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.systems import full_config

CONFIG = full_config("generic", "documented", {})

SOURCE = '''"""A module."""
from __future__ import annotations
import abc

LIMIT = 3

def visited(n):
    """Its docstring stays."""
    if n > LIMIT:
        return "large"
    elif n == LIMIT:
        return "limit"
    for _ in range(n):
        try:
            int("x")
        except ValueError:
            total = [lambda: 1 for _ in "ab"]
        finally:
            n = n
    match n:
        case 1:
            return "one"
        case _:
            return f"{n}"

class Base(abc.ABC):
    @abc.abstractmethod
    def declared(self): return None

    def also_declared(self):
        raise NotImplementedError

    def outer(self):
        def inner(): return self.__class__.__name__
        return inner

def never():
    return LIMIT
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Import a module of this source, counted; its folder for probes is `probes`."""
    probes = tmp_path / "probes"
    probes.mkdir()
    monkeypatch.setenv(coverage.VARIABLE, str(probes))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(coverage, "FINDER", coverage._Finder())
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])

    def imported(name="counted_module", source=SOURCE):
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        coverage.count_packages(name)
        return importlib.import_module(name)

    return imported


def passed(folder):
    """The lines that were entered, by function."""
    [module_file] = coverage.read_probes(folder)
    found: dict[str, set[int]] = {}
    with open(module_file.path, encoding="utf-8") as file:
        places = coverage.places(file.read())
    assert len(places) == len(module_file.probes)
    for (function, line), probe in zip(places, module_file.probes, strict=True):
        found.setdefault(function.name, set())
        found[function.name] |= {line} if probe else set()
    return found


def test_what_is_imported_counts_for_no_function(module, tmp_path):
    module()
    assert not any(passed(tmp_path / "probes").values())


def test_the_lines_of_a_function_count_once_they_are_entered(module, tmp_path):
    loaded = module()
    assert (loaded.visited(3), loaded.visited(1)) == ("limit", "one")
    lines = SOURCE.splitlines()
    entered = passed(tmp_path / "probes")
    missed = {'        return "large"', '            return f"{n}"'}
    first, last = lines.index("def visited(n):"), lines.index("class Base(abc.ABC):")
    for number in range(first + 1, last):
        line = lines[number]
        if line.strip().startswith(("return", "total", "n =", "int(", "if", "for")):
            assert (number + 1 in entered["visited"]) == (line not in missed), line
    assert entered["never"] == set()


def test_a_function_on_the_line_of_another_is_not_taken_for_entered(module, tmp_path):
    loaded = module()
    inner = loaded.Base.outer(object())
    assert not passed(tmp_path / "probes")["Base.outer.<locals>.inner"]
    assert inner() == "object"
    assert passed(tmp_path / "probes")["Base.outer.<locals>.inner"]


def test_declarations_are_no_functions():
    names = {function.name for function, _ in coverage.places(SOURCE)}
    assert names == {"visited", "Base.outer", "Base.outer.<locals>.inner", "never"}


COMPILED = """
import compiler
from compiler import njit

@compiler.jit(cache=True)
def decorated(n):
    return n

def passed_on(n):
    return n

@compiler.experimental.jitclass([])
class Pool:
    def take(self):
        return 1

@compiler.extending.register_jitable
def helper(n):
    return n

@compiler.kernel
def kernel(n):
    return n

fast = njit("int64(int64)")(passed_on)

def plain(n):
    return fast(n)
"""


def test_functions_that_another_compiler_compiles_have_no_probes():
    assert {function.name for function, _ in coverage.places(COMPILED)} == {"plain"}


CLOSURE = """
def outer(n):
    def inner(x):
        y = x + n
        return y
    return inner

def plain(n):
    m = n + 1
    return m
"""


def test_a_function_can_leave_its_module(module):
    """As cloudpickle sends a function to another process, and as others run its code."""
    loaded = module(source=CLOSURE)
    sent = {coverage.PROBES: getattr(loaded, coverage.PROBES)}
    for elsewhere in (pickle.loads(pickle.dumps(sent)), copy.deepcopy(sent), {}):
        assert types.FunctionType(loaded.plain.__code__, {**elsewhere})(2) == 3


def test_a_module_that_is_nested_too_deeply_gets_no_probes(module):
    branches = "".join(
        f"    elif n == {number}:\n        return {number}\n" for number in range(1500)
    )
    source = f"def chosen(n):\n    if n < 0:\n        return -1\n{branches}"
    assert module(source=source).chosen(700) == 700


def test_docstrings_and_the_future_stay_as_they_are(module):
    loaded = module()
    assert (loaded.__doc__, loaded.visited.__doc__) == ("A module.", "Its docstring stays.")
    assert loaded.annotations is not None


def test_probes_keep_the_lines_of_a_traceback(module):
    loaded = module(source="def fails():\n    x = 1\n    raise ValueError(x)\n")
    with pytest.raises(ValueError, match="1") as caught:
        loaded.fails()
    assert caught.traceback[-1].lineno == 2


def test_a_second_process_adds_to_the_first(module, tmp_path):
    module().never()
    module().visited(9)
    entered = passed(tmp_path / "probes")
    assert entered["never"]
    assert entered["visited"]


def test_nothing_is_counted_where_nobody_asks(module, monkeypatch):
    monkeypatch.delenv(coverage.VARIABLE)
    assert coverage.PROBES not in vars(module())


def test_what_lies_beside_a_factory_is_counted_and_installed_packages_are_not(
    module, tmp_path, monkeypatch
):
    (tmp_path / "beside.py").write_text("def f(): return 1\n")
    installed = tmp_path / "venv" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "foreign.py").write_text("def f(): return 1\n")
    monkeypatch.syspath_prepend(installed)
    (tmp_path / "adapter.py").write_text("import beside, foreign, json\n")
    for name in ("adapter", "beside", "foreign"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    coverage.count_beside("adapter")
    importlib.import_module("adapter")
    assert {file.module for file in coverage.read_probes(tmp_path / "probes")} == {
        "adapter",
        "beside",
    }


def test_a_target_that_is_not_to_be_counted_does_not_count_for_another_gate(tmp_path, monkeypatch):
    monkeypatch.setenv(coverage.VARIABLE, str(tmp_path / "of-another-gate"))
    (tmp_path / "mine.py").write_text(
        "from schedproof.model.target import ModelTarget\ndef make():\n    return ModelTarget()\n"
    )
    with opened(parse_target("mine:make"), folder=tmp_path, imports=[str(tmp_path)]) as there:
        assert there.target.start("generic", "documented", CONFIG)["ok"]


def test_the_probes_of_this_package_are_in_every_kind_of_block():
    """Each statement that Python executes in a function has a probe."""
    with open(coverage.__file__, encoding="utf-8") as file:
        source = file.read()
    nodes = {
        node.lineno
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt) and coverage.is_code(node)
    }
    assert {line for _, line in coverage.places(source)} == nodes


def test_a_file_that_the_target_removes_meanwhile_counts_for_nothing(module, tmp_path, monkeypatch):
    module()
    monkeypatch.setattr(coverage, "_files", lambda folder: [folder / "gone", *folder.iterdir()])
    assert len(coverage.read_probes(tmp_path / "probes")) == 1


def test_an_interval_shows_what_was_entered_in_it_and_takes_nothing_away(module, tmp_path):
    probes = tmp_path / "probes"
    loaded = module()
    loaded.visited(9)
    before = passed(probes)
    with coverage.Interval(probes) as interval:
        loaded.never()
        [since] = interval.take()
        assert sum(since.probes) == 1
        [nothing] = interval.take()
        assert not any(nothing.probes)
    after = passed(probes)
    assert (after["visited"], len(after["never"])) == (before["visited"], 1)


def test_processes_with_folders_of_their_own_count_as_one(module, tmp_path, monkeypatch):
    for number, name in (("1", "never"), ("2", "visited")):
        (folder := tmp_path / "probes" / number).mkdir()
        monkeypatch.setenv(coverage.VARIABLE, str(folder))
        vars(module())[name](*[3] * (name == "visited"))
    entered = passed(tmp_path / "probes")
    assert entered["never"]
    assert entered["visited"]
