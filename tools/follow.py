"""Which files must you open to follow a rule, and how many files does a gate of that rule load?

Prints each place that names the rule, from its sentence in a document to its proof. For each place,
it names the enclosing function or the planted fault. Then it runs a quick gate of that rule on the
model. It prints how many files of the product the gate imports, and in how many of them a function
runs (in the main process):

    make tool NAME=follow OPTIONS=SPY-R07

Some places only mention the rule. `docs/reference/documents.md` leads from a sentence of a document
to its rule.
"""

import ast
import contextlib
import os
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from types import FrameType

from .house import LAYERS, ROOT

PLACES = {
    "sentence": ("spec", "*.toml"),
    "model": ("model", "*.py"),
    "predicate": ("properties", "*.py"),
    "mutant": ("tests/mutants", "*"),
    "proof": ("solver", "*.py"),
}


def files_naming(rule: str) -> dict[str, list[str]]:
    """Return the files that contain the rule's id, grouped by what they do for the rule."""
    named = re.compile(rf"\b{re.escape(rule)}\b")
    return {
        what: [
            str(path.relative_to(ROOT))
            for path in sorted((ROOT / folder).rglob(pattern))
            if path.suffix in (".py", ".toml") and named.search(path.read_text(encoding="utf-8"))
        ]
        for what, (folder, pattern) in PLACES.items()
    }


def places_naming(rule: str, path: Path) -> list[tuple[int, str]]:
    """Return each line of a file that contains the rule's id, with the name of what encloses it.

    In a Python file, this is the function or class, or "" at top level. In a file of planted
    faults, it is the description of the fault.
    """
    named = re.compile(rf"\b{re.escape(rule)}\b")
    text = path.read_text(encoding="utf-8")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if named.search(line)]
    around = _enclosing(text) if path.suffix == ".py" else _faults(text)
    return [(number, around.get(number, "")) for number in lines]


def _enclosing(text: str) -> dict[int, str]:
    """Return the innermost function or class of each line in a module."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = dict[int, str]()
    # Parents come before their children, so the name written last is the innermost.
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, defined):
            names |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), node.name)
    return names


def _faults(text: str) -> dict[int, str]:
    """Return, for each line, the description of its planted fault."""
    does, inside = dict[int, str](), ""
    for number, line in enumerate(text.splitlines(), 1):
        if line == "[[fault]]":
            inside = ""
        elif line.startswith("does = "):
            inside = tomllib.loads(line)["does"]
        does[number] = inside
    return does


def gate(rule: str) -> tuple[int, int]:
    """Return how many files of the product a quick gate of the rule imports, and in how many of
    them a function runs."""
    from schedproof.gate.cli import app

    entered = set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        words = ["gate", "model", "--rule", rule, "--profile", "quick", "--out", folder]
        sys.setprofile(note)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            app.run(words=words)
        sys.setprofile(None)
    loaded = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]}
    ours = tuple(str(ROOT / layer) + os.sep for layer in LAYERS)
    return sum(f.startswith(ours) for f in loaded), sum(f.startswith(ours) for f in entered)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("name one rule: make tool NAME=follow OPTIONS=SPY-R07")
    rule = sys.argv[1]
    found = files_naming(rule)
    if not found["sentence"]:
        raise SystemExit(f"no rule {rule}; `schedproof rules --system SYSTEM` lists them")
    print(f"{rule}: {sum(map(len, found.values()))} files")
    for what, paths in found.items():
        print(f"  {what}:" if paths else f"  {what}: none")
        for path in paths:
            for number, inside in places_naming(rule, ROOT / path):
                print(f"    {path}:{number}" + (f"  {inside}" if inside else ""))
    imported, entered = gate(rule)
    print(f"a quick gate imports {imported} files of the product, and enters {entered}")


if __name__ == "__main__":
    main()
