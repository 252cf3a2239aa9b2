"""The built-in scenarios: published counterexamples at production scale, and the seed corpus, a few
short runs that exercise every rule (`tools/seeds.py`)."""

import difflib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ...model.config import MOST
from ...model.scenario import Scenario
from ...spec.systems import SYSTEMS
from ..files.scenario_file import FileError, read_scenario
from ..targets.scales import scales_of


def builtin_scenarios(system: str) -> dict[str, Scenario]:
    return _scenarios(resources.files("schedproof.gate.corpus") / "builtin" / system)


def seed_corpus(system: str, scale: str) -> dict[str, Scenario]:
    return _scenarios(
        resources.files("schedproof.gate.corpus") / "builtin" / system / "seeds", f"{scale}-"
    )


def every_builtin() -> dict[str, Scenario]:
    return {
        name.removesuffix(".json"): scenario
        for system in SYSTEMS
        for name, scenario in builtin_scenarios(system).items()
    }


def scenario_named(name: str) -> Scenario:
    """Return the scenario in a file, or the built-in one with this name. A name that looks like a
    path is always a path. Raise FileError if there is neither, or if the file is not a scenario."""
    path = Path(name)
    if "\0" in name or path.exists() or path.is_symlink() or path.name != name:
        return read_scenario(path)
    scenarios = every_builtin()
    if name.removesuffix(".json") in scenarios:
        return scenarios[name.removesuffix(".json")]
    if name.endswith(".json"):
        return read_scenario(path)
    close = difflib.get_close_matches(name, scenarios, 3)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    raise FileError(
        f"{name}: no file and no built-in scenario; {meant}"
        "`schedproof corpus list --builtin` lists the built-in ones"
    )


def by_length(system: str) -> dict[str, Scenario]:
    """Return the built-in scenarios, shortest first, so that a failure shows in a short run."""
    return dict(sorted(builtin_scenarios(system).items(), key=lambda item: longest(item[1])))


def longest(scenario: Scenario) -> int:
    """Return an upper bound on the steps of a replay in which no request waits for space."""
    key = scales_of(scenario.system).chunk_key
    chunk = int(scenario.config[key]) if key else MOST
    work = 0
    for request in scenario.requests:
        whole = 2 * -(-request.prompt_len // chunk) + request.tokens_to_emit
        stays = (
            whole if request.abort_at is None else max(request.abort_at - request.arrival, 0) + 1
        )
        work += min(whole, stays)
    return max(request.arrival for request in scenario.requests) + work


def _scenarios(folder: Traversable, begin: str = "") -> dict[str, Scenario]:
    if not folder.is_dir():
        return {}
    files = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    scenarios = {}
    for name in sorted(name for name in files if name.startswith(begin)):
        with resources.as_file(files[name]) as path:
            scenarios[name] = read_scenario(Path(path))
    return scenarios
