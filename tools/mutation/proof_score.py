"""Does `--prove` notice each change of Spyre's model that lets a run exceed the limit?

    make tool NAME=mutation.proof_score OPTIONS="--minutes 20 --jobs 2"

The changes are those that the operators make in the files on which a proof depends, and the faults
in `tests/mutants/spyre.toml`. They are tried one at a time, in two phases, in a random order that
is seeded with `--seed`.

The first third of the time is spent on small loads: every pair of requests of a few lengths, with
aborts, and random runs of up to six requests. Their volume is computed independently of the model.
A change *overruns* if a decode step exceeds the limit, is *the same* if no step of these runs
differs, and *differs* otherwise. A run ends at the first step over the limit.

In the remaining time, SPY-R07 is proven as in `search SPY-R07 --prove`, until the first lemma
fails: first for changes that overrun, then for those that are the same, then for the others. A
change that overruns must make a lemma fail, and a change that is the same must not. A change that
differs may do either, because a lemma may demand more than the limit requires.

The results are kept in `--ledger`, so that a run continues where the last one stopped, until a file
of the model or of the solver changes. `--minutes` bounds a run. The exit code is 1 if a change
overruns and no lemma fails.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.tests.mutants.faults import faults_of
from schedproof.tests.mutants.planting import imported_anew

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240  # CPU seconds for the runs of one change, and for its proof
BLOCK = 2


class Question(NamedTuple):
    """A revision that stays within the limit, with the formula or check by which it admits
    requests."""

    revision: str
    formula: str
    pausing: bool = False
    interleave: bool = True


def both(question: Question) -> tuple[Question, ...]:
    """Return the question with interleaving and without it."""
    return question, question._replace(interleave=False)


SOUND = both(Question("sound", "common_base"))
EXACT = both(Question("sound", "exact"))
RELEASE = both(Question("2.1.2", "2.1.2"))
PAUSES = both(Question("2.5.2", "2.1.2", pausing=True))
# The files on which a proof depends, with the questions that their code decides.
FILES = {
    "volumetric": (*SOUND, *RELEASE),
    "peak": EXACT,
    "documented": SOUND,
    "scheduler": SOUND,
    "forward": SOUND,
    "state": SOUND,
    "release_2_1_2": RELEASE,
    "release_2_5_2": PAUSES,
}


class Change(NamedTuple):
    """A change, and the question on which to try it; `texts` maps the path of each changed file
    within `model` to its new text."""

    name: str
    question: Question
    texts: dict[str, str]


def changes() -> Iterator[Change]:
    """Yield every change with each question that it may affect."""
    # Imported here, because this file's tests run without the extra that the import needs.
    from schedproof.tools.mutation.operators import mutants_of

    for file, questions in FILES.items():
        for mutant in mutants_of(f"spyre/{file}.py"):
            _, place, before, after = mutant.change
            name = f"{file}:{mutant.line} {place}: {before!r} -> {after!r}"
            yield from (Change(name, question, dict(mutant.texts)) for question in questions)
    by_revision = {questions[0].revision: questions for questions in (PAUSES, RELEASE, SOUND)}
    for fault in faults_of("spyre"):
        if fault.edits and not fault.target:
            for question in by_revision.get(fault.revision, ()):
                yield Change(f"planted: {fault.label}", question, fault.sources())


# The following functions run in a child process, in which the change is planted.


def model_of(question: Question, **lengths: Any) -> Any:
    from schedproof.model.spyre.model import make_model, with_formula

    keys = {"block_size": BLOCK, "chunk_size": BLOCK, "max_num_seqs": 6, "max_model_len": 8}
    keys |= {"pausing": question.pausing, "interleave": question.interleave}
    model = make_model(question.revision, {**keys, **lengths})
    if question.formula != question.revision and question.formula != "common_base":
        return with_formula(model, question.formula)
    return model


def volume(lengths: list[int]) -> int:
    """Return batch x largest tkv of a decode step; `lengths` counts the tokens of each of its
    requests, including this step's."""
    widest = max(-(-tokens // BLOCK) for tokens in lengths)
    return len(lengths) * max((widest + -tokens // BLOCK) * BLOCK + tokens for tokens in lengths)


Seen = tuple[int, list[int], Any]  # the limit, the lengths in a decode step, the step's observation
Lengths = tuple[int, int, int]  # tokens of the prompt, max_tokens, tokens until the request ends
KINDS: list[Lengths] = [(1, 5, 5), (3, 3, 3), (2, 7, 4), (5, 4, 4), (1, 2, 1), (3, 6, 6)]
SHOWN = ("kind", "scheduled", "emitted", "tkv", "waiting", "running", "finished", "computed")
RANDOM_RUNS = 1000
STEPS = 30  # the length of a random run


def small_runs(question: Question) -> Iterator[Seen]:
    """Yield the observation of each step of every small run."""
    for first in KINDS:
        for second in KINDS:
            yield from runs_of_pair(question, first, second)
    for seed in range(RANDOM_RUNS):
        yield from random_run(question, seed)


def request_of(name: int, lengths: Lengths, *, start: int = 0, shared: bool = False) -> Any:
    """Return a request of a scenario; all `shared` prompts begin with the same tokens."""
    from schedproof.model.scenario import Request

    prompt, tokens, ends = lengths
    segment = ("p" if shared else f"p{name}", prompt)
    fields: dict[str, Any] = {"prompt": (segment,), "max_tokens": tokens, "output_len": ends}
    return Request(id=f"r{name}", arrival=start, **fields)


def runs_of_pair(question: Question, first: Lengths, second: Lengths) -> Iterator[Seen]:
    """Run two requests with every possible abort."""
    from schedproof.tests.solver.every_run import moves

    limit = 8
    model = model_of(question, max_batch_tkv=limit)
    requests = [request_of(0, first), request_of(1, second)]
    prompts = {request.id: request.prompt_len for request in requests}
    for move in moves(model, requests):
        admitted = (*move.before.running, *_paused(move))
        generated = {request.id: request.generated for request in admitted}
        yield limit, decoded(move.seen, prompts, generated), shown(move.seen)


class RandomLoad(NamedTuple):
    """Requests, a limit, and which request is aborted in which step, before or inside it."""

    limit: int
    keys: dict[str, Any]
    requests: list[Any]
    aborts: dict[int, str]
    inside: bool


def random_load(seed: int) -> RandomLoad:
    chance = random.Random(seed)
    limit, count = chance.randint(8, 26), chance.randint(3, 6)
    caching, chunk = chance.random() < 0.3, BLOCK * chance.randint(1, 2)
    keys = {"max_batch_tkv": limit, "chunk_size": chunk, "prefix_caching": caching}
    requests = []
    for number in range(count):
        prompt = chance.randint(1, 6)
        tokens = chance.randint(1, 9 - prompt)
        ends = tokens if chance.random() < 0.7 else chance.randint(1, tokens)
        start, lengths = chance.randint(0, 8), (prompt, tokens, ends)
        requests.append(request_of(number, lengths, start=start, shared=caching))
    aborted = chance.random() < 0.3
    aborts = {chance.randint(1, 12): chance.choice(requests).id} if aborted else {}
    return RandomLoad(limit, keys, requests, aborts, inside=bool(seed % 2))


def random_run(question: Question, seed: int) -> Iterator[Seen]:
    """Run three to six requests."""
    load = random_load(seed)
    model = model_of(question, **load.keys)
    prompts = {request.id: request.prompt_len for request in load.requests}
    state, generated = model.initial(), Counter[str]()
    for step in range(STEPS):
        for request in load.requests:
            if request.arrival == step:
                state = model.arrive(state, request)
        inside = (load.aborts[step],) if step in load.aborts and load.inside else ()
        if step in load.aborts and not inside:
            state = model.abort(state, load.aborts[step])
        before = dict(generated)
        state, seen = model.step(state, inside)
        generated.update(seen["emitted"])
        yield load.limit, decoded(seen, prompts, before), shown(seen)


def shown(seen: dict[str, Any]) -> list[Any]:
    return [seen[key] for key in SHOWN]


def _paused(move: Any) -> Any:
    return getattr(move.before, "paused", ())


def decoded(seen: dict[str, Any], prompts: dict[str, int], generated: dict[str, int]) -> list[int]:
    """Return the lengths of the requests that decode in this step, including the token that the
    step computes."""
    if seen["kind"] != "decode":
        return []
    return [prompts[name] + generated.get(name, 0) for name in seen["scheduled"]]


def what_it_does(question: Question, intact: str) -> str:
    """Describe what the model that is loaded in this process does in small runs. `intact` is the
    digest of the unchanged model's runs; if it is empty, return the digest instead."""
    digest = hashlib.sha256()
    try:
        for limit, lengths, step in small_runs(question):
            if lengths and volume(lengths) > limit:
                return "overruns"
            digest.update(json.dumps(step).encode())
    except Exception as error:  # caused by the change
        return f"crashes ({type(error).__name__})"
    if not intact:
        return digest.hexdigest()
    return "the same" if digest.hexdigest() == intact else "differs"


def failing(question: Question) -> str:
    """Return the name of the first lemma of SPY-R07 that fails, or "" if all are proven."""
    from schedproof.solver.smt.obligation import discharge
    from schedproof.solver.spyre.admission_sequences import Setting
    from schedproof.solver.spyre.proofs_by_rule import LIMIT, limit_lemmas

    setting = Setting(
        question.formula,
        0,
        revision=question.revision,
        interleave=question.interleave,
        pausing=question.pausing,
    )
    for group in limit_lemmas(LIMIT, setting, 64):
        for lemma in discharge(group.lemmas):
            if lemma.status != "proven":
                return f"{lemma.name} {lemma.status}"
    return ""


Entry = dict[str, str]  # the results for a change: what it "does", and which lemma "fails"
Job = Callable[[Change], Entry]


def simulate(intact: dict[Question, str], change: Change) -> Entry:
    """Return what the change does in small runs; to be called in a child process."""
    return {"does": what_it_does(change.question, intact.get(change.question, ""))}


def prove(change: Change) -> Entry:
    """Return the name of the lemma that fails; to be called in a child process."""
    try:
        return {"fails": failing(change.question)}
    except Exception as error:  # caused by the change: a lemma's code raises
        return {"fails": f"{type(error).__name__} in a lemma"}


def start(change: Change, job: Job, out: Path) -> int:
    """Start a process that does a job on a change, and return its id."""
    pid = os.fork()
    if pid:
        return pid
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with imported_anew(change.texts):
            entry = job(change)
        out.write_text(json.dumps(entry), encoding="utf-8")
    except BaseException:
        # A change that breaks an import is never run, so no lemma has to fail.
        out.write_text(json.dumps({"does": "crashes (import)", "fails": ""}), encoding="utf-8")
    finally:
        os._exit(0)


def digest_of_sources() -> str:
    files = sorted([*(ROOT / "model").rglob("*.py"), *(ROOT / "solver").rglob("*.py")])
    own = [*files, Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest()[:16]


def intact_digests(folder: Path) -> dict[Question, str]:
    """Return the digests of the unchanged model."""
    digests = {}
    for question in {question for questions in FILES.values() for question in questions}:
        out = folder / "intact.json"
        os.waitpid(start(Change("none", question, {}), partial(simulate, {}), out), 0)
        entry = json.loads(out.read_text(encoding="utf-8"))
        if len(entry["does"]) != 64:
            sys.exit(f"without a change, {question} exceeds the limit: {entry}")
        digests[question] = entry["does"]
    return digests


def in_children(
    changes: Iterable[Change], job: Job, late: Entry, jobs: int, ends: float
) -> Iterator[tuple[Change, Entry]]:
    """Run a job on each change, each in its own child process, until the time is up. `late` is the
    entry for a change whose job does not end in time."""
    running: dict[int, tuple[Change, Path]] = {}
    queue = iter(enumerate(changes))
    with tempfile.TemporaryDirectory() as folder:
        while True:
            while (
                len(running) < jobs and time.monotonic() < ends and (following := next(queue, None))
            ):
                number, change = following
                out = Path(folder) / f"{number}.json"
                running[start(change, job, out)] = change, out
            if not running:
                return
            pid, _ = os.wait()
            change, out = running.pop(pid)
            yield change, json.loads(out.read_text(encoding="utf-8")) if out.exists() else late


ORDER = ("overruns", "the same", "differs")  # the order in which changes are proven


def kind(entry: Entry) -> str:
    return entry.get("does", "").partition(" (")[0]


def to_prove(changes: list[Change], known: dict[str, Entry]) -> list[Change]:
    """Return the changes that have been simulated but not proven yet; changes that overrun come
    first."""
    remaining = [
        change
        for change in changes
        if kind(known.get(key(change), {})) in ORDER and "fails" not in known[key(change)]
    ]
    return sorted(remaining, key=lambda change: ORDER.index(kind(known[key(change)])))


def score(known: Iterable[Entry]) -> str:
    """Return the score in one line."""
    proven = [entry for entry in known if "fails" in entry]
    overruns = [bool(entry["fails"]) for entry in proven if kind(entry) == "overruns"]
    harmless = [not entry["fails"] for entry in proven if kind(entry) == "the same"]
    return (
        f"{sum(overruns)} of {len(overruns)} sampled overrunning changes red; "
        f"{sum(harmless)} of {len(harmless)} sampled harmless ones green"
    )


def table(known: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the table of results, grouped by what a change does."""
    yield "| a change | simulated | fails a lemma | fails none |"
    yield "|---|---|---|---|"
    for name in (*ORDER, "crashes", "hangs"):
        entries = [entry for entry in known.values() if kind(entry) == name]
        fails = [bool(entry["fails"]) for entry in entries if "fails" in entry]
        yield f"| {name} | {len(entries)} | {sum(fails)} | {len(fails) - sum(fails)} |"


class Ledger:
    """The results for each change, in a file of JSON lines. Lines written for another version of
    the sources are ignored."""

    def __init__(self, path: Path) -> None:
        self.path, self.sources = path, digest_of_sources()
        self.known: dict[str, Entry] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for entry in map(json.loads, lines):
            if entry.pop("sources") == self.sources:
                self.known.setdefault(entry.pop("change"), {}).update(entry)

    def add(self, change: Change, entry: Entry) -> None:
        self.known.setdefault(key(change), {}).update(entry)
        line = json.dumps({"sources": self.sources, "change": key(change), **entry})
        with self.path.open("a", encoding="utf-8") as file:
            print(line, file=file)


def run(every: list[Change], ledger: Ledger, jobs: int, minutes: float) -> None:
    """Simulate changes for a third of the time, then try to prove the rule for the simulated
    ones."""
    began, seconds = time.monotonic(), 60 * minutes
    new = [change for change in every if key(change) not in ledger.known]
    if new:
        with tempfile.TemporaryDirectory() as folder:
            simulation = partial(simulate, intact_digests(Path(folder)))
        late = {"does": "hangs", "fails": f"no answer in {SECONDS} s"}
        for change, entry in in_children(new, simulation, late, jobs, began + seconds / 3):
            ledger.add(change, entry)
    late = {"fails": f"no answer in {SECONDS} s"}
    for change, entry in in_children(
        to_prove(every, ledger.known), prove, late, jobs, began + seconds
    ):
        ledger.add(change, entry)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of this run  [default: 60]")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--only", default="", help="changes whose names have this text")
    parser.add_argument("--ledger", type=Path, default=Path("proof-score.jsonl"))
    options = parser.parse_args()
    every = [change for change in changes() if options.only in change.name]
    random.Random(options.seed).shuffle(every)
    ledger = Ledger(options.ledger)
    run(every, ledger, options.jobs, options.minutes)
    known = {name: ledger.known[name] for name in map(key, every) if name in ledger.known}
    print(f"{len(known)} of {len(every)} changes simulated")
    print("\n".join(table(known)))
    print(score(known.values()))
    proven = {name: entry for name, entry in known.items() if "fails" in entry}
    missed = [
        name for name, entry in proven.items() if kind(entry) == "overruns" and not entry["fails"]
    ]
    for name in missed:
        print(f"{name} exceeds the limit although every lemma is proven")
    for name, entry in proven.items():
        if kind(entry) == "the same" and entry["fails"]:
            print(f"the same, and {entry['fails']}: {name}")
    return int(bool(missed))


def key(change: Change) -> str:
    """Return the name of the change in the ledger."""
    question = change.question
    off = "" if question.interleave else " without interleaving"
    return f"{question.revision}, {question.formula}{off}: {change.name}"


if __name__ == "__main__":
    sys.exit(main())
