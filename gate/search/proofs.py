"""`schedproof search` for rules that lemmas decide (`solver.systems.proofs_of`).

The lemmas are proven first. Then the command shows counterexamples for the cases that the lemmas
leave open.
"""

import importlib.util
import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from ...model.errors import InputError
from ...model.scenario import Scenario
from ...model.target import ModelTarget
from ...properties.checking.replay import replay as run_replay
from ...properties.rules.registry import applies
from ...solver.smt.obligation import Discharged, RuleProof, ScenarioPair, discharge, import_models
from ...solver.systems import proofs_of
from ...spec.catalogue import load
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..files.scenario_file import write_scenario
from ..processes.work_process import TimeLimit, Unanswered, run_in_process

Say = Callable[[str], None]
NAMES = 46  # width of a lemma's name, in columns


def lemma_line(lemma: Discharged) -> str:
    seconds = f"{lemma.seconds:5.2f} s"
    return f"{lemma.status:10} {lemma.name:{NAMES}} {seconds}  {lemma.by}"


def blocks_of(block: int | None) -> str:
    return "blocks of any size" if block is None else f"blocks of {block}"


def _sizes(block: int | None, lemmas: Sequence[Discharged]) -> str:
    """Return words that say for which block sizes the lemmas hold. Lemmas that run code always use
    a single size."""
    if block is None and any(lemma.code for lemma in lemmas):
        return " (arithmetic for blocks of any size, code for blocks of one size)"
    return f" for {blocks_of(block)}"


def read_number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def read_block(change: str) -> int:
    number = read_number(change.partition("=")[2])
    if not number:
        raise InputError("--param", f"{change!r}; valid: a number of tokens, or block_size=any")
    return number


def run_proofs(
    console: Console,
    system: str,
    rule: str,
    block: int | None,
    prove: bool,
    out: Path,
    time_limit: TimeLimit,
    certificate: Path | None = None,
) -> int:
    """Prove the lemmas of a rule. Then show its counterexamples, unless `prove` is set. Return the
    exit code.

    A counterexample that breaks only another rule is shown, but does not count against this rule.
    `block` is the block size in tokens, or None for any size. `certificate` is an empty folder for
    the lemmas and for cvc5's proofs of them.
    """

    def say(line: str) -> None:
        output.say(console, line)

    proof = proofs_of(system)[rule]
    say(f"{rule}: {proof.question}")
    lemmas: list[Discharged] = []
    try:
        for lemma in run_in_process(time_limit, _discharge, system, rule, block, certificate):
            say(lemma_line(lemma))
            say(f"           {lemma.sentence}")
            lemmas.append(lemma)
        proven = [lemma for lemma in lemmas if lemma.status == "proven"]
        failed = len(lemmas) - len(proven)
        codes = [INCONCLUSIVE if failed else CONFORMS]
        say(f"{len(proven)} lemmas proven{_sizes(block, lemmas)}, {failed} not")
        for line in answer(proof, lemmas):
            say(line)
        if certificate is not None:
            codes.append(print_certificate(say, lemmas, certificate))
        if not prove:
            for name, found in run_in_process(time_limit, _counterexamples, system, rule):
                codes.append(_show(say, name, rule, found, out))
    except Unanswered as why:
        say(f"inconclusive: {why}")
        return INCONCLUSIVE
    return next(code for code in (BROKEN, INCONCLUSIVE, CONFORMS) if code in codes)


def answer(proof: RuleProof, lemmas: Sequence[Discharged]) -> Iterator[str]:
    """Yield lines that say what the lemmas prove, about which code, and under which assumptions."""
    if not lemmas or any(lemma.status != "proven" for lemma in lemmas):
        yield "no answer, because an answer needs a proof of every lemma"
        return
    yield f"answer, in the cases that the lemmas run: {proof.answer}"
    code = dict.fromkeys(name for lemma in lemmas for name in lemma.code)
    if not code:
        yield "  the arithmetic holds; the code is tested, not proven"
    else:
        yield f"  proven for the model's code: {', '.join(code)}"
    for assumed in proof.assumes:
        yield f"  assumed: {assumed}"
    beyond = "what the rule says beyond the question, every other case"
    yield f"  tested, not proven: {beyond}, and {proof.tested}"


def writing(folder: Path | None) -> Callable[[str, str], None] | None:
    return None if folder is None else partial(_write, folder)


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def check_certificate(folder: Path | None, prove: bool) -> None:
    """Create the folder for a certificate. Raise InputError without --prove, or if the folder is
    not empty."""
    if folder is None:
        return
    if not prove:
        raise InputError("--certificate", f"{folder}; valid only together with --prove")
    if importlib.util.find_spec("cvc5") is None:
        raise InputError(
            "--certificate",
            "cvc5 is not installed; install it with: pip install 'schedproof[solvers]'",
        )
    valid = "valid: a new or empty folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if next(folder.iterdir(), None) is not None:
            raise InputError("--certificate", f"{folder} is not empty; {valid}")
    except OSError as why:
        raise InputError("--certificate", f"{folder}: {why.strerror}; {valid}") from None
    if not os.access(folder, os.W_OK):
        raise InputError("--certificate", f"{folder} cannot be written; {valid}")


def print_certificate(say: Say, lemmas: Sequence[Discharged], folder: Path) -> int:
    answers = [(lemma, lemma.certified) for lemma in lemmas if lemma.certified is not None]
    listed = [
        {"lemma": lemma.name, "says": lemma.sentence, "first": lemma.status, "code": lemma.code}
        | {"cvc5": second.claim, "cvc5_guard": second.guard, "proof_holes": second.holes}
        for lemma, second in answers
    ]
    text = json.dumps(listed, indent=1, ensure_ascii=False)
    (folder / "certificate.json").write_text(text + "\n", encoding="utf-8")
    agree = [lemma for lemma, second in answers if (second.claim, second.guard) == ("unsat", "sat")]
    against = [
        lemma.name
        for lemma, second in answers
        if (lemma.status == "proven" and (second.claim == "sat" or second.guard == "unsat"))
        or (lemma.status == "refuted" and second.claim == "unsat")
    ]
    proofs = [second.holes for _, second in answers if second.holes is not None]
    say(
        f"certificate: {folder}: cvc5 agrees on {len(agree)} of {len(answers)} lemmas and "
        f"their guards; {len(proofs)} proofs in Alethe ({sum(holes > 0 for holes in proofs)} "
        "with holes), not checked by any other program"
    )
    left = [lemma.name for lemma, second in answers if "unknown" in (second.claim, second.guard)]
    if left:
        say(f"  cvc5 gives up on {', '.join(left)}: only Z3 decides these")
    if against:
        say(f"  the solvers disagree on {', '.join(against)}: one of them is wrong")
    return INCONCLUSIVE if against else CONFORMS


def _discharge(
    system: str, rule: str, block: int | None, certificate: Path | None
) -> Iterator[Discharged]:
    import_models()
    return discharge(proofs_of(system)[rule].obligations(block), writing(certificate))


def _counterexamples(
    system: str, rule: str
) -> Iterator[tuple[str, Scenario | ScenarioPair | None]]:
    for name, make in proofs_of(system)[rule].counterexamples.items():
        yield name, make()


def _show(say: Say, name: str, rule: str, found: Scenario | ScenarioPair | None, out: Path) -> int:
    """Replay and show a run that belongs to a proof. Return the exit code."""
    if found is None:
        say(f"a run: {name}")
        say("  inconclusive: no such run was found")
        return INCONCLUSIVE
    if isinstance(found, ScenarioPair):
        say(f"two runs: {name}")
        return _compare_runs(say, rule, found, out)
    return _replay_run(say, name, rule, found, out)


def _replay_run(say: Say, name: str, rule: str, scenario: Scenario, out: Path) -> int:
    revision = scenario.revision or ""
    rules = [
        candidate for candidate in load(scenario.system, revision) if applies(candidate, revision)
    ]
    own = [candidate for candidate in rules if candidate.id == rule]
    # Judge the replay by this rule alone, because another rule may be broken earlier.
    broken = run_replay(ModelTarget(), scenario, own).broken
    broken = broken or run_replay(ModelTarget(), scenario, rules).broken
    say(f"{'counterexample' if broken else 'a run that breaks no rule'}: {name}")
    for first in broken[:1]:
        say(
            f"  replayed on the model of {scenario.revision}: breaks {first.rule} in step "
            f"{first.step}: {first.message}"
        )
    if not broken:
        say(f"  replayed on the model of {scenario.revision}: breaks no rule")
    path = write_scenario(scenario, out, broken[0].rule if broken else rule)
    say(f"  replay:   schedproof replay {shlex.quote(str(path))}")
    return BROKEN if any(failure.rule == rule for failure in broken) else CONFORMS


def _compare_runs(say: Say, rule: str, pair: ScenarioPair, out: Path) -> int:
    [key] = [name for name, value in pair.few.config.items() if pair.more.config[name] != value]
    counts = []
    for scenario in pair:
        counts.append(_preemptions(scenario))
        path = write_scenario(scenario, out, rule)
        count = f"{counts[-1]} preemption{'s' * (counts[-1] != 1)}"
        say(f"  {key} {scenario.config[key]}: {count} on the model of {scenario.revision}")
        say(f"  replay:   schedproof replay {shlex.quote(str(path))}")
    return BROKEN if counts[0] < counts[1] else INCONCLUSIVE


def _preemptions(scenario: Scenario) -> int:
    outcome = run_replay(ModelTarget(), scenario, ())
    return sum(request.preemptions for request in outcome.session.monitor.history.requests.values())
