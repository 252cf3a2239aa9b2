"""Does `--prove` notice each change to Spyre's model that lets a run exceed the limit?

    make tool NAME=mutation.proof_score OPTIONS="--minutes 20 --jobs 2"

The operators change the files that a proof depends on; the faults in `tests/mutants/spyre.toml` are
tried too. Changes are tried one at a time, in a random order given by `--seed`. So a run that ends
early has judged a random sample.

Each change is planted in its own process, which first runs small loads: every pair of requests of a
few lengths, with aborts, and random runs of up to six requests. The volume of these runs is
computed independently of the model. The change then

- *overruns* if a decode step exceeds the limit;
- is *the same* if it makes no observable difference in these runs;
- is *not run* if the runs never call the changed function;
- *differs* otherwise, also in some additional runs.

If a change overruns or is the same, SPY-R07 is then proven as in `search SPY-R07 --prove`, until
the first lemma fails. If no lemma about at most one request calls the changed function, the lemmas
of that group about more requests are skipped: they run the same code. The proof is

- *red* if a lemma is refuted or has no guard, or if the code does what the proof does not define;
- *green* if all lemmas are proven;
- *open* if the solvers give up, or the time for the change is over.

A change that overruns must be red, and one that is the same must be green. A change that differs
may be either, since a lemma may demand more than the limit does.

With `--refactorings`, the changes are other ways to write the same code (`refactorings`). Their
kind is drawn first, then the function, then the place in it, each with equal chance. Only the
lemmas about at most one request are proven for them, which takes a few seconds instead of a minute.

Results are kept in `--ledger`. A later run continues from them, until a file of the model or of the
solver changes. `--minutes` limits the CPU time of a run. The exit code is 1 if a change overruns
and is not red.
"""

import argparse
import ast
import hashlib
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.tests.mutants.faults import MODEL, faults_of
from schedproof.tests.mutants.planting import imported_anew

from . import small_runs
from .small_runs import Question, what_it_does

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 150  # CPU seconds for the runs of a change, and again for its proof


def both(question: Question) -> tuple[Question, ...]:
    """Return the question with and without interleaving."""
    return question, question._replace(interleave=False)


SOUND = both(Question("sound", "common_base"))
EXACT = both(Question("sound", "exact"))
RELEASE = both(Question("2.1.2", "2.1.2"))
PAUSES = both(Question("2.5.2", "2.1.2", pausing=True))
# The files that a proof depends on, with the questions that their code decides.
FILES = {
    "volumetric": (*SOUND, *RELEASE),
    "peak": EXACT,
    "documented": SOUND,
    "scheduler": SOUND,
    "blocks": SOUND,
    "forward": SOUND,
    "state": SOUND,
    "release_2_1_2": RELEASE,
    "release_2_5_2": PAUSES,
}


Entry = dict[str, str]  # the results for a change: what it "does", and the result of its "proof"


class Change(NamedTuple):
    """A change, and the question to try it on.

    `texts` maps the path of each changed file within `model` to its new text. `function` names the
    changed function, if there is only one. `is_rewritten` says that it is a refactoring.
    """

    name: str
    question: Question
    texts: dict[str, str]
    function: str = ""
    is_rewritten: bool = False

    @property
    def marked(self) -> dict[str, str]:
        """The texts, with the changed function recording that it was called."""
        if not self.function:
            return self.texts
        [(path, text)] = self.texts.items()
        tree = ast.parse(text)
        dict(functions_of(tree))[self.function].body[:0] = ast.parse(
            f"import sys; sys.{CALLED} = 1"
        ).body
        return {path: ast.unparse(tree)}


Job = Callable[[Change], Entry]


def changes() -> Iterator[Change]:
    """Yield every change, with each question that it may affect."""
    # Import here, because the tests of this file run without the extra that the import needs.
    from schedproof.tools.mutation.operators import mutants_of

    for file, questions in FILES.items():
        functions = dict(functions_of(ast.parse((MODEL / f"spyre/{file}.py").read_text("utf-8"))))
        for mutant in mutants_of(f"spyre/{file}.py"):
            _, place, before, after = mutant.change
            name = f"{file}:{mutant.line} {place}: {before!r} -> {after!r}"
            function = place if place in functions else ""
            for question in questions:
                yield Change(name, question, dict(mutant.texts), function)
    by_revision = {questions[0].revision: questions for questions in (PAUSES, RELEASE, SOUND)}
    for fault in faults_of("spyre"):
        if fault.edits and not fault.target:
            for question in by_revision.get(fault.revision, ()):
                yield Change(f"planted: {fault.label}", question, fault.sources())


def refactored() -> list[Change]:
    """Return every refactoring. `drawn` then orders them."""
    from .refactorings import refactorings_of

    return [
        Change(
            f"{found.kind}: {file}, {found.function}: {found.line}",
            question,
            {f"spyre/{file}.py": found.text},
            found.function,
            is_rewritten=True,
        )
        for file, questions in FILES.items()
        for found in refactorings_of(f"spyre/{file}.py")
        for question in questions
    ]


def drawn(every: list[Change], chance: random.Random) -> list[Change]:
    """Return the changes in a random order, in which each kind and then each function is as likely
    to come next as any other."""
    left: dict[str, dict[str, list[Change]]] = {}
    for change in every:
        kind, function, _ = change.name.split(": ", 2)
        left.setdefault(kind, {}).setdefault(function, []).append(change)
    order = []
    while left:
        kind = chance.choice([*left])
        function = chance.choice([*left[kind]])
        changes = left[kind][function]
        order.append(changes.pop(chance.randrange(len(changes))))
        if not changes:
            del left[kind][function]
        if not left[kind]:
            del left[kind]
    return order


def functions_of(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function with its name, as `Class.function`."""
    for inner in ast.iter_child_nodes(node):
        name = within
        if isinstance(inner, ast.FunctionDef | ast.ClassDef):
            name += f".{inner.name}" if within else inner.name
        if isinstance(inner, ast.FunctionDef):
            yield name, inner
        yield from functions_of(inner, name)


# The following functions run in a child process in which the change is planted.


def groups_of(question: Question) -> list[Any]:
    from schedproof.solver.spyre.admission_sequences import Setting
    from schedproof.solver.spyre.proofs_by_rule import LIMIT, limit_lemmas

    setting = Setting(
        question.formula,
        0,
        revision=question.revision,
        interleave=question.interleave,
        pausing=question.pausing,
    )
    return limit_lemmas(LIMIT, setting, 64)


CALLED = "schedproof_called"  # the name in `sys` under which a changed function records its call
TEXT = "code_does_only_what_is_defined"  # the lemma about the text of the code
MANY_REQUESTS = re.compile(r"_([2-9]|\d\d|any)$")  # the end of a lemma's name


def proof(change: Change) -> str:
    """Prove SPY-R07 until a lemma fails. Call this in a child process."""
    from schedproof.solver.smt.obligation import discharge

    try:
        with imported_anew(change.texts):  # the text, without the record of the call
            if status_of(change, TEXT) != "proven":
                return f"red ({TEXT})"
        for group in groups_of(change.question):
            setattr(sys, CALLED, not change.function)
            lemmas = [lemma for lemma in group.lemmas if lemma.name != TEXT]
            for lemma in sorted(lemmas, key=lambda lemma: is_large(lemma.name)):
                if is_large(lemma.name) and (change.is_rewritten or not getattr(sys, CALLED)):
                    break
                [found] = discharge([lemma])
                if found.status != "proven":
                    is_open = found.status == "unknown" and found.by != "none"
                    return f"{'open' if is_open else 'red'} ({lemma.name})"
    except Exception as error:  # caused by the change: the code of a lemma raises
        return f"red ({type(error).__name__} in a lemma)"
    return "green"


def status_of(change: Change, name: str) -> str:
    from schedproof.solver.smt.obligation import discharge

    every = [lemma for group in groups_of(change.question) for lemma in group.lemmas]
    [found] = discharge(lemma for lemma in every if lemma.name == name)
    return found.status


def is_large(lemma: str) -> bool:
    return MANY_REQUESTS.search(lemma) is not None


def judge(change: Change, out: Path, intact: str) -> None:
    """Write what the change does in small runs, and then whether a lemma fails."""
    setattr(sys, CALLED, not change.function)
    entry = {"does": what_it_does(change.question, intact)}
    if entry["does"] == "the same" and not getattr(sys, CALLED):
        entry["does"] = "not run"
    out.write_text(json.dumps(entry), encoding="utf-8")
    if intact and entry["does"] in PROVEN:
        entry["proof"] = proof(change)
        out.write_text(json.dumps(entry), encoding="utf-8")


def start(change: Change, out: Path, intact: str) -> int:
    """Start a process that judges a change, and return its id."""
    pid = os.fork()
    if pid:
        return pid
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with imported_anew(change.marked):
            judge(change, out, intact)
    except BaseException:
        # A change that breaks an import never runs, so no lemma has to fail.
        out.write_text(json.dumps({"does": "crashes (import)"}), encoding="utf-8")
    finally:
        os._exit(0)


def read(out: Path) -> Entry:
    """Return what a process wrote before it ended or was stopped."""
    entry: Entry = (
        json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"does": "hangs"}
    )
    if entry["does"] in PROVEN:
        entry.setdefault("proof", f"open ({SECONDS} s are over)")
    return entry


def digest_of_sources() -> str:
    files = sorted([*(ROOT / "model").rglob("*.py"), *(ROOT / "solver").rglob("*.py")])
    own = [*files, Path(__file__), Path(small_runs.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest()[:16]


def intact_digests(questions: set[Question]) -> dict[Question, str]:
    """Return the digests of the unchanged model."""
    digests = {}
    with tempfile.TemporaryDirectory() as folder:
        for question in questions:
            out = Path(folder) / "intact.json"
            os.waitpid(start(Change("none", question, {}), out, ""), 0)
            digests[question] = read(out)["does"]
            if len(digests[question]) != 64:
                sys.exit(f"without a change, {question} exceeds the limit: {digests[question]}")
    return digests


def seconds() -> float:
    """Return the CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_children(
    changes: Iterable[Change], digests: dict[Question, str], jobs: int, ends: float
) -> Iterator[tuple[Change, Entry]]:
    """Judge each change in its own child process, until the time is up."""
    running: dict[int, tuple[Change, Path]] = {}
    queue = iter(enumerate(changes))
    with tempfile.TemporaryDirectory() as folder:
        while True:
            while len(running) < jobs and seconds() < ends and (following := next(queue, None)):
                number, change = following
                out = Path(folder) / f"{number}.json"
                running[start(change, out, digests[change.question])] = change, out
            if not running:
                return
            pid, _ = os.wait()
            change, out = running.pop(pid)
            yield change, read(out)


PROVEN = ("overruns", "the same")  # changes for which the proof is tried
COLOURS = ("red", "green", "open")


def kind(entry: Entry) -> str:
    return entry.get("does", "").partition(" (")[0]


def colour(entry: Entry) -> str:
    return entry.get("proof", "").partition(" (")[0]


def score(known: Iterable[Entry]) -> str:
    """Return the score in one line."""
    found = Counter((kind(entry), colour(entry)) for entry in known if "proof" in entry)
    overruns, harmless = (sum(found[name, of] for of in COLOURS) for name in PROVEN)
    return (
        f"{found['overruns', 'red']} of {overruns} sampled overrunning changes red; "
        f"{found['the same', 'green']} of {harmless} sampled harmless ones green"
    )


def table(known: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the table of results, grouped by what a change does."""
    yield "| a change | tried | red | green | open |"
    yield "|---|---|---|---|---|"
    for name in (*PROVEN, "not run", "differs", "crashes", "hangs"):
        entries = [entry for entry in known.values() if kind(entry) == name]
        found = Counter(map(colour, entries))
        yield f"| {name} | {len(entries)} | {' | '.join(str(found[of]) for of in COLOURS)} |"


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
    """Judge changes until the time is up."""
    importlib.import_module("z3")  # once here, so that not every child has to import it
    ends = seconds() + 60 * minutes
    new = [change for change in every if key(change) not in ledger.known]
    digests = intact_digests({change.question for change in new})
    for change, entry in in_children(new, digests, jobs, ends):
        ledger.add(change, entry)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of CPU time  [default: 60]")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--only", default="", help="changes whose names have this text")
    parser.add_argument("--refactorings", action="store_true", help="judge refactorings instead")
    parser.add_argument("--ledger", type=Path, default=Path("proof-score.jsonl"))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    every = refactored() if options.refactorings else [*changes()]
    every = [change for change in every if options.only in change.name]
    if options.refactorings:
        every = drawn(every, chance)
    else:
        chance.shuffle(every)
    ledger = Ledger(options.ledger)
    run(every, ledger, options.jobs, options.minutes)
    known = {name: ledger.known[name] for name in map(key, every) if name in ledger.known}
    print(f"{len(known)} of {len(every)} changes tried")
    print("\n".join(table(known)))
    print(score(known.values()))
    missed = [
        (name, entry)
        for name, entry in known.items()
        if "proof" in entry
        and (kind(entry), colour(entry)) not in {("overruns", "red"), ("the same", "green")}
        and kind(entry) != "differs"
    ]
    for name, entry in missed:
        print(f"{kind(entry)}, but {entry['proof']}: {name}")
    return int(any(kind(entry) == "overruns" for _, entry in missed))


def key(change: Change) -> str:
    """Return the name of the change in the ledger."""
    question = change.question
    off = "" if question.interleave else " without interleaving"
    return f"{question.revision}, {question.formula}{off}: {change.name}"


if __name__ == "__main__":
    sys.exit(main())
