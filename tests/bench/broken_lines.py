"""Is a gate with known deviations green on a release, and red once one line of it is broken?

    python tests/bench/broken_lines.py sendnn-inference==2.1.2 known.toml
    python tests/bench/broken_lines.py nano-vllm known.toml --path CHECKOUT

Gates the release as it is installed, with the profile `ci` and a file of deviations, and then
copies of it, in each of which one operator, constant or statement of the scheduler is another.
Half a minute of one core for each copy of nano-vLLM, some minutes of sendnn-inference. Exit code 0
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.gate.targets.releases import prepare
from schedproof.gate.targets.supported_releases import parse_release

OTHER: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
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


class Suite(NamedTuple):
    """A release: the files of its scheduler in what is installed, and what is broken in each."""

    system: str
    revision: str
    package: str
    breaks: dict[str, tuple[Break, ...]]


FIRST, LAST = "_satisfies_first_chunk_constraints", "_satisfies_last_chunk_constraints"
VOLUME, TURN = "check_batch_tkv_limit_cp", "_has_scheduling_priority"
SUITES = {
    "sendnn-inference==2.1.2": Suite(
        "spyre",
        "2.1.2",
        "sendnn_inference",
        {
            "v1/core/scheduler.py ChunkedPrefillSpyreScheduler": (
                Break("one request more than there are slots", FIRST, ast.Compare, 0),
                Break("a finished prefill stays ongoing", "update_from_output", ast.Compare, 2),
                Break("one chunk is no first chunk", "update_from_output", ast.Compare, 0),
                Break("left padding counts as computed", "adjust_computed_tokens", ast.BinOp, 2),
                Break("a prefill waits for no reason", TURN, ast.BoolOp, 0),
                Break("a whole chunk is not the last", "_satisfies_constraints", ast.Compare, 2),
                Break("the newcomer needs two tokens more", LAST, ast.BinOp, 5),
                Break("a new prefill is not remembered", "schedule", ast.Constant, 9),
                Break("no block of slack for the newcomer", VOLUME, ast.AugAssign, 0),
                Break("no block of slack for the others", VOLUME, ast.AugAssign, 1),
                Break("the newcomer is not counted", VOLUME, ast.AugAssign, 2),
            )
        },
    ),
    "nano-vllm": Suite(
        "nano_vllm",
        "0.2.0",
        "nanovllm",
        {
            "engine/scheduler.py Scheduler": (
                Break("one sequence more in a prefill step", "schedule", ast.Compare, 0),
                Break("a request that does not fit is cut", "schedule", ast.BoolOp, 1),
                Break("the budget is not used up", "schedule", ast.AugAssign, 0),
                Break("one sequence more in a decode step", "schedule", ast.Compare, 5),
                Break("a cut prompt gets a token", "postprocess", ast.Compare, 0),
                Break("one token beyond max_tokens", "postprocess", ast.Compare, 2),
            ),
            "engine/block_manager.py BlockManager": (
                Break("the last block may be a hit", "can_allocate", ast.BinOp, 0),
                Break("shared blocks are counted twice", "can_allocate", ast.AugAssign, 1),
                Break("one block is always left", "can_allocate", ast.Compare, 3),
                Break("who shares a block is not counted", "allocate", ast.AugAssign, 0),
                Break("a block too early or too late", "can_append", ast.Compare, 1),
                Break("a new block a token later", "may_append", ast.Constant, 0),
            ),
        },
    ),
}


def nodes(tree: ast.Module, cls: str, method: str, kind: type) -> list[Any]:
    """The nodes of a class in a method, in the order of the text; of documentation none."""
    [holder] = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == cls]
    [found] = [
        one for one in holder.body if isinstance(one, ast.FunctionDef) and one.name == method
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


def broken(source: str, cls: str, one: Break) -> tuple[str, str]:
    """The source with the break in it, and the line that is another."""
    tree = ast.parse(source)
    node = nodes(tree, cls, one.method, one.node)[one.number]
    line = node.lineno
    change(node)
    return ast.unparse(ast.fix_missing_locations(tree)), f"{one.method}, line {line}"


def installed(name: str, checkout: Path | None) -> Path:
    """The folder that holds the package."""
    if checkout is not None:
        return checkout
    release = parse_release(name)
    assert release is not None
    paths = prepare(release, report=print).env["PYTHONPATH"].split(os.pathsep)
    return next(Path(path) for path in paths if Path(path, SUITES[name].package).is_dir())


def target(name: str, tree: Path, checkout: Path | None) -> list[str]:
    """The words with which `gate` runs the package in `tree`."""
    if checkout is not None:
        return [name, "--path", str(tree)]
    release = parse_release(name)
    assert release is not None
    prepared = prepare(release, offline=True, report=lambda _: None)
    paths = os.pathsep.join([str(tree), prepared.env["PYTHONPATH"]])
    env = prepared.env | {"PYTHONPATH": paths}
    words = ["env", "-i", *(f"{key}={value}" for key, value in env.items()), *prepared.command]
    suite = SUITES[name]
    return ["cmd:" + shlex.join(words), "--system", suite.system, "--revision", suite.revision]


def judged(words: list[str], known: Path, folder: Path) -> tuple[int, str, float]:
    """Exit code of a gate, the first finding, seconds."""
    command = [sys.executable, "-m", "schedproof", "gate", *words, "--deviations", str(known)]
    command += ["--json", str(folder / "verdict.json"), "--out", str(folder / "out")]
    began = time.monotonic()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if ran.returncode not in (0, 1):
        return ran.returncode, ran.stderr.strip().splitlines()[-1], seconds
    verdict = json.loads((folder / "verdict.json").read_text())
    found = [f"{one['rule']}: {one['message']}" for one in verdict["findings"]]
    found += [f"{one['rule']} {one['state']}" for one in verdict["deviations"]]
    return ran.returncode, found[0] if found else "nothing", seconds


def copies(name: str, tree: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Each broken copy of the package, and what is broken in it."""
    package = SUITES[name].package
    for place, breaks in SUITES[name].breaks.items():
        file, cls = place.split()
        source = (tree / package / file).read_text()
        for one in breaks:
            copy = folder / f"{len(list(folder.iterdir()))}"
            shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".git", "assets"))
            text, where = broken(source, cls, one)
            (copy / package / file).write_text(text)
            yield f"{one.name} ({where})", copy


def main() -> None:
    """Judge the release, then each broken copy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", choices=SUITES)
    parser.add_argument("known", type=Path)
    parser.add_argument("--path", type=Path, help="the checkout of nano-vllm")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    table: list[dict[str, Any]] = []

    def judge(what: str, tree: Path, expected: int, *more: str) -> None:
        words = [*target(asked.release, tree, asked.path), *more]
        with tempfile.TemporaryDirectory() as folder:
            code, said, seconds = judged(words, asked.known.resolve(), Path(folder))
        table.append({"what": what, "exit": code, "right": code == expected, "said": said})
        word = "ok" if code == expected else "WRONG"
        print(f"{word:<6}{seconds:6.0f} s  {what}: {said}", flush=True)

    tree = installed(asked.release, asked.path)
    judge("as it is", tree, 0)
    with tempfile.TemporaryDirectory() as folder:
        for what, copy in copies(asked.release, tree, Path(folder)):
            judge(what, copy, 1, "--max-failures", "1")
    if asked.json:
        asked.json.write_text(json.dumps(table, indent=2) + "\n")
    sys.exit(not all(one["right"] for one in table))


if __name__ == "__main__":
    main()
