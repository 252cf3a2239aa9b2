"""Which few short runs of each system exercise every rule?

Writes the seed corpus (`gate/corpus/builtin/*/seeds`), with which every gate begins. The candidates
are runs of the search on the model of each revision; planted faults are not used. From the
candidates, the tool greedily picks a small set that exercises each rule `TIMES` times, if any run
exercises it at all. Run it after adding a rule; it takes two minutes on one core. With another
release of Hypothesis it may write other files, which are just as good:

    make tool NAME=seeds
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from schedproof.gate.corpus import folder
from schedproof.gate.corpus.replay import with_expectation
from schedproof.gate.files.scenario_file import scenario_json
from schedproof.gate.targets.scales import scales_of
from schedproof.model.scenario import Scenario
from schedproof.model.systems import full_config, revisions_of
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Hooks, Search, SearchOptions
from schedproof.spec.catalogue import load

# The scale for the models, and the first further scale, for releases that refuse the former.
SCALES = {
    "spyre": ("small", "short"),
    "vllm": ("small",),
    "nano_vllm": ("small", "tight"),
    "llmservingsim": ("small",),
    "generic": ("small",),
}
TIMES = 2
LONGEST = {"small": 60, "short": 120, "tight": 120}  # in steps, the longest run that is picked
RUNS = 100  # runs of each search
# The number of searches per revision.
SEARCHES = {"spyre": 4, "vllm": 16, "nano_vllm": 4, "llmservingsim": 4, "generic": 8}


class Candidate(NamedTuple):
    """A run in which all rules hold, and the rules that it exercises."""

    scenario: Scenario
    exercised: frozenset[str]


def sampled(system: str, scale: str) -> Iterator[Scenario]:
    """Yield runs of the search. Leave out keys with their default values, so that revisions
    without these keys accept the scenarios too."""
    models_only = (system, scale) == ("spyre", "small")  # all others must run on every release
    avoid = frozenset[str]() if models_only else frozenset(scales_of(system).kinds)
    for revision, seed in product(revisions_of(system), range(SEARCHES[system])):
        usual = full_config(system, revision, {})
        runs: list[Scenario] = []
        search = Search(
            SearchOptions(ModelTarget(), system, revision, load(system), scale, avoid=avoid),
            Hooks(ended=runs.append),
        )
        run_search(search, RUNS, seed, 0)
        for scenario in runs:
            given = scenario.config.items()
            config = {key: value for key, value in given if value != usual.get(key, ...)}
            origin = {"engine": "hypothesis", "seed": seed}
            yield replace(scenario, config=config, origin=origin)


def candidates(system: str, scale: str) -> Iterator[Candidate]:
    """Yield the runs that are short and break no rule."""
    for scenario in sampled(system, scale):
        outcome = replay(ModelTarget(), scenario, load(system))
        holds = outcome.finished and not outcome.broken and not outcome.session.rejected
        if holds and outcome.steps <= LONGEST[scale]:
            yield Candidate(scenario, frozenset(outcome.exercised))


def pick_few(candidates: list[Candidate]) -> Iterator[Candidate]:
    """Yield runs one by one: each time, the run that exercises the largest number of rules that
    have not been exercised often enough yet."""
    seen = Counter[str]()
    while candidates:
        best = max(
            candidates,
            key=lambda candidate: sum(seen[rule] < TIMES for rule in candidate.exercised),
        )
        if all(seen[rule] >= TIMES for rule in best.exercised):
            return
        seen.update(best.exercised)
        candidates.remove(best)
        yield best


def write(system: str, scale: str) -> None:
    """Replace the seed corpus of a scale."""
    seeds = Path(folder.__file__).parent / "builtin" / system / "seeds"
    seeds.mkdir(parents=True, exist_ok=True)
    for old in seeds.glob(f"{scale}-*.json"):
        old.unlink()
    chosen = list(pick_few(list(candidates(system, scale))))
    for number, candidate in enumerate(chosen, 1):
        name = f"{scale}-{number:02}"
        note = f"exercised: {', '.join(sorted(candidate.exercised))}"
        origin = {**(candidate.scenario.origin or {}), "note": note}
        named = with_expectation(replace(candidate.scenario, name=name, origin=origin), None)
        (seeds / f"{name}.json").write_text(scenario_json(named), encoding="utf-8")
    rules = frozenset[str]().union(*(candidate.exercised for candidate in chosen))
    checked = {rule.id for rule in load(system) if rule.checked}
    print(f"{system}, {scale}: {len(chosen)} runs, {len(rules)} of {len(checked)} rules exercised,")
    print("  never:", ", ".join(sorted(checked - rules)))


if __name__ == "__main__":
    for system, scales in SCALES.items():
        for scale in scales:
            write(system, scale)
