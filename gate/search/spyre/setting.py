"""Interpret the options `--revision` and `--param KEY=VALUE` of `schedproof search`."""

from dataclasses import replace
from typing import Any

from ....model.errors import InputError
from ....model.spyre.model import REFERENCE, REVISIONS, admitting_by
from ....model.spyre.sound import SOUND
from ....solver.spyre.admission_sequences import ADMITS_BY, Setting
from ....solver.spyre.proofs_by_rule import LIMIT
from ..proofs import read_number

MAX_REQUESTS = 32
LENGTHS = {
    "block_size": "block",
    "chunk_size": "chunk",
    "max_batch_tkv": "limit",
    "max_model_len": "max_model_len",
}
# Releases that decide like 2.1.2, except that each has its own admission formula.
RELEASED_FORMULAS = ("2.0.1", "2.1.0")
SWITCHES = ("early_eos", "interleave", "pausing")


def read_setting(revision: str | None, changes: list[str]) -> Setting:
    """Return the setting that `--revision` and `--param` describe. Its number of requests is 0 if
    none is given."""
    name = "sound" if revision is None else revision
    formula = ADMITS_BY.get(name)
    if name in RELEASED_FORMULAS:
        name, formula = "2.1.2", name
    if formula is None:
        valid = ", ".join((*ADMITS_BY, *RELEASED_FORMULAS))
        problem = f"{name!r} is not a revision on which Z3 can decide {LIMIT}; valid: {valid}"
        raise InputError("--revision", problem)
    pauses = "paused" in REVISIONS[name].shows
    setting = Setting(formula, 0, revision=name, pausing=pauses)
    for change in changes:
        key, _, value = change.partition("=")
        if key == "formula":
            if admitting_by(SOUND, value) is None:
                valid = ", ".join(REFERENCE.formulas)
                raise InputError("--param", f"formula {value!r} is unknown; valid: {valid}")
            setting = replace(setting, formula=value)
        elif key in SWITCHES:
            if value not in ("true", "false"):
                raise InputError("--param", f"{change!r}; valid: {key}=true, {key}=false")
            if key == "pausing" and not pauses:
                raise InputError(
                    "--param", f"{change!r}; valid only together with --revision 2.5.2"
                )
            switched: dict[str, Any] = {key: value == "true"}
            setting = replace(setting, **switched)
        elif key == "requests":
            number = read_number(value)
            if number is None or not 2 <= number <= MAX_REQUESTS:
                raise InputError("--param", f"{change!r}; valid: 2 to {MAX_REQUESTS} requests")
            setting = replace(setting, requests=number)
        elif key in LENGTHS:
            number = read_number(value)
            if number is None or not 1 <= number <= 10**7:
                valid = "a number of tokens, 1 to 10000000"
                if key == "block_size":
                    valid += ", or any together with --prove"
                raise InputError("--param", f"{change!r}; valid: {valid}")
            length: dict[str, Any] = {LENGTHS[key]: number}
            setting = replace(setting, **length)
        else:
            valid = ", ".join((*LENGTHS, "requests", "formula", *SWITCHES))
            raise InputError("--param", f"{change!r}; valid: KEY=VALUE with KEY one of {valid}")
    return _check(setting)


def _check(setting: Setting) -> Setting:
    if setting.chunk % setting.block:
        raise InputError(
            "--param", f"chunk_size {setting.chunk} is not a multiple of block_size {setting.block}"
        )
    if setting.max_model_len < 2:
        raise InputError(
            "--param", "max_model_len 1; valid: at least 2, so that a request can decode"
        )
    if setting.limit < setting.max_model_len:
        raise InputError(
            "--param",
            f"max_batch_tkv {setting.limit}; valid: at least max_model_len, so that one "
            "request fits",
        )
    return setting


def read_formula(name: str) -> str:
    return read_setting(None, [f"formula={name}"]).formula


def kept_instead(rule: str) -> str:
    """Return the message for a run that breaks the rule on the model and not on the target, or ""
    if the rule has no message of its own."""
    if rule != LIMIT:
        return ""
    return "stays within the limit in this run, because it uses another formula to admit requests"
