"""Does `--prove` notice each change of Spyre's model with which a run exceeds the limit?

    make tool NAME=mutation.proof_score OPTIONS="--minutes 20 --jobs 2"

plants the changes of the operators in the files in a proof's way, and the faults of
`tests/mutants/spyre.toml`, one at a time, in an order drawn by `--seed`. Small runs decide what a
change does, by arithmetic of their own: every pair of requests of a few lengths, with aborts, and
random runs of up to six. The change *overruns* if a decode step exceeds the limit, is *the same* if
no step of these runs differs, and *differs* otherwise. Then SPY-R07 is proven as
`search SPY-R07 --prove` does it, until the first lemma fails.

A change that overruns must fail a lemma, and one that is the same must not. Those that differ are
counted, and may do either: a lemma may want more than the limit needs.

What is known is kept in `--ledger`, so that a run goes on where the last one stopped, until a file
of the model or of the solver changes. `--minutes` bounds a run. The exit code is 1 if a change that
overruns fails no lemma.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.tests.mutants.faults import faults_of
from schedproof.tests.mutants.planting import imported_anew

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240  # of processor time for the runs of one change, and for its proof
BLOCK = 2


class Question(NamedTuple):
    """A configuration that keeps the limit, with the formula or check that it admits by."""

    revision: str
    formula: str
    pausing: bool = False
    interleave: bool = True


def both(question: Question) -> tuple[Question, ...]:
    """With interleaving, and without."""
    return question, question._replace(interleave=False)


SOUND = both(Question("sound", "common_base"))
EXACT = both(Question("sound", "exact"))
RELEASE = both(Question("2.1.2", "2.1.2"))
PAUSES = both(Question("2.5.2", "2.1.2", pausing=True))
# Files in the way of a proof, with the questions that their code decides.
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
    """A change and a question; `texts` are the changed files by their path in `model`."""

    name: str
    question: Question
    texts: dict[str, str]


def changes() -> Iterator[Change]:
    """Every change with each question that it may decide."""
    # Here, since the tests of this file run without the extra that it needs.
    from schedproof.tools.mutation.operators import mutants_of

    for file, questions in FILES.items():
        for mutant in mutants_of(f"spyre/{file}.py"):
            _, place, before, after = mutant.change
            name = f"{file}:{mutant.line} {place}: {before!r} -> {after!r}"
            yield from (Change(name, question, dict(mutant.texts)) for question in questions)
    by_revision = {revision[0].revision: revision for revision in (PAUSES, RELEASE, SOUND)}
    for fault in faults_of("spyre"):
        if fault.edits and not fault.target:
            for question in by_revision.get(fault.revision, ()):
                yield Change(f"planted: {fault.label}", question, fault.sources())


# Run in a child, where the change is planted.


def model_of(question: Question, **lengths: Any) -> Any:
    from schedproof.model.spyre.model import make_model, with_formula

    keys = {"block_size": BLOCK, "chunk_size": BLOCK, "max_num_seqs": 6, "max_model_len": 8}
    keys |= {"pausing": question.pausing, "interleave": question.interleave}
    model = make_model(question.revision, {**keys, **lengths})
    if question.formula != question.revision and question.formula != "common_base":
        return with_formula(model, question.formula)
    return model


def volume(lengths: list[int]) -> int:
    """Batch x largest tkv of a decode step, by the tokens of its requests, this step's included."""
    widest = max(-(-tokens // BLOCK) for tokens in lengths)
    return len(lengths) * max((widest + -tokens // BLOCK) * BLOCK + tokens for tokens in lengths)


def small_runs(question: Question) -> Iterator[tuple[int, list[int], Any]]:
    """The limit, the lengths in each decode step (else none), and what each step shows."""
    from schedproof.model.scenario import Request
    from schedproof.tests.solver.every_run import moves

    def shown(seen: dict[str, Any]) -> Any:
        keys = ("kind", "scheduled", "emitted", "tkv", "waiting", "running", "finished", "computed")
        return [seen[key] for key in keys]

    def request(name: int, asked: tuple[int, int, int], start: int = 0, **more: Any) -> Any:
        prompt, tokens, ends = asked
        segment = (f"p{name}" if not more.pop("shared", False) else "p", prompt)
        fields: dict[str, Any] = {
            "arrival": start,
            "prompt": (segment,),
            "max_tokens": tokens,
            "output_len": ends,
        }
        return Request(id=f"r{name}", **fields, **more)

    prompts = {f"r{n}": 0 for n in range(6)}
    kinds = [(1, 5, 5), (3, 3, 3), (2, 7, 4), (5, 4, 4), (1, 2, 1), (3, 6, 6)]
    for first in kinds:
        for second in kinds:
            model = model_of(question, max_batch_tkv=8)
            asked = [request(0, first), request(1, second)]
            prompts |= {asked_for.id: asked_for.prompt_len for asked_for in asked}
            for move in moves(model, asked):
                had = {
                    member.id: member.generated for member in (*move.before.running, *_paused(move))
                }
                yield 8, decoded(move.seen, prompts, had), shown(move.seen)
    for seed in range(1000):
        chance = random.Random(seed)
        limit, count = chance.randint(8, 26), chance.randint(3, 6)
        caching, chunk = chance.random() < 0.3, BLOCK * chance.randint(1, 2)
        keys = {"max_batch_tkv": limit, "chunk_size": chunk, "prefix_caching": caching}
        model = model_of(question, **keys)
        asked = []
        for number in range(count):
            prompt = chance.randint(1, 6)
            tokens = chance.randint(1, 9 - prompt)
            ends = tokens if chance.random() < 0.7 else chance.randint(1, tokens)
            asked.append(
                request(number, (prompt, tokens, ends), chance.randint(0, 8), shared=caching)
            )
        prompts |= {asked_for.id: asked_for.prompt_len for asked_for in asked}
        gone = {chance.randint(1, 12): chance.choice(asked).id} if chance.random() < 0.3 else {}
        state, generated = model.initial(), Counter[str]()
        for step in range(30):
            for asked_for in asked:
                if asked_for.arrival == step:
                    state = model.arrive(state, asked_for)
            inside = (gone[step],) if step in gone and seed % 2 else ()
            if step in gone and not inside:
                state = model.abort(state, gone[step])
            had = dict(generated)
            state, seen = model.step(state, inside)
            generated.update(seen["emitted"])
            yield limit, decoded(seen, prompts, had), shown(seen)


def _paused(move: Any) -> Any:
    return getattr(move.before, "paused", ())


def decoded(seen: dict[str, Any], prompts: dict[str, int], had: dict[str, int]) -> list[int]:
    """The tokens of each request that decodes in this step, with the one that it computes."""
    if seen["kind"] != "decode":
        return []
    return [prompts[name] + had.get(name, 0) for name in seen["scheduled"]]


def what_it_does(question: Question, intact: str) -> str:
    """What the model as it is loaded here does in small runs; `intact`: the digest without a
    change, "" to return it."""
    digest = hashlib.sha256()
    try:
        for limit, lengths, shown in small_runs(question):
            if lengths and volume(lengths) > limit:
                return "overruns"
            digest.update(json.dumps(shown).encode())
    except Exception as error:  # of the change
        return f"crashes ({type(error).__name__})"
    if not intact:
        return digest.hexdigest()
    return "the same" if digest.hexdigest() == intact else "differs"


def failing(question: Question) -> str:
    """The first lemma of SPY-R07 that fails, "" if all are proven."""
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


def judge(change: Change, intact: str) -> dict[str, str]:
    """What the change does, and the lemma that fails; in the child."""
    does = what_it_does(change.question, intact)
    if does.startswith("crashes") or not intact:
        return {"does": does, "fails": ""}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return {"does": does, "fails": failing(change.question)}
    except Exception as error:  # of the change: the code that a lemma runs does not run
        return {"does": does, "fails": f"{type(error).__name__} in a lemma"}


def start(change: Change, intact: str, out: Path) -> int:
    """The id of a process that judges a change."""
    pid = os.fork()
    if pid:
        return pid
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with imported_anew(change.texts):
            found = judge(change, intact)
        out.write_text(json.dumps(found), encoding="utf-8")
    except BaseException:
        # A change with which no module can be imported shows nowhere.
        out.write_text(json.dumps({"does": "crashes (import)", "fails": ""}), encoding="utf-8")
    finally:
        os._exit(0)


def digest_of_sources() -> str:
    files = sorted([*(ROOT / "model").rglob("*.py"), *(ROOT / "solver").rglob("*.py")])
    own = [*files, Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest()[:16]


def intact_digests(folder: Path) -> dict[Question, str]:
    """What the model without a change shows."""
    digests = {}
    for question in {asked for questions in FILES.values() for asked in questions}:
        out = folder / "intact.json"
        os.waitpid(start(Change("none", question, {}), "", out), 0)
        found = json.loads(out.read_text(encoding="utf-8"))
        if len(found["does"]) != 64:
            sys.exit(f"without a change, {question} exceeds the limit: {found}")
        digests[question] = found["does"]
    return digests


def judged_all(
    waiting: list[Change], intact: dict[Question, str], jobs: int, ends: float, folder: Path
) -> Iterator[tuple[Change, dict[str, str]]]:
    """Each change with what is found, until the time is over."""
    running: dict[int, tuple[Change, Path]] = {}
    queue = iter(enumerate(waiting))
    while True:
        while len(running) < jobs and time.monotonic() < ends and (following := next(queue, None)):
            number, change = following
            out = folder / f"{number}.json"
            running[start(change, intact[change.question], out)] = change, out
        if not running:
            return
        pid, _ = os.wait()
        change, out = running.pop(pid)
        late = {"does": "hangs", "fails": f"no answer in {SECONDS} s"}
        yield change, json.loads(out.read_text(encoding="utf-8")) if out.exists() else late


def table(found: dict[str, dict[str, str]]) -> Iterator[str]:
    """The figures, by what a change does."""
    yield "| a change | number | fails a lemma | fails none |"
    yield "|---|---|---|---|"
    does = Counter(entry["does"].partition(" (")[0] for entry in found.values())
    for name in ("overruns", "the same", "differs", "crashes", "hangs"):
        red = sum(
            bool(entry["fails"]) for entry in found.values() if entry["does"].startswith(name)
        )
        yield f"| {name} | {does[name]} | {red} | {does[name] - red} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of this run  [default: 60]")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--only", default="", help="changes whose names have this text")
    parser.add_argument("--ledger", type=Path, default=Path("proof-score.jsonl"))
    given = parser.parse_args()
    ends, sources = time.monotonic() + 60 * given.minutes, digest_of_sources()
    known: dict[str, dict[str, str]] = {}
    if given.ledger.exists():
        for line in given.ledger.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["sources"] == sources:
                known[entry["change"]] = entry
    every = [candidate for candidate in changes() if given.only in candidate.name]
    random.Random(given.seed).shuffle(every)
    left = [candidate for candidate in every if key(candidate) not in known]
    with tempfile.TemporaryDirectory() as folder, given.ledger.open("a", encoding="utf-8") as book:
        intact = intact_digests(Path(folder)) if left else {}
        for change, found in judged_all(left, intact, given.jobs, ends, Path(folder)):
            entry = {"sources": sources, "change": key(change), **found}
            known[key(change)] = entry
            print(json.dumps(entry), file=book, flush=True)
    chosen = {
        key(candidate): known[key(candidate)] for candidate in every if key(candidate) in known
    }
    print(f"{len(chosen)} of {len(every)} changes")
    print("\n".join(table(chosen)))
    missed = [
        name
        for name, result in chosen.items()
        if result["does"] == "overruns" and not result["fails"]
    ]
    for name in missed:
        print(f"overruns, and every lemma is proven: {name}")
    for name, result in chosen.items():
        if result["does"] == "the same" and result["fails"]:
            print(f"the same, and {result['fails']}: {name}")
    return int(bool(missed))


def key(change: Change) -> str:
    """How the ledger names a change."""
    question = change.question
    off = "" if question.interleave else " without interleaving"
    return f"{question.revision}, {question.formula}{off}: {change.name}"


if __name__ == "__main__":
    sys.exit(main())
