"""How large is the code, and which imports break its layout rules?

Prints the size of the product, the tests and the tools, and every import that the layout forbids:

    make tool NAME=house

`tests/tools/test_house.py` asserts the rules:

- A layer imports only itself and lower layers; the same holds for the rooms (folders) of a layer.
- A file of the kernel (everything outside the systems' folders) imports no system.
- A system imports at most one other system, which its descriptor names.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
# The layers, lowest first. `schedproof/__init__.py` and `__main__.py` are above all of them.
LAYERS = ("spec", "model", "properties", "solver", "gate")
TOP = ("systems.py", "__init__.py", "__main__.py")
ROOMS = {
    "properties": ("history", "rules", "checking", "explanations", "search", "shrinking"),
    "gate": (
        *("files", "console", "processes", "targets", "corpus", "judging", "reports", "traces"),
        *("explore", "search", "web", "compare", "campaign", "matrix", "library"),
        *("cli", "plugin"),
    ),
}
SYSTEMS = tuple(
    sorted(
        path.stem
        for path in (ROOT / "spec").glob("*.toml")
        if (ROOT / "model" / path.stem).is_dir()
    )
)
MAX_LINES = 500

Graph = Mapping[str, set[str]]


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def product_files() -> list[Path]:
    return [ROOT / name for name in TOP] + [path for layer in LAYERS for path in sources(layer)]


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def imported(path: Path) -> set[str]:
    """Return the absolute names that a file imports. Names in this package begin with
    `schedproof`."""
    package = ("schedproof", *path.relative_to(ROOT).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def modules() -> dict[str, Path]:
    """Return the path of every file in the layers, by its dotted name below `schedproof`."""
    named = {}
    for layer in LAYERS:
        for path in sources(layer):
            parts = path.relative_to(ROOT).with_suffix("").parts
            named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports() -> dict[str, set[str]]:
    """Return the imports between modules of the layers, by importing module."""
    named = modules()
    graph: dict[str, set[str]] = {module: set() for module in named}
    for module, path in named.items():
        for name in imported(path):
            inner = name.removeprefix("schedproof.")
            target = inner if inner in named else inner.rpartition(".")[0]
            if name != inner and target in named and target != module:
                graph[module].add(target)
    return graph


def rank(module: str) -> tuple[int, int]:
    """Return the position of a module: its layer, and its room in that layer (-1 for the layer
    itself). All systems have the same position, above all rooms of their layer."""
    layer, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    rooms = ROOMS.get(layer, ())
    if rooms and room in SYSTEMS:
        return LAYERS.index(layer), len(rooms)
    return LAYERS.index(layer), rooms.index(room) if room in rooms else -1


def upward_imports(graph: Graph) -> list[tuple[str, str]]:
    """Return the imports (module, imported) from a lower to a higher room or layer."""
    return [
        (module, target)
        for module, targets in graph.items()
        for target in sorted(targets)
        if rank(target) > rank(module)
    ]


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that import each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in graph[module]:
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[-len(group) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return groups


def system_of(module: str) -> str | None:
    """Return the system of a module, or None for a module of the kernel."""
    return next((part for part in module.split(".") if part in SYSTEMS), None)


def system_imports(graph: Graph) -> Iterator[tuple[str, str, str]]:
    """Yield (module, imported module, its system) for each import of another system's module."""
    for module, targets in sorted(graph.items()):
        for target in sorted(targets):
            system = system_of(target)
            if system is not None and system != system_of(module):
                yield module, target, system


def kernel_leaks(graph: Graph) -> dict[str, set[str]]:
    leaks: dict[str, set[str]] = defaultdict(set)
    for module, _, system in system_imports(graph):
        if system_of(module) is None:
            leaks[module].add(system)
    return dict(leaks)


def between_systems(graph: Graph) -> dict[str, set[str]]:
    others: dict[str, set[str]] = defaultdict(set)
    for module, _, system in system_imports(graph):
        if own := system_of(module):
            others[own].add(system)
    return dict(others)


def one_importer(graph: Graph) -> list[str]:
    """Return the files that only one file imports, if that file is in the same folder."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        for target in targets:
            importers[target].add(module)
    named = modules()
    return [
        target
        for target, known in sorted(importers.items())
        if len(known) == 1
        and named[target].parent == named[next(iter(known))].parent
        and named[target].name != "__init__.py"
    ]


def loose_files() -> list[str]:
    """Return the files that lie directly in a layer that has rooms."""
    return [
        f"{layer}/{path.name}"
        for layer in ROOMS
        for path in sorted((ROOT / layer).glob("*.py"))
        if path.name != "__init__.py"
    ]


def main() -> None:
    graph = imports()
    files = product_files()
    sizes = {path: line_count(path) for path in files}
    for name, paths in {
        "product": files,
        **{f"  {layer}": sources(layer) for layer in LAYERS},
        "tests": sources("tests"),
        "tools": sources("tools"),
    }.items():
        print(f"{name + ':':<14}{sum(map(line_count, paths)):>7,} lines in {len(paths):,} files")
    longest = max(files, key=sizes.__getitem__)
    print(f"median file:   {median(sizes.values()):.0f} lines")
    print(f"longest file:  {sizes[longest]} lines, {longest.relative_to(ROOT)}")
    print(f"files with one importer, in their own folder: {len(one_importer(graph))}")
    print(f"loose files: {len(loose_files())}")
    print(f"import cycles: {len(circles(graph))}")
    print(f"imports of a higher layer or room: {len(upward_imports(graph))}")
    leaks = kernel_leaks(graph)
    print(f"kernel files that import a system: {len(leaks)}")
    for module, systems in leaks.items():
        print(f"  {module}: {', '.join(sorted(systems))}")
    others = between_systems(graph)
    print(f"systems that import another system: {len(others)}")
    for system, imported_systems in sorted(others.items()):
        print(f"  {system}: {', '.join(sorted(imported_systems))}")


if __name__ == "__main__":
    main()
