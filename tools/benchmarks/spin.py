"""Check `spyre.pml` with Spin, and compare the Python model with it.

A counterexample found by Spin is turned into a scenario and replayed on the Python model. Needs
spin (6.5) and gcc.
"""

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.model.observation import Step
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import Outcome, replay
from schedproof.spec.catalogue import load, select

MODEL = Path(__file__).with_name("spyre.pml")
MISSING = [name for name in ("spin", "gcc") if shutil.which(name) is None]

# Seconds and megabytes for 3.7 million states (five requests with LATE) on one of two cores:
# - with these options: 5.6 s, 234 MB;
# - without NOREDUCE: 8.4 s, 263 MB (the model has one process, so there is nothing to reduce);
# - with -O3 -march=native: 6.3 s, 234 MB, and it takes twice as long to compile;
# - with COLLAPSE: 10.0 s, 432 MB (all variables are global, so no part of a state is shared);
# - with MA=40: 15.1 s, 1 MB, but time is the tighter limit.
# Storing hashes or bits instead of states would prove nothing.
PAN = ("-O2", "-DSAFETY", "-DNOREDUCE", "-w")

FORMULAS = {
    "FORMULA_DOCUMENT_REALIGNED": "document_realigned",
    "FORMULA_2_1_2": "2.1.2",
    "FORMULA_COMMON_BASE": "common_base",
}
REVISIONS: dict[str, dict[str, int]] = {
    "documented": {"FORMULA_DOCUMENT_REALIGNED": 1},
    "2.1.2": {"FORMULA_2_1_2": 1, "STALE_TKV": 1},
}
RULES = {f"CHECK_{name}": f"SPY-{name}" for name in ("R07", "R09", "R30", "R32", "R35", "R36")}
SIZES = {
    "BLOCK": "block_size",
    "CHUNK": "chunk_size",
    "SLOTS": "max_num_seqs",
    "MAX_MODEL_LEN": "max_model_len",
}
OTHERS = {
    *("LIMIT", "LIMIT_FROM", "LIMIT_TO", "REQUESTS", "MAX_PROMPT", "MAX_TOKENS"),
    *("STALE_TKV", "ABORTS", "NO_EOS", "LATE", "FOREVER"),
}
SMALL = {
    **{"BLOCK": 2, "CHUNK": 4, "SLOTS": 3, "MAX_MODEL_LEN": 16},
    **{"MAX_PROMPT": 9, "MAX_TOKENS": 6},
}

Macros = Mapping[str, int]


class Verdict(NamedTuple):
    """Spin's verdict on one rule.

    Attributes:
        holds: whether the rule holds; None if the search was cut short and found nothing.
        complete: whether every reachable state was visited.
        transitions: as pan prints them, rounded above 10^8.
        seconds_translate, seconds_compile, seconds_run: wall-clock seconds.
        trail: what the model printed on the way to the error, if there is an error.
    """

    holds: bool | None
    states: int
    transitions: int
    seconds_translate: float
    seconds_compile: float
    seconds_run: float
    memory_mb: float
    depth: int
    complete: bool
    trail: tuple[str, ...] = ()


class SpinAnswer(NamedTuple):
    """The figures that pan printed at the end of its search. They have the names of `Verdict`."""

    holds: bool | None
    complete: bool
    states: int
    transitions: int
    depth: int
    memory_mb: float


class SpinStep(NamedTuple):
    """A step of Spin's model, in the terms of the step observation."""

    kind: str
    scheduled: dict[str, int]
    left_pad_blocks: dict[str, int]
    tkv: int
    finished: frozenset[str]
    computed: dict[str, int]


NOTHING = SpinStep("", {}, {}, 0, frozenset(), {})


class SpinRun(NamedTuple):
    """A run of Spin's model: the limit that it chose, the requests that arrived, and the
    completed steps."""

    limit: int
    requests: tuple[Request, ...]
    steps: tuple[SpinStep, ...]


class Replayed(NamedTuple):
    """A counterexample found by Spin, replayed on the Python model."""

    scenario: Scenario
    outcome: Outcome
    confirmed: bool


def verdict(
    macros: Macros, *, memory_mb: int = 6000, seconds: float = 180.0, depth: int = 1_000_000
) -> Verdict:
    """Check with Spin the rule that `macros` select.

    `depth` is the largest number of transitions in a path; each transition costs 48 bytes. A search
    that `seconds` or `memory_mb` cuts short never counts as passed.

    Raises:
        ValueError: the macros do not select exactly one rule and one formula, or contain an unknown
            macro.
        RuntimeError: Spin or gcc cannot translate the model.
    """
    check(macros)
    rule_to_check(macros)
    with tempfile.TemporaryDirectory() as folder:
        source = write(macros, folder)
        began = time.monotonic()
        finish(["spin", "-a", source], folder)
        translated = time.monotonic()
        finish(["gcc", *PAN, f"-DMEMLIM={memory_mb}", "-o", "pan", "pan.c"], folder)
        compiled = time.monotonic()
        printed, ended = search(["./pan", f"-m{depth}"], folder, seconds)
        ran = time.monotonic()
        found = read_search(printed, ended)
        trail: tuple[str, ...] = ()
        if found.holds is False:
            trail = tuple(events(finish(["./pan", "-r"], folder)))
    return Verdict(
        found.holds,
        found.states,
        found.transitions,
        translated - began,
        compiled - translated,
        ran - compiled,
        found.memory_mb,
        found.depth,
        found.complete,
        trail,
    )


def check(macros: Macros) -> None:
    """Raise ValueError if a macro is unknown or the macros do not select exactly one formula."""
    unknown = sorted(macros.keys() - SIZES.keys() - OTHERS - RULES.keys() - FORMULAS.keys())
    if unknown:
        raise ValueError(f"unknown macro {unknown[0]}")
    if len(macros.keys() & FORMULAS.keys()) != 1:
        raise ValueError(f"exactly one of {', '.join(FORMULAS)}")


def rule_to_check(macros: Macros) -> str:
    """Return the rule to check. There must be exactly one: a search without assertions would
    look like a proof."""
    matching = [rule for name, rule in RULES.items() if name in macros]
    if len(matching) != 1:
        raise ValueError(f"exactly one of {', '.join(RULES)}")
    return matching[0]


def write(macros: Macros, folder: str, first: str = "") -> str:
    """Write the model with its macros to a file in `folder`. Spin's own option -D would pass the
    macros to a shell unquoted."""
    defined = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    Path(folder, "asked.pml").write_text(f'{first}{defined}#include "{MODEL}"\n', encoding="utf-8")
    return "asked.pml"


def finish(command: Sequence[str], folder: str) -> str:
    """Run a command and return its output.

    Raises:
        RuntimeError: the command failed.
    """
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode or re.search(r"^(spin|pan): .*[Ee]rror", done.stdout, re.MULTILINE):
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}")
    return done.stdout


def search(command: Sequence[str], folder: str, seconds: float) -> tuple[str, bool]:
    """Return the output of pan, and whether it ended by itself. After `seconds` it is
    interrupted, and prints how far it has got."""
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=both, text=True) as process:
        try:
            return process.communicate(timeout=seconds)[0], process.returncode == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=20)[0], False
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0], False


def read_search(printed: str, ended: bool) -> SpinAnswer:
    """Read the output of pan. A rule holds only if the output says in every part that the search
    was complete."""
    broken = re.search(r"^pan:\d+: assertion violated", printed, re.MULTILINE) is not None
    complete = (
        ended
        and re.search(r"^Full statespace search for:$", printed, re.MULTILINE) is not None
        and re.search(r"^\s+assertion violations\s+\+$", printed, re.MULTILINE) is not None
        and re.search(r"errors: 0$", printed, re.MULTILINE) is not None
        and not re.search(
            r"not completed|too small|MEMLIM|out of memory|Interrupted|^pan:\d+:|^error",
            printed,
            re.MULTILINE,
        )
    )
    return SpinAnswer(
        False if broken else True if complete else None,
        complete,
        int(figure(r"([\d.e+]+) states, stored", printed)),
        int(figure(r"([\d.e+]+) transitions \(", printed)),
        int(figure(r"depth reached (\d+)", printed)),
        figure(r"([\d.]+)\ttotal actual memory usage", printed),
    )


def figure(pattern: str, printed: str) -> float:
    """Return the number that the pattern's group matches. Return 0 if pan did not get far enough
    to print it."""
    found = re.search(pattern, printed)
    return float(found[1]) if found else 0.0


def events(printed: str) -> Iterator[str]:
    """Yield the lines that the model printed for this tool, without their prefix."""
    for line in printed.splitlines():
        if line.startswith("@ "):
            yield line[2:]


def simulate(macros: Macros, seed: int) -> list[str]:
    """Return the events of a random run in which all prompts and tokens are equally likely.

    The model itself counts up and stops at random, so half of all prompts would have a single
    token. Spin's random numbers need a seed above 0.
    """
    check(macros)
    most = max(macros["MAX_PROMPT"], macros["MAX_TOKENS"], macros["REQUESTS"])
    options = " ".join(f":: least + {n} <= most -> what = least + {n}" for n in range(most))
    with tempfile.TemporaryDirectory() as folder:
        source = write(macros, folder, f"#define CHOOSE(what, least, most) if {options} fi\n")
        return list(events(finish(["spin", "-T", "-u100000", f"-n{seed}", source], folder)))


def read_run(lines: Sequence[str]) -> SpinRun:
    """Read the requests and steps of a run of the model. A step that broke the rule was not
    completed, so leave it out."""
    limit = 0
    known: dict[str, dict[str, Any]] = {}
    steps: list[SpinStep] = []
    step = NOTHING
    for line in lines:
        what, *words = line.split()
        values = [int(word) for word in words if word.lstrip("-").isdigit()]
        name = f"r{values[0]}" if values else ""
        match what, values:
            case "limit", [limit]:
                pass
            case "arrive", [_, prompt, tokens]:
                content = ((name, prompt),)
                known[name] = {"arrival": len(steps), "prompt": content, "max_tokens": tokens}
            case "abort", [_]:
                known[name]["abort_at"] = len(steps)
            case "prefill", [_, tokens, pad, tkv]:
                step = step._replace(
                    kind=what, scheduled={name: tokens}, left_pad_blocks={name: pad}, tkv=tkv
                )
            case "member", [_, pad]:
                step = step._replace(
                    scheduled={**step.scheduled, name: 1},
                    left_pad_blocks={**step.left_pad_blocks, name: pad},
                )
            case "decode", [tkv]:
                step = step._replace(kind=what, tkv=tkv)
            case "idle", []:
                step = step._replace(kind=what)
            case "ends", [_, left]:
                step = step._replace(finished=step.finished | {name})
                known[name]["output_len"] = known[name]["max_tokens"] - left
            case "holds", [_, tokens]:
                step = step._replace(computed={**step.computed, name: tokens})
            case "end", []:
                steps.append(step)
                step = NOTHING
            case _:
                raise ValueError(f"the model printed {line!r}")
    return SpinRun(limit, tuple(Request(id=rule, **known[rule]) for rule in known), tuple(steps))


def scenario_of(run: SpinRun, macros: Macros) -> Scenario:
    """Return the run as a scenario of the revision that the macros select."""
    config = {key: macros[name] for name, key in SIZES.items()}
    return Scenario(
        system="spyre",
        revision="2.1.2" if "STALE_TKV" in macros else "documented",
        config={**config, "max_batch_tkv": run.limit},
        requests=run.requests,
    )


def python_model(macros: Macros) -> ModelTarget:
    """Return the Python model that admits requests by the formula that the macros select."""
    return ModelTarget(next(FORMULAS[name] for name in FORMULAS if name in macros))


def replay_trail(macros: Macros, trail: Sequence[str]) -> Replayed:
    """Replay Spin's counterexample on the Python model.

    It is confirmed if the Python model takes the same steps, and then breaks the same rule in the
    same step.
    """
    run = read_run(trail)
    scenario = scenario_of(run, macros)
    rules = select(load("spyre"), [rule_to_check(macros)])
    watched: list[Step] = []
    outcome = replay(
        python_model(macros), scenario, rules, lambda _, step: watched.append(step), len(run.steps)
    )
    confirmed = (
        [failure.rule for failure in outcome.broken] == [rule_to_check(macros)]
        and outcome.broken[0].step == len(run.steps)
        and [seen_in(step) for step in watched[:-1]] == list(run.steps)
    )
    return Replayed(scenario, outcome, confirmed)


def difference(run: SpinRun, macros: Macros) -> str | None:
    """Return the first difference between a run of Spin and the Python model, or None."""
    watched: list[Step] = []
    if not run.steps:
        return None
    replay(
        python_model(macros),
        scenario_of(run, macros),
        (),
        lambda _, step: watched.append(step),
        len(run.steps) - 1,
    )
    for number, (theirs, step) in enumerate(zip(run.steps, watched, strict=False)):
        if theirs != seen_in(step):
            return f"step {number}: Spin {theirs}, Python {seen_in(step)}"
    # the Python run ends with its last request, while Spin may add idle steps
    if any(seen.kind != "idle" for seen in run.steps[len(watched) :]):
        return f"Spin took {len(run.steps)} steps, Python {len(watched)}"
    return None


def seen_in(step: Step) -> SpinStep:
    """Convert a step of the Python model to the form in which the Promela model prints it."""
    held = {**dict.fromkeys(step.waiting or (), 0), **(step.computed or {})}
    ended = {name for name, reason in (step.finished or {}).items() if reason != "aborted"}
    return SpinStep(
        step.kind,
        dict(step.scheduled),
        dict(step.left_pad_blocks or {}),
        step.tkv or 0,
        frozenset(ended),
        held,
    )
