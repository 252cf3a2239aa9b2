"""The layout as data, and its figures: `python tests/house.py` (or `make house`) prints them.

A room imports only itself and rooms listed before it.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# From the ground to the roof. `schedproof/__init__.py` and `__main__.py` stand above all of them.
LAYERS = ("spec", "model", "properties", "solver", "gate")
ROOMS = {
    "properties": (*("history", "predicates", "checking", "explanations", "search", "shrinking"),),
    "gate": (
        *("files", "console", "processes", "targets", "corpus", "judging", "reports", "traces"),
        *(
            "explore",
            "search",
            "web",
            "compare",
            "campaign",
            "matrix",
            "library",
            "starting",
            "cli",
            "plugin",
        ),
    ),
}
MAX_LINES = 349


def sources(layer: str) -> list[Path]:
    """The Python files of a layer."""
    return sorted((ROOT / layer).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Absolute names of what a file imports; names of this package begin with `schedproof.`."""
    package = ("schedproof", *path.relative_to(ROOT).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def modules() -> dict[str, Path]:
    """Every file of the product by its dotted name below `schedproof`."""
    named = {}
    for layer in LAYERS:
        for path in sources(layer):
            parts = path.relative_to(ROOT).with_suffix("").parts
            named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imports() -> dict[str, set[str]]:
    """By module, the modules of the product that it imports."""
    named = modules()
    graph: dict[str, set[str]] = {}
    for module, path in named.items():
        graph[module] = set()
        for name in imported(path):
            inner = name.removeprefix("schedproof.")
            target = inner if inner in named else inner.rpartition(".")[0]
            if name != inner and target in named and target != module:
                graph[module].add(target)
    return graph


def rank(module: str) -> tuple[int, int]:
    """Where a module stands: its layer, and its room in it (-1: the layer itself)."""
    layer, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    rooms = ROOMS.get(layer, ())
    return LAYERS.index(layer), rooms.index(room) if room in rooms else -1


def upward_imports(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """The imports of a room or layer that stands above the importing one."""
    return [
        (module, target)
        for module, targets in graph.items()
        for target in sorted(targets)
        if rank(target) > rank(module)
    ]


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

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
                found.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def loose_files() -> list[str]:
    """Files of `gate/` and `properties/` that lie in no room."""
    return [
        f"{layer}/{path.name}"
        for layer in ROOMS
        for path in sorted((ROOT / layer).glob("*.py"))
        if path.name != "__init__.py"
    ]


def lengths() -> Iterator[tuple[int, str]]:
    """Lines and path of every source file, tests and benchmarks included."""
    for layer in (*LAYERS, "tests", "benchmarks", "examples", "docs"):
        for path in sources(layer):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            yield lines, str(path.relative_to(ROOT))


def main() -> None:
    """Print the figures."""
    graph = imports()
    product = [(lines, path) for lines, path in lengths() if path.split("/")[0] in LAYERS]
    print(f"source files: {len(product)}, lines: {sum(lines for lines, _ in product)}")
    print(f"loose files in {' and '.join(ROOMS)}: {len(loose_files())}")
    print(f"circles of files: {len(circles(graph))}")
    print(f"imports upward: {len(upward_imports(graph))}")
    longest, path = max(product)
    print(f"longest source file: {longest} lines, {path}")
    longest, path = max(row for row in lengths() if row not in product)
    print(f"longest file beside it: {longest} lines, {path}")


if __name__ == "__main__":
    main()
