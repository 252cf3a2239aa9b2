"""`schedproof search`: what the solver finds or proves of one rule, printed as it comes."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ..model.errors import InputError
from ..model.spyre.volumetric import FORMULAS
from ..model.target import ModelTarget
from ..properties.replay import replay as run_replay
from ..solver.spyre.fewest import Asked, fewest
from ..solver.spyre.lemmas import Discharged, discharge
from ..solver.spyre.volumetric import Setting, largest_harmless, to_scenario
from ..solver.spyre.worst import Known, worst
from ..spec.catalogue import load, select
from . import report
from .bounded import Unanswered, bounded
from .scenario_file import write_scenario

RULE = "SPY-R07"
FOUND, PROVEN, INCONCLUSIVE = 1, 0, 3
MOST_REQUESTS = 32
FORMULA_OF_REVISION = {
    "sound": "common_base",
    "documented": "document_realigned",
    "2.1.2": "2.1.2",
}
LENGTHS = {
    "block_size": "block",
    "chunk_size": "chunk",
    "max_batch_tkv": "limit",
    "max_model_len": "max_model_len",
}


def read_setting(revision: str | None, changes: list[str]) -> Setting:
    """The question that `--revision` and `--set key=value` ask.

    Raises:
        InputError: an unknown revision or key, or an impossible value.
    """
    name = revision or "sound"
    if name not in FORMULA_OF_REVISION:
        valid = ", ".join(FORMULA_OF_REVISION)
        raise InputError("--revision", f"{name!r} has no encoding of {RULE}; valid: {valid}")
    setting = Setting(FORMULA_OF_REVISION[name], 5)
    for change in changes:
        key, _, value = change.partition("=")
        if key == "formula":
            if value not in FORMULAS:
                valid = ", ".join(FORMULAS)
                raise InputError("--set", f"formula {value!r} is unknown; valid: {valid}")
            setting = replace(setting, formula=value)
        elif key == "early_eos":
            if value not in ("true", "false"):
                raise InputError("--set", f"{change!r}; valid: early_eos=true, early_eos=false")
            setting = replace(setting, early_eos=value == "true")
        elif key == "requests":
            if not value.isascii() or not value.isdigit() or not 2 <= int(value) <= MOST_REQUESTS:
                raise InputError("--set", f"{change!r}; valid: 2 to {MOST_REQUESTS} requests")
            setting = replace(setting, requests=int(value))
        elif key in LENGTHS:
            if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 10**7:
                raise InputError("--set", f"{change!r}; valid: a number of tokens, 1 to 10000000")
            length: dict[str, Any] = {LENGTHS[key]: int(value)}
            setting = replace(setting, **length)
        else:
            valid = ", ".join((*LENGTHS, "requests", "formula", "early_eos"))
            raise InputError("--set", f"{change!r}; valid: KEY=VALUE with KEY one of {valid}")
    return _checked(setting)


def _checked(setting: Setting) -> Setting:
    if setting.chunk % setting.block:
        raise InputError(
            "--set", f"chunk_size {setting.chunk} is not a multiple of block_size {setting.block}"
        )
    if setting.max_model_len <= setting.block:
        raise InputError(
            "--set", f"max_model_len {setting.max_model_len}; valid: more than block_size"
        )
    if setting.limit < setting.max_model_len:
        raise InputError(
            "--set", f"max_batch_tkv {setting.limit}; valid: at least max_model_len, one request"
        )
    return setting


def run_search(console: Console, setting: Setting, out: Path, time_limit: float) -> int:
    """Look for the fewest requests that break the rule; the exit code."""
    _say(console, f"search {RULE}, {_described(setting)}")
    harmless = min(largest_harmless(setting), MOST_REQUESTS)
    blocks = -(-setting.max_model_len // setting.block) * setting.block
    _say(
        console,
        f"up to {harmless} requests: {harmless} x {blocks} <= {setting.limit}, whoever is admitted",
    )
    began, excluded, unknown = time.monotonic(), harmless, False
    try:
        for asked in bounded(time_limit, _fewest, setting):
            spent = time.monotonic() - began
            if asked.answer == "sat":
                _say(console, f"{asked.requests} requests ({asked.where}): sat after {spent:.1f} s")
                return _replayed(console, setting, asked, out)
            _say(console, f"{asked.requests} requests: {asked.answer} after {spent:.1f} s")
            unknown |= asked.answer == "unknown"
            if not unknown:
                excluded = asked.requests
    except Unanswered as why:
        _say(console, f"inconclusive: no counterexample with up to {excluded} requests; then {why}")
        return INCONCLUSIVE
    if unknown:
        _say(console, f"inconclusive: unsat with up to {excluded} requests only")
        return INCONCLUSIVE
    _say(console, f"proven: no counterexample with up to {MOST_REQUESTS} requests")
    return PROVEN


def run_worst(console: Console, setting: Setting, out: Path, time_limit: float) -> int:
    """How far so many requests can exceed the limit, and the run that does; the exit code."""
    _say(console, f"worst volume of {setting.requests} requests, {_described(setting)}")
    began = time.monotonic()
    known: Known | None = None
    why = "Z3 cannot tell"
    try:
        for known in bounded(time_limit, worst, setting):
            spent = time.monotonic() - began
            _say(
                console,
                f"{setting.limit + known.reached} is reached, {setting.limit + known.at_most} "
                f"never exceeded, after {spent:.1f} s",
            )
    except Unanswered as error:
        why = str(error)
    if known is None:
        reached = setting.requests <= largest_harmless(setting)
        _say(console, "proven: they fit whoever is admitted" if reached else f"inconclusive: {why}")
        return PROVEN if reached else INCONCLUSIVE
    if not known.exact:
        _say(console, f"inconclusive between the two: {why}")
    if not known.arrivals:
        if known.exact:
            _say(console, "proven: the limit is never exceeded")
        return PROVEN if known.exact else INCONCLUSIVE
    code = _replayed(console, setting, Asked(setting.requests, "", "sat", known.arrivals), out)
    if known.exact and code == FOUND:
        _say(console, f"worst of {setting.requests} requests: {known.reached} tokens too many")
    return code


def run_proof(console: Console, setting: Setting, time_limit: float) -> int:
    """Prove the rule for every number of requests, lemma by lemma; the exit code."""
    _say(console, f"prove {RULE} for every number of requests and steps, {_described(setting)}")
    failed = 0
    try:
        for one in bounded(time_limit, _discharge, setting.formula, setting.block):
            _say(console, f"{one.status:10} {one.name:18} {one.seconds:5.2f} s  {one.sentence}")
            failed += one.status != "proven"
    except Unanswered as why:
        _say(console, f"inconclusive: {why}")
        return INCONCLUSIVE
    if failed:
        _say(
            console,
            f"inconclusive: {failed} of the lemmas fail, so this argument does not hold; "
            "search without --prove looks for a counterexample",
        )
        return INCONCLUSIVE
    _say(console, "proven, each lemma with a weaker one beside it that is refuted")
    return PROVEN


def _fewest(setting: Setting) -> Iterator[Asked]:
    return fewest(setting, MOST_REQUESTS)


def _discharge(formula: str, block: int) -> Iterator[Discharged]:
    return discharge(formula, block)


def _replayed(console: Console, setting: Setting, asked: Asked, out: Path) -> int:
    """Nothing is reported that does not break the rule on the model, step by step."""
    revision = next(
        (name for name, formula in FORMULA_OF_REVISION.items() if formula == setting.formula),
        "sound",
    )
    scenario = to_scenario(
        replace(setting, requests=asked.requests), list(asked.arrivals), revision
    )
    rules = select(load("spyre"), [RULE])
    outcome = run_replay(ModelTarget(setting.formula), scenario, rules)
    if not outcome.broken:
        _say(console, "inconclusive: the solver's answer does not break the rule on the model")
        return INCONCLUSIVE
    path = write_scenario(scenario, out, RULE)
    target = f"model:{setting.formula}"
    options = report.replay_options(target, [RULE], 10.0)
    report.print_failure(
        console, rules[0], scenario, outcome.broken[0], str(path), options, outcome.session
    )
    return FOUND


def _described(setting: Setting) -> str:
    words: dict[str, Any] = {key: getattr(setting, name) for key, name in LENGTHS.items()}
    described = ", ".join(f"{key} {value}" for key, value in words.items())
    return f"formula {setting.formula}: {described}" + ", early EOS" * setting.early_eos


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False)
