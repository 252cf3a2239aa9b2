"""Small scenarios for tests of the corpus."""

from pathlib import Path
from typing import Any

from schedproof.gate.corpus import folder as corpus_folder
from schedproof.gate.corpus.folder import FoundOn, Origin
from schedproof.gate.corpus.replay import with_expectation
from schedproof.gate.files.disk import write
from schedproof.gate.files.scenario_file import scenario_json
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config

CONFIG = {"block_size": 4, "num_blocks": 16, "max_num_seqs": 2, "max_num_batched_tokens": 16}


def crowd(prompt: int = 5, requests: int = 3, **changes: Any) -> Scenario:
    """More sequences of nano-vLLM 0.2.0 than may run: it breaks NAN-R40 there."""
    revision = changes.pop("revision", "0.2.0")
    reported: dict[str, Any] = {
        "system": "nano_vllm",
        "revision": revision,
        "config": full_config("nano_vllm", revision, CONFIG),
        "requests": tuple(
            Request(id=f"r{n}", arrival=0, prompt=((f"r{n}", prompt),), max_tokens=4)
            for n in range(requests)
        ),
    }
    return Scenario(**(reported | changes))


def calm() -> Scenario:
    """Two sequences, which may run together: nothing breaks."""
    return crowd(requests=2)


def written(path: Path, scenario: Scenario) -> Path:
    """The scenario in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, scenario_json(scenario).encode())
    return path


def kept(
    folder: Path, scenario: Scenario, rule: str = "NAN-R40", shape: str = "", target: str = "model"
) -> Path:
    """The scenario in a corpus, found on `target`."""
    expected = scenario if scenario.expect else with_expectation(scenario, None)
    origin = Origin(rule, shape, FoundOn(target, "a model", "1"), "2026-01-31")
    folder.mkdir(parents=True, exist_ok=True)
    return corpus_folder.add(folder, expected, origin)
