"""Record which lines of a target's functions run, from within the target's process.

When a counted module is imported, each statement in its functions gets a probe, much as pytest
rewrites assertions. A probe sets one byte of a file that is mapped into memory, so nothing is lost
if the process crashes or is killed. The target need not cooperate. A tracer (`sys.settrace`) would
be several times slower.

Standard library only: this file also runs inside the environment of a release under test.
"""

import ast
import builtins
import contextlib
import hashlib
import importlib.util
import mmap
import operator
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import chain, count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

VARIABLE = (
    "SCHEDPROOF_COVERAGE"  # the environment variable that gives the folder to the target's process
)
PROBES = "__schedproof_probes__"  # a global of a counted module
DECLARED = ("abstractmethod", "overload")
# These decorators and functions compile a function's bytecode themselves and cannot compile a
# probe, so functions passed to them get none. `compile` counts only as a decorator, since `re` has
# a function of that name.
COMPILERS = {
    *("jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil", "jitclass"),
    *("register_jitable", "overload", "overload_method", "overload_attribute", "intrinsic"),
}
DECORATORS = {*COMPILERS, "compile", "kernel", "func"}
# Bytes. Larger files in the folder are ignored, because the target can write there.
LARGEST = 16 * 1024 * 1024
INSTALLED = ("site-packages", "dist-packages")
NOT_COUNTED = {*sys.stdlib_module_names, __name__.partition(".")[0]}


class Function(NamedTuple):
    """A function of a module: its qualified name, and its first and last line."""

    name: str
    line: int
    end: int


class Entered(NamedTuple):
    """A module, and for each of its probes whether any process has passed it."""

    path: str
    module: str
    probes: bytes


def blocks(tree: ast.AST) -> Iterator[tuple[Function, list[ast.stmt]]]:
    """Yield every block of statements that belongs to a function and contains code, in source
    order."""
    compiled = {
        argument.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _call_name(call) in COMPILERS
        for argument in call.args
        if isinstance(argument, ast.Name)
    }
    yield from _blocks(tree, "", None, compiled)


def _blocks(
    node: ast.AST, prefix: str, function: Function | None, compiled: Collection[str]
) -> Iterator[tuple[Function, list[ast.stmt]]]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
        node.name in compiled or any(_call_name(word) in DECORATORS for word in node.decorator_list)
    ):
        return
    if isinstance(node, ast.ClassDef):
        prefix, function = f"{prefix}{node.name}.", None
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if _is_declaration(node):
            return
        function = Function(f"{prefix}{node.name}", node.lineno, node.end_lineno or node.lineno)
        prefix = f"{function.name}.<locals>."
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if not isinstance(block, list):  # the body of a lambda is an expression, not a list
            continue
        if function is not None and field not in ("handlers", "cases"):
            yield function, block
        for child in block:
            yield from _blocks(child, prefix, function, compiled)


def _call_name(node: ast.expr) -> str:
    """Return the last part of the name that a call or a decorator uses: "njit" for
    `numba.njit(cache=True)`."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_code(statement: ast.stmt) -> bool:
    """Return whether a statement does something. A docstring, `...` and `global` do not."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    return not isinstance(statement, ast.Global | ast.Nonlocal)


def _is_declaration(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    return any(name in DECLARED for name in names) or not any(
        is_code(statement)
        and not isinstance(statement, ast.Pass)
        and not (isinstance(statement, ast.Raise) and "NotImplemented" in ast.unparse(statement))
        for statement in node.body
    )


def places(source: str | bytes) -> list[tuple[Function, int]]:
    """Return the function and the line of each probe, in order."""
    return [
        (function, statement.lineno)
        for function, block in blocks(ast.parse(source))
        for statement in block
        if is_code(statement)
    ]


def _insert_probes(tree: ast.AST) -> int:
    numbers = count()
    for _, block in list(blocks(tree)):
        block[:] = [
            statement
            for original in block
            for statement in (
                [_probe(next(numbers), original), original] if is_code(original) else [original]
            )
        ]
    return next(numbers)


def _probe(number: int, statement: ast.stmt) -> ast.stmt:
    place = ast.Subscript(ast.Name(PROBES, ast.Load()), ast.Constant(number), ast.Store())
    return ast.fix_missing_locations(
        ast.copy_location(ast.Assign([place], ast.Constant(1)), statement)
    )


class _Probes(mmap.mmap):
    """The probes of a module. They count nothing if they are copied, for example when a function is
    sent to another process."""

    def __reduce_ex__(self, _: Any) -> tuple[type[dict[int, int]], tuple[()]]:
        return dict, ()


class _CountingLoader(SourceFileLoader):
    """Execute a module with probes, without reading or writing its compiled file."""

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.get_data(self.path), self.path)
        try:
            probes = _insert_probes(tree)
            code = compile(tree, self.path, "exec", dont_inherit=True)
        except RecursionError:  # the code is too deeply nested, such as a thousand `elif`
            super().exec_module(module)
            return
        vars(module)[PROBES] = _map_probes(Path(os.environ[VARIABLE]), self, probes)
        # If the target runs a function's code with other globals, nothing is counted.
        vars(builtins).setdefault(PROBES, {})
        exec(code, vars(module))


def _map_probes(folder: Path, loader: SourceFileLoader, probes: int) -> Any:
    """Map the probes of a module into memory, shared by all processes of the target. The mapped
    file also contains the module's path and name."""
    words = f"{os.path.abspath(loader.path)}\0{loader.name}"
    name = words.encode(errors="surrogateescape")
    file = folder / hashlib.sha256(name).hexdigest()
    if not file.exists():
        made = folder / f"{file.name}.{os.getpid()}"
        made.write_bytes(bytes(probes) + name)
        with contextlib.suppress(FileExistsError):  # another process has already created it
            os.link(made, file)
        made.unlink()
    with file.open("r+b") as opened:
        return _Probes(opened.fileno(), 0)


def read_probes(folder: Path) -> list[Entered]:
    """Return, for each module, the probes that the target's processes have passed."""
    modules = []
    for file in _files(folder):
        try:
            # The offset of the module's path in the file.
            probes, separator, words = file.read_bytes().partition(b"/")
        except OSError:  # the target has removed it
            continue
        if separator:
            path, _, module = words.decode(errors="surrogateescape").partition("\0")
            modules.append(Entered(f"/{path}", module, probes))
    return combine(modules)


def combine(*parts: Iterable[Entered]) -> list[Entered]:
    """Combine recordings. Return, for each module, the probes that were passed in any of them."""
    passed: dict[tuple[str, str], bytes] = {}
    for path, module, probes in chain(*parts):
        passed[path, module] = _combine(passed.get((path, module), b""), probes)
    return sorted(Entered(*key, probes) for key, probes in passed.items())


class Interval:
    """Records which probes a target's processes pass between two calls to `take`.

    `take` resets the probes. When the block ends, all probes that were passed in it are written
    back to the folder for later readers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: dict[Path, bytes] = {}

    def __enter__(self) -> "Interval":
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        for file, probes in self._all.items():
            _write(file, _combine(_probes(file), probes))

    def take(self) -> list[Entered]:
        """Return the probes that were passed since the last call. The target must not be running
        during the call."""
        since = read_probes(self._folder)
        for file in _files(self._folder):
            probes = _probes(file)
            self._all[file] = _combine(self._all.get(file, b""), probes)
            _write(file, bytes(len(probes)))
        return since


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if "." not in file.name and _is_readable(file)]


def _is_readable(file: Path) -> bool:
    try:
        status = file.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST


def _probes(file: Path) -> bytes:
    return file.read_bytes().partition(b"/")[0]


def _write(file: Path, probes: bytes) -> None:
    """Change the file in place, since processes have it mapped into memory."""
    with file.open("r+b") as opened:
        opened.write(probes)


def _combine(some: bytes, others: bytes) -> bytes:
    """Combine two recordings of a module's probes: a probe counts as passed if it was passed in
    either of them.

    If the lengths differ, the module changed between the recordings; return the later one.
    """
    if len(some) != len(others):
        return others
    return bytes(map(operator.or_, some, others))


class _Finder:
    """Find modules with the other finders, and make their loaders count lines.

    Lines are counted in the modules of `packages`, and in modules in `folders` that are not
    installed.
    """

    def __init__(self) -> None:
        self.packages: set[str] = set()
        self.folders: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        named = any(name == package or name.startswith(f"{package}.") for package in self.packages)
        first = name.partition(".")[0]
        if not named and (not self.folders or first in NOT_COUNTED):
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                return counted(spec) if named or self._is_beside(spec) else spec
        return None

    def _is_beside(self, spec: ModuleSpec) -> bool:
        path = Path(os.path.abspath(spec.origin or os.devnull))
        return not any(part in INSTALLED for part in path.parts) and any(
            path.is_relative_to(folder) for folder in self.folders
        )


FINDER = _Finder()


def counted(spec: ModuleSpec) -> ModuleSpec:
    if VARIABLE in os.environ and type(spec.loader) is SourceFileLoader and spec.origin:
        spec.loader = _CountingLoader(spec.name, spec.origin)
    return spec


def count_packages(*packages: str) -> None:
    """Count the lines of these packages and modules, which must not have been imported yet."""
    FINDER.packages.update(packages)
    _begin()


def count_beside(module: str) -> None:
    """Count the lines of a module that has not been imported yet. Also count those of the modules
    in its package, in its folder and in the working directory."""
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return  # the import itself will report the error
    places = [*(spec.submodule_search_locations or ()), spec.origin] if spec else []
    beside = [str(Path(place).absolute().parent) for place in places if place]
    FINDER.folders.update([os.getcwd(), *beside])
    count_packages(top)


def _begin() -> None:
    if VARIABLE in os.environ and FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
