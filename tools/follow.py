"""Which files must you open to follow a rule, and how many does a gate of it load?

Prints the files that name the rule, from its sentence to its proof; then how many files of the
product a quick gate of that rule on the model imports, and in how many of them a function runs (in
the main process):

    make tool NAME=follow OPTIONS=SPY-R07
"""

import contextlib
import os
import re
import sys
import tempfile
from types import FrameType

from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

from .house import LAYERS, ROOT

PLACES = {
    "sentence": ("spec", "*.toml"),
    "model": ("model", "*.py"),
    "predicate": ("properties", "*.py"),
    "mutant": ("tests/mutants", "*"),
    "proof": ("solver", "*.py"),
}


def files_naming(rule: str) -> dict[str, list[str]]:
    """Return, by what they are of the rule, the files whose text has its id."""
    named = re.compile(rf"\b{re.escape(rule)}\b")
    return {
        what: [
            str(path.relative_to(ROOT))
            for path in sorted((ROOT / folder).rglob(pattern))
            if path.suffix in (".py", ".toml") and named.search(path.read_text(encoding="utf-8"))
        ]
        for what, (folder, pattern) in PLACES.items()
    }


def gate(rule: str) -> tuple[int, int]:
    """Return how many files of the product a quick gate of the rule imports, and enters."""
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
    rules = {rule.id for system in SYSTEMS for rule in load(system)}
    if len(sys.argv) != 2 or (rule := sys.argv[1]) not in rules:
        sys.exit(f"RULE: {' '.join(sys.argv[1:]) or 'missing'}; valid: a rule, such as SPY-R07")
    found = files_naming(rule)
    print(f"{rule}: {sum(map(len, found.values()))} files")
    for what, paths in found.items():
        print(f"  {what}: {', '.join(paths) or 'none'}")
    imported, entered = gate(rule)
    print(f"a quick gate imports {imported} files of the product, and enters {entered}")


if __name__ == "__main__":
    main()
