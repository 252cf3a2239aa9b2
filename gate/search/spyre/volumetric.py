"""Search with Z3 for a counterexample to one of Spyre's volumetric rules, or prove the rule.
Print results as they arrive."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

from ....model.errors import InputError
from ....model.observation import Step
from ....model.scenario import Scenario
from ....model.spyre.own_formula import is_own
from ....model.spyre.peak import CHECKS
from ....model.target import ModelTarget, Target
from ....properties.checking.replay import replay as run_replay
from ....properties.spyre.predicates.volume import volume
from ....solver.smt.obligation import Discharged, discharge
from ....solver.spyre.admission_sequences import (
    ADMITS_BY,
    FORMULA_OF_REVISION,
    Setting,
    largest_harmless,
    largest_tkv,
    to_scenario,
)
from ....solver.spyre.own_function import check_on_symbols
from ....solver.spyre.proofs_by_rule import JOIN, LIMIT, limit_lemmas, proven_for
from ....solver.spyre.worst_case import (
    OBJECTIVES,
    Known,
    Objective,
    fewest,
    least_slack,
    with_slack,
    worst,
)
from ....spec.catalogue import Rule, load, select
from ...console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ...files.scenario_file import write_scenario
from ...processes.work_process import TimeLimit, Unanswered, run_in_process
from .. import counterexample
from ..proofs import blocks_of, lemma_line, print_certificate, writing
from ..question import OwnQuestions, Question
from . import vectorized
from .setting import LENGTHS, MAX_REQUESTS, kept_instead, read_formula, read_setting

FOUND, PROVEN = BROKEN, CONFORMS
# Explanations of the terms in the lemmas about one request.
TERMS = (
    "  tkv:  the position of the batch's next token; a newcomer with a longer prompt moves it "
    "forward",
    "  base: the larger of the newcomer's prompt and the tkv that admission uses",
    "  term: the largest tkv that one request can reach, by the formula",
    "  walk: in ascending order of terms, the formula compares (requests still to come) x term "
    "with the limit, until it has an answer",
    "  a lemma for any number of requests is about one or two of them, in any batch; the code is "
    "run with as many requests as the lemma's name says",
)


@dataclass
class VolumeSearch:
    """A question about a rule, and where to report its answer. `block` is the block size in tokens,
    or None for any size. `also` is a second target to replay on."""

    console: Console
    rule: str
    setting: Setting
    block: int | None
    out: Path
    time_limit: TimeLimit
    also: tuple[str, Target] | None = None
    certificate: Path | None = None

    def say(self, line: str) -> None:
        output.say(self.console, line)


def answer(console: Console, question: Question) -> int:
    """Search, prove or maximize; return the exit code."""
    changes = list(question.changes)
    any_block = question.prove and "block_size=any" in changes
    if any_block:
        changes.remove("block_size=any")
    setting = read_setting(question.revision, changes)
    _check(question, setting)
    if question.target is not None:
        if setting.max_model_len <= setting.block:
            problem = f"max_model_len {setting.max_model_len}; valid with --target: more than"
            why = "otherwise a release accepts no requests"
            raise InputError("--param", f"{problem} block_size; {why}")
        setting = replace(setting, release_door=True)
    with counterexample.open_second_target(console, question.target, "spyre") as also:
        # These lemmas hold only for a fixed block size.
        settles = setting.pauses and question.rule == LIMIT
        block = None if any_block and not settles else setting.block
        search = VolumeSearch(
            *(console, question.rule, setting, block, question.out, question.time_limit, also),
            certificate=question.certificate,
        )
        if is_own(setting.formula):
            with suppress(Unanswered):  # the search itself then runs out of time
                list(run_in_process(search.time_limit, _check_own, setting.formula, block))
        if question.prove:
            return run_proof(search)
        if question.maximize:
            return run_worst(search, question.maximize)  # type: ignore[arg-type]
        if is_own(setting.formula) and not setting.pauses and not setting.requests:
            return run_own(search)
        return run_search(search)


def _check_own(formula: str, block: int | None) -> Iterator[None]:
    check_on_symbols(formula, block, Random(0).randrange)
    yield None


def answer_vectorized(console: Console, rule: Rule, question: Question) -> int:
    vectorized.check_installed()
    with counterexample.open_second_target(console, question.target, "spyre") as also:
        return vectorized.run_vectorized(
            *(console, rule, question.revision, question.changes, also, question.out),
            question.time_limit,
        )


def _check(question: Question, setting: Setting) -> None:
    if setting.pausing and question.rule == JOIN:
        valid = "pausing=false, which uses the formula"
        raise InputError("--param", f"pausing=true with {JOIN}; valid: {valid}")
    if question.maximize and (setting.pauses or question.rule == JOIN):
        valid = f"{LIMIT}, and a revision that does not pause"
        raise InputError("--maximize", f"{question.maximize!r} of {question.rule}; valid: {valid}")
    if question.maximize == "waste" and setting.stale and not setting.interleave:
        # If requests join one right after another, each is admitted with a different tkv.
        valid = "interleave=true, or a revision that remembers no tkv"
        raise InputError("--param", f"interleave=false with --maximize waste; valid: {valid}")


def run_search(search: VolumeSearch) -> int:
    setting = search.setting
    search.say(f"search {search.rule}, {_describe(setting)}")
    if setting.pauses and search.rule == LIMIT:
        return run_proof(search)  # the proof does not depend on which requests join
    if not setting.requests and _proven_first(search):
        return PROVEN
    return _fewest(search)


def run_own(search: VolumeSearch) -> int:
    """Decide whether a user's formula is sound. If it is not, show a run that exceeds the limit,
    and by how much. Its requests have only a few tokens, so that the run is easy to follow."""
    setting = search.setting
    search.say(f"search {search.rule}, {_describe(setting)}")
    if _proven_first(search):
        search.say(f"  for {blocks_of(search.block)}, any max_model_len and any max_batch_tkv")
        code = PROVEN
    else:
        codes = _smallest(search), _fewest(search)
        code = FOUND if FOUND in codes else codes[1]
    if setting.block == 64:  # the lemmas about slack assume this block size
        _say_slack(search)
    param = shlex.quote(f"formula={setting.formula}")
    command = f"schedproof search {search.rule} --param {param}"
    for objective, of in (("overshoot", "the worst run"), ("waste", "the worst refusal")):
        search.say(f"{of}: {command} --maximize {objective}")
    return code


def _smallest(search: VolumeSearch) -> int:
    """Search for a run with blocks of 2 tokens, short enough to check on paper."""
    search.say("with blocks of 2 tokens and max_model_len 6:")
    try:
        for small, arrivals in run_in_process(search.time_limit, _small, search.setting):
            return _replay_run(replace(search, setting=small), arrivals)
    except Unanswered as why:
        search.say(f"  inconclusive: {why}")
        return INCONCLUSIVE
    search.say("  no counterexample with two requests")
    return INCONCLUSIVE


def _small(setting: Setting) -> Iterator[tuple[Setting, list[Any]]]:
    for limit in range(6, 13):
        small = replace(setting, requests=2, block=2, chunk=2, limit=limit, max_model_len=6)
        for query in fewest(small, 2):
            if query.answer == "sat":
                yield small, list(query.arrivals)


def _say_slack(search: VolumeSearch) -> None:
    formula, most = search.setting.formula, 4 * search.setting.block
    try:
        [tokens] = run_in_process(search.time_limit, _slack, formula, most)
    except Unanswered as why:
        search.say(f"slack: inconclusive: {why}")
        return
    if tokens is None:
        search.say(f"slack: even with {most} more tokens for every request, the lemmas do not hold")
    elif tokens == 0:
        search.say("slack: none is needed; every lemma about the formula holds")
    else:
        more = f"--param {shlex.quote(f'formula={with_slack(formula, tokens)}')}"
        search.say(
            f"slack: with {tokens} more tokens for every request, the lemmas about the formula "
            f"hold: {more}"
        )


def _slack(formula: str, most: int) -> Iterator[int | None]:
    yield least_slack(formula, most)


def _fewest(search: VolumeSearch) -> int:
    setting = search.setting
    harmless = min(largest_harmless(setting), MAX_REQUESTS)
    if harmless:
        search.say(
            f"up to {harmless} requests: {harmless} x {largest_tkv(setting)} <= {setting.limit}, "
            "whichever requests are admitted"
        )
    began, excluded, unknown = time.monotonic(), max(harmless, 1), False
    most = setting.requests or MAX_REQUESTS
    try:
        for query in run_in_process(search.time_limit, fewest, setting, most):
            spent = time.monotonic() - began
            if query.answer == "sat":
                search.say(f"{query.requests} requests ({query.where}): found after {spent:.1f} s")
                return _replay_run(search, list(query.arrivals))
            search.say(f"{query.requests} requests: {query.answer} after {spent:.1f} s")
            unknown |= query.answer == "unknown"
            if not unknown:
                excluded = query.requests
    except Unanswered as why:
        search.say(f"inconclusive: no counterexample with up to {excluded} requests; then {why}")
        return INCONCLUSIVE
    if unknown:
        search.say(f"inconclusive: Z3 excludes only counterexamples of up to {excluded} requests")
        return INCONCLUSIVE
    search.say(f"proven: no counterexample with up to {most} requests in Z3's encoding")
    return PROVEN


def _proven_first(search: VolumeSearch) -> bool:
    lemmas, began = list[Discharged](), time.monotonic()
    try:
        group = ""
        for title, discharged in run_in_process(search.time_limit, _discharge, *_scope(search)):
            if title != group and any(lemma.status != "proven" for lemma in lemmas):
                break  # the lemmas about the formula suffice here; those about the code take longer
            group = title
            lemmas.append(discharged)
    except Unanswered as why:
        search.say(f"no proof: {why}")
        return False
    failed = [lemma for lemma in lemmas if lemma.status != "proven"]
    for lemma in failed:
        search.say(f"no proof: {lemma.name} {lemma.status}: {lemma.sentence}")
    if failed:
        return False
    spent = time.monotonic() - began
    search.say(
        f"proven for {proven_for(*_scope(search))}: {len(lemmas)} lemmas in {spent:.1f} s "
        "(--prove lists them)"
    )
    return True


def run_worst(search: VolumeSearch, objective: Objective) -> int:
    search.setting = setting = replace(search.setting, requests=search.setting.requests or 5)
    search.say(f"worst {objective} of {setting.requests} requests, {_describe(setting)}")
    if objective == "overshoot" and setting.requests <= largest_harmless(setting):
        search.say(
            f"proven: {setting.requests} requests are always within the limit, whichever are "
            "admitted"
        )
        return PROVEN
    began = time.monotonic()
    known: Known | None = None
    why = "Z3 cannot tell"
    try:
        for known in run_in_process(search.time_limit, worst, setting, objective):
            reached = f"{known.reached} is reached, " if known.arrivals else ""
            spent = time.monotonic() - began
            search.say(f"{reached}{known.at_most} is never exceeded, after {spent:.1f} s")
    except Unanswered as error:
        why = str(error)
    if known is None or not known.exact:
        between = f"between {known.reached} and {known.at_most}: " if known else ""
        search.say(f"inconclusive: {between}{why}")
    if known is None:
        return INCONCLUSIVE
    code = _report_worst(search, objective, known)
    return code if known.exact or code == FOUND else INCONCLUSIVE


def _report_worst(search: VolumeSearch, objective: Objective, known: Known) -> int:
    setting = search.setting
    if not known.arrivals:
        if known.exact:
            none_there = "no safe request is refused" if objective == "waste" else "there is none"
            over = f"{setting.limit} is never exceeded"
            search.say(
                f"proven for {setting.requests} requests in Z3's encoding: "
                f"{over if objective == 'overshoot' else none_there}"
            )
        return PROVEN
    if objective == "waste":
        return _refusal(search, known)
    if known.reached <= setting.limit:
        search.say(f"{known.reached} at most, within the limit of {setting.limit}")
        _write(search, _scenario(search, list(known.arrivals)), "volume")
        return PROVEN
    code = _replay_run(search, list(known.arrivals), most=volume)
    if known.exact and code == FOUND:
        beyond = known.reached - setting.limit
        search.say(f"worst of {setting.requests} requests: {beyond} tokens over the limit")
    return code


def _refusal(search: VolumeSearch, known: Known) -> int:
    scenario = _scenario(search, list(known.arrivals))
    last = scenario.requests[-1].id
    waits, joins = (
        _starts(ModelTarget(name), scenario, last) for name in (search.setting.formula, "exact")
    )
    if joins is None or (waits is not None and waits <= joins):
        search.say("inconclusive: on the model, no request waits longer than with the exact check")
        return INCONCLUSIVE
    search.say(
        f"{last} could join in step {joins}, and leave {known.reached} of {search.setting.limit} "
        f"tokens unused; with formula {search.setting.formula}, it joins in step {waits}"
    )
    path = _write(search, scenario, "waste")
    for name in (search.setting.formula, "exact"):
        words = shlex.join([str(path), "--target", f"model:{name}"])
        search.say(f"  replay:   schedproof replay {words}")
    return PROVEN


def _starts(target: Target, scenario: Scenario, request_id: str) -> int | None:
    steps: list[int] = []

    def watch(number: int, step: Step) -> None:
        if step.kind == "prefill" and request_id in step.scheduled:
            steps.append(number)

    run_replay(target, scenario, (), watch)
    return steps[-1] if steps else None


def run_proof(search: VolumeSearch) -> int:
    setting = search.setting
    search.say(
        f"prove {search.rule} for {proven_for(*_scope(search))}, {_configuration(setting)}, "
        f"arithmetic for {blocks_of(search.block)}"
    )
    if not setting.pauses and setting.formula not in CHECKS:
        for line in TERMS:
            search.say(line)
    lemmas, title, began = list[Discharged](), "", time.monotonic()
    query = (*_scope(search), search.certificate)
    try:
        for group, lemma in run_in_process(search.time_limit, _discharge, *query):
            if group != title:
                title = group
                search.say(f"{title}:")
            search.say(lemma_line(lemma))
            search.say(f"           {lemma.sentence}")
            lemmas.append(lemma)
    except Unanswered as why:
        search.say(f"inconclusive: {why}")
        return INCONCLUSIVE
    if search.certificate is not None:
        code = print_certificate(search.say, lemmas, search.certificate)
        if code != PROVEN:
            return code
    failed = sum(lemma.status != "proven" for lemma in lemmas)
    if failed:
        search.say(
            f"inconclusive: {failed} of {len(lemmas)} lemmas not proven, so the argument proves "
            "nothing; without --prove, search looks for a counterexample"
        )
        return INCONCLUSIVE
    spent = time.monotonic() - began
    search.say(
        f"proven in {spent:.1f} s, about the model, for {proven_for(*_scope(search))}; the guard "
        "of each lemma is refuted; solver/spyre/argument.md says what is assumed"
    )
    return PROVEN


def _scope(search: VolumeSearch) -> tuple[str, Setting, int | None]:
    return search.rule, search.setting, search.block


def _discharge(
    rule: str, setting: Setting, block: int | None, certificate: Path | None = None
) -> Iterator[tuple[str, Discharged]]:
    for group in limit_lemmas(rule, setting, block):
        for lemma in discharge(group.lemmas, writing(certificate)):
            yield group.title, lemma


def _scenario(search: VolumeSearch, arrivals: list[Any]) -> Scenario:
    formula, revision = search.setting.formula, search.setting.revision
    if ADMITS_BY[revision] != formula and revision == "sound":
        revision = next((n for n, own in FORMULA_OF_REVISION.items() if own == formula), "sound")
    return to_scenario(replace(search.setting, requests=len(arrivals)), arrivals, revision)


def _write(search: VolumeSearch, scenario: Scenario, name: str) -> Path:
    path = write_scenario(scenario, search.out, name)
    search.say(f"  scenario: {path}")
    return path


def _replay_run(
    search: VolumeSearch, arrivals: list[Any], most: Callable[[Step], int] | None = None
) -> int:
    """Replay the solver's run on the model and show it. Without `most`, the run is shrunk and stops
    at its first step over the limit. With `most`, the run is not shrunk and stops at its worst
    step."""
    scenario = _scenario(search, arrivals)
    [rule] = select(load("spyre"), [search.rule])
    return counterexample.show(
        *(search.console, scenario, rule, search.setting.formula, search.out, search.also),
        found_by="the solver's answer",
        kept=kept_instead(rule.id),
        most=most,
    )


def _describe(setting: Setting) -> str:
    words: dict[str, Any] = {key: getattr(setting, name) for key, name in LENGTHS.items()}
    described = ", ".join(f"{key} {value}" for key, value in words.items())
    described += ", early EOS" * setting.early_eos
    if setting.release_door:
        described += ", of requests that a release accepts (SPY-R62)"
    return f"{_configuration(setting)}: {described}"


def _configuration(setting: Setting) -> str:
    parts = [f"formula {setting.formula}"]
    if setting.revision != "sound":
        parts.append(f"revision {setting.revision}")
    parts.append("interleaving" if setting.interleave else "no interleaving")
    if setting.pauses and not setting.pausing:
        parts.append("no pausing")
    return ", ".join(parts)


QUESTIONS = OwnQuestions(
    rules=(LIMIT, JOIN),
    objectives=OBJECTIVES,
    read_formula=read_formula,
    answer=answer,
    vectorized_rules=vectorized.JUDGED,
    answer_vectorized=answer_vectorized,
)
