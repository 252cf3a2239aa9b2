"""Is a gate with known deviations green on a release, and red once one line of it is broken?

    python tests/bench/broken_lines.py known.toml [--only NAME] [--json FILE]

Takes sendnn-inference 2.1.2 as it is installed in the cache, holds it to the model of 2.1.2 with
the profile `ci` and a file of deviations, and then copies of it, in each of which one operator,
constant or statement of the scheduler is another. Some minutes of one core for each. Exit code 0
if the release itself is green and every copy is red.
"""

import argparse
import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.gate.published import parse
from schedproof.gate.releases import prepare

RELEASE = "sendnn-inference==2.1.2"
REVISION = "2.1.2"
PACKAGE = "sendnn_inference"
SCHEDULER = Path(PACKAGE, "v1", "core", "scheduler.py")
CLASS = "ChunkedPrefillSpyreScheduler"
OTHER: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.And: ast.Or,
    ast.Sub: ast.Add,
    ast.Add: ast.Sub,
}


class Break(NamedTuple):
    """The node of this class, counted from 0 within a method, that becomes another."""

    name: str
    method: str
    node: type
    number: int


FIRST, LAST = "_satisfies_first_chunk_constraints", "_satisfies_last_chunk_constraints"
VOLUME = "check_batch_tkv_limit_cp"
BREAKS = (
    Break("one request more than there are seats", FIRST, ast.Compare, 0),
    Break("a finished prefill stays ongoing", "update_from_output", ast.Compare, 2),
    Break("a prompt of one chunk is no first chunk", "update_from_output", ast.Compare, 0),
    Break("left padding is added to what is computed", "adjust_computed_tokens", ast.BinOp, 2),
    Break("prefills wait for a turn without a reason", "_has_scheduling_priority", ast.BoolOp, 0),
    Break(
        "a prompt of one whole chunk has no last chunk", "_satisfies_constraints", ast.Compare, 2
    ),
    Break("the newcomer needs two tokens more", LAST, ast.BinOp, 5),
    Break("a new prefill is not remembered", "schedule", ast.Constant, 9),
    Break("no block of slack for the newcomer", VOLUME, ast.AugAssign, 0),
    Break("no block of slack for the others", VOLUME, ast.AugAssign, 1),
    Break("the newcomer is not counted", VOLUME, ast.AugAssign, 2),
    Break("who has left is still counted", VOLUME, ast.AugAssign, 3),
)


def nodes(tree: ast.Module, method: str, kind: type) -> list[Any]:
    """The nodes of a class in a method, in the order of the text; of documentation none."""
    [scheduler] = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == CLASS]
    [found] = [
        one for one in scheduler.body if isinstance(one, ast.FunctionDef) and one.name == method
    ]
    body = [one for one in ast.walk(found) if isinstance(one, kind)]
    texts = (one for one in body if not isinstance(getattr(one, "value", None), str))
    return sorted(texts, key=lambda one: (one.lineno, one.col_offset))


def change(node: Any) -> None:
    """Make the node another one, in place."""
    if isinstance(node, ast.Compare):
        node.ops[0] = OTHER[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = OTHER[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.AugAssign):
        node.value = ast.Constant(0)
    elif isinstance(node, ast.Return):
        node.value = ast.UnaryOp(ast.Not(), node.value)


def broken(source: str, one: Break) -> tuple[str, str]:
    """The source with the break in it, and the line that is another."""
    tree = ast.parse(source)
    node = nodes(tree, one.method, one.node)[one.number]
    first, last = node.lineno, node.end_lineno
    change(node)
    text = ast.unparse(ast.fix_missing_locations(tree))
    return text, f"{one.method}, line {first}" + (f" to {last}" if last != first else "")


def judged(folder: Path, path: str, known: Path, more: list[str]) -> tuple[int, str, float]:
    """Exit code of a gate of the tree that is first on PYTHONPATH, the first finding, seconds."""
    release = parse(RELEASE)
    assert release is not None
    prepared = prepare(release, offline=True, report=lambda _: None)
    paths = os.pathsep.join(filter(None, [path, prepared.env.get("PYTHONPATH", "")]))
    env = prepared.env | {"PYTHONPATH": paths}
    words = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), *prepared.command]
    command = [sys.executable, "-m", "schedproof", "gate", "cmd:" + shlex.join(words)]
    command += ["--system", "spyre", "--revision", REVISION, "--deviations", str(known)]
    command += ["--json", str(folder / "verdict.json"), "--out", str(folder / "out"), *more]
    began = time.monotonic()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if ran.returncode not in (0, 1):
        return ran.returncode, ran.stderr.strip().splitlines()[-1], seconds
    found = json.loads((folder / "verdict.json").read_text())["findings"]
    said = f"{found[0]['rule']}: {found[0]['message']}" if found else "nothing"
    return ran.returncode, said, seconds


def main() -> None:
    """Judge the release, then each broken copy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("known", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    release = parse(RELEASE)
    assert release is not None
    prepared = prepare(release, report=print)
    tree = next(
        Path(path)
        for path in prepared.env["PYTHONPATH"].split(os.pathsep)
        if Path(path, PACKAGE).is_dir()
    )
    source = (tree / SCHEDULER).read_text()
    table: list[dict[str, Any]] = []
    for name, one in [("as it is", None), *((one.name, one) for one in BREAKS)]:
        if asked.only and name not in asked.only:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder, path, where = Path(temporary), "", ""
            if one is not None:
                copy = folder / "tree"
                shutil.copytree(tree, copy)
                text, where = broken(source, one)
                (copy / SCHEDULER).write_text(text)
                path = str(copy)
            more = ["--max-failures", "1"] if one else []
            code, said, seconds = judged(folder, path, asked.known.resolve(), more)
        right = code == (1 if one else 0)
        table.append({"name": name, "where": where, "exit": code, "said": said, "seconds": seconds})
        print(
            f"{'ok' if right else 'WRONG':<6}{seconds:6.0f} s  {name} ({where}): {said}", flush=True
        )
    if asked.json:
        asked.json.write_text(json.dumps(table, indent=2) + "\n")
    sys.exit(any(one["exit"] != (one["name"] != "as it is") for one in table))


if __name__ == "__main__":
    main()
