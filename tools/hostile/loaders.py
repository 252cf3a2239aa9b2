"""Every kind of file that schedproof reads, with an example and its loader."""

import datetime
import io
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from schedproof.gate.campaign.ledger import read_ledger
from schedproof.gate.campaign.report import report
from schedproof.gate.compare.baseline import read_baseline
from schedproof.gate.corpus.folder import Origin, add, entries
from schedproof.gate.explore.explorer import load as load_checkpoint
from schedproof.gate.explore.explorer import save_checkpoint
from schedproof.gate.files.loads import read_load, scenario_of_load
from schedproof.gate.files.project_file import read_project
from schedproof.gate.files.scenario_file import read_scenario, scenario_json, scenario_of
from schedproof.gate.judging.deviations import read_deviations
from schedproof.gate.judging.rule_choice import use_rules
from schedproof.gate.traces.recorder import record_target
from schedproof.gate.traces.trace_file import open_trace, read_trace
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.spyre.space import SOME_LENGTHS, Scope
from schedproof.spec.catalogue import load, read

from .mutations import corrupt

RULES = load("spyre")
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 64}
TWO = Scenario(
    system="spyre",
    revision="sound",
    config=full_config("spyre", "sound", SMALL),
    requests=(
        Request(id="r0", arrival=0, prompt=(("r0", 3),), max_tokens=4, output_len=2, abort_at=5),
        Request(id="r1", arrival=0, prompt=(("r0", 3), ("r1", 6)), max_tokens=4),
    ),
)
KNOWN = """[[known]]
rule = "SPY-R35"
scenario = "two.json"
reason = "later"
until = 2999-01-01

[[by_design]]
rule = "SPY-R4*"
reason = "as we like it"
"""
PROJECT = """[tool.schedproof]
target = "model"
system = "vllm"
revision = "documented"
profile = "quick"
corpus = "corpus"
deviations = "known.toml"
exclude = ["V1-R09", "ALL-*"]
"""
OURS = """from schedproof import OwnRule
RULES = [
    OwnRule(
        id="OUR-R01", title="two", statement="Two run.", needs=["running"], witness="Two run.",
        broken=lambda history, step: None, exercised=lambda history, step: len(step.running) == 2,
    )
]
"""
# Recorded loads, by format.
LOADS = {
    "mooncake": """{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 30, "input_length": 600, "output_length": 7, "hash_ids": [0, 2]}
""",
    "azure": """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,480,10
2023-11-16 18:17:04.0319600,31,8
""",
    "burstgpt": """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,Chat,472,18,490,Conversation log
5.5,Chat,87,3,90,API log
""",
}
FEW_RUNS = """
from schedproof.gate.cli.app import main
from schedproof.gate.judging.profiles import PROFILES, Profile
PROFILES["quick"] = Profile(4, 0, 0, 200)
main()
"""
EXPLORED = ExploreOptions("sound", Scope("two", "", 2, SOME_LENGTHS, (12, 20, 28), "alone"))
CHECKED = [rule for rule in RULES if rule.id == "SPY-R07"]


class Loader(NamedTuple):
    """A kind of file: the function that reads it, and a function of (path, bytes, number) that
    corrupts it."""

    read: Callable[[Path], Any]
    spoil: Callable[[Path, bytes, int], None]


def _spoil(path: Path, whole: bytes, seed: int) -> None:
    path.write_bytes(corrupt(whole, seed, path.suffix == ".gz"))


def _spoil_rules(path: Path, whole: bytes, seed: int) -> None:
    """Truncate a rules file, or append invalid code to it. Never change its own code, because
    that is executed."""
    rng = random.Random(seed)
    cut = whole[: rng.choice((len(whole), rng.randint(0, len(whole))))]
    path.write_bytes(
        cut + rng.choice((b"", b"(", b"\xff", b"\x00", b"\n1 / 0\n", b"\nRULES = 3\n"))
    )


def _trace(path: Path) -> None:
    with open_trace(str(path)) as source:
        for _ in read_trace(source):
            pass


def _baseline(path: Path) -> None:
    for _ in read_baseline(path)[1]:
        pass


def _ledger(path: Path) -> None:
    report(Console(file=io.StringIO()), read_ledger(path), path.parent / "out")


def _rules(path: Path) -> None:
    try:
        use_rules(path)
    finally:
        use_rules(None)


def _load(path: Path) -> None:
    """Read a recorded load whose file is named after its format, and the scenario that it
    becomes."""
    rows = read_load(path.stem, path, 1, 100, 512)
    scenario = scenario_of_load(rows, "load", ("vllm", "documented", {}), 20.0, 512)
    scenario_of(json.loads(scenario_json(scenario)), "the scenario of a load")


LOADERS: Mapping[str, Loader] = {
    "two.json": Loader(read_scenario, _spoil),
    "corpus/two.json": Loader(lambda path: entries(path.parent), _spoil),
    "known.toml": Loader(
        lambda path: read_deviations(path, "spyre", RULES, datetime.date(2026, 1, 1)), _spoil
    ),
    "pyproject.toml": Loader(lambda path: read_project(path.parent), _spoil),
    "trace.jsonl": Loader(_trace, _spoil),
    "trace.jsonl.gz": Loader(_trace, _spoil),
    "baseline.gz": Loader(_baseline, _spoil),
    "catalogue.toml": Loader(
        lambda path: read(path.read_bytes().decode("utf-8", "replace"), str(path)), _spoil
    ),
    "later.exploration": Loader(
        lambda path: load_checkpoint(path.parent, EXPLORED, CHECKED), _spoil
    ),
    "ledger.ndjson": Loader(_ledger, _spoil),
    "ours.py": Loader(_rules, _spoil_rules),
    **{f"{form}.load": Loader(_load, _spoil) for form in LOADS},
}


@cache
def good() -> Mapping[str, bytes]:
    """Return an example of each kind of file, by name."""
    with tempfile.TemporaryDirectory() as place:
        return _made(Path(place))


def _made(folder: Path) -> Mapping[str, bytes]:
    (folder / "two.json").write_text(scenario_json(TWO), encoding="utf-8")
    (folder / "known.toml").write_text(KNOWN, encoding="utf-8")
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (folder / "ours.py").write_text(OURS, encoding="utf-8")
    for form, text in LOADS.items():
        (folder / f"{form}.load").write_text(text, encoding="utf-8")
    shutil.copy(Path(__file__).parents[2] / "spec" / "generic.toml", folder / "catalogue.toml")
    add(folder / "corpus", TWO, Origin("SPY-R35")).rename(folder / "corpus" / "two.json")
    for name in ("trace.jsonl", "trace.jsonl.gz"):
        with record_target(ModelTarget(), folder / name) as target:
            replay(target, TWO, RULES)
    _ran(folder, "diff", "model", "--profile", "quick", "--save", "baseline.gz")
    small = ("--system", "llmservingsim", "--revision", "head")
    _ran(folder, "campaign", "--ledger", "ledger.ndjson", "--items", "4", *small)
    run = Exploration(EXPLORED, CHECKED)
    for _ in zip(range(3), run.search.run(), strict=False):
        pass
    save_checkpoint(folder / "later", run)
    [kept] = (folder / "later").iterdir()
    kept.rename(folder / "later.exploration")
    files = {name: (folder / name).read_bytes() for name in LOADERS if name != kept.name}
    return files | {"later.exploration": (folder / "later.exploration").read_bytes()}


def name_of_checkpoint(folder: Path) -> str:
    """Write a checkpoint of an exploration to the folder, and return the checkpoint's name."""
    save_checkpoint(folder, Exploration(EXPLORED, CHECKED))
    [kept] = folder.glob("*.exploration")
    return kept.name


def _ran(folder: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-c", FEW_RUNS, *words], cwd=folder, check=False, capture_output=True
    )
