"""A whole gate as events, with failures of every kind, times that stand still and hostile words."""

import re
import shlex
from collections.abc import Sequence
from datetime import date
from typing import Any

from rich.console import Console

from schedproof.gate.judging.faults import faults_of
from schedproof.gate.judging.verdict import (
    Began,
    Concluded,
    EngineRun,
    Event,
    Finding,
    Found,
    Notice,
    Progress,
    RuleVerdict,
    TargetInfo,
    Verdict,
)
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load, select

from .build import Toy

RULES = load("spyre")
BY_ID = {rule.id: rule for rule in RULES}
HOSTILE = (
    *("<script>alert(1)</script>", "]]>", "::error::x", "two\nlines", "\x1b[31mred", "\x00\uffff"),
    *("\u202egnp.exe", "../../x", "%0A::error::y", "a|b`c`*d*", "##[error]z", "[bold]:warning:"),
)
TARGET = TargetInfo("cmd:toy --fast", "toy <b>&\n::error::", "1.0 ]]>")
FOLDER = "out: 100%, é\n::error::<b>"


class Strangers(Toy):
    """A request that waits is another request, of a hostile name."""

    names: Sequence[str] = HOSTILE

    def bend(self, step: dict[str, Any]) -> None:
        if len(step["running"]) > 1:
            step["waiting"] = [f"{name}!" for name in self.names]


def scenario(names: Sequence[str] = HOSTILE) -> Scenario:
    """Requests of hostile names."""
    lengths = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96}
    requests = tuple(
        Request(id=name, arrival=0, prompt=((name, 3),), max_tokens=3, output_len=3)
        for name in names
    )
    return Scenario(
        system="spyre",
        revision="sound",
        config=full_config("spyre", "sound", lengths),
        requests=requests,
    )


def found(path: str, names: Sequence[str] = HOSTILE, **changes: Any) -> Found:
    """What breaks when strangers wait, in the file `path`."""
    meant, target = scenario(names), Strangers()
    target.names = names
    outcome = replay(target, meant, select(RULES, ["ALL-R03"]))
    first = outcome.broken[0]
    values: dict[str, Any] = {
        "rule": first.rule,
        "engine": "hypothesis",
        "scale": "small",
        "scenario": path,
        "step": first.step,
        "message": first.message,
        "requests": len(meant.requests),
        "consequences": ("SPY-R22",),
        "found_after": 1.5,
        "shrunk_in": 0.25,
    }
    command = f"schedproof replay {shlex.quote(path)} --target 'cmd:toy --fast'"
    stderr = "assert failed\n::error::of the target \x1b[31m\n"
    values["replay"] = command
    return Found(Finding(**(values | changes)), meant, outcome.session.excerpt, command, stderr)


def verdict(names: Sequence[str] = HOSTILE, **changes: Any) -> Verdict:
    """Broken, known, a consequence, and every other status."""
    first, known = _findings(names)
    at = (first.finding.step, first.finding.scenario)
    values: dict[str, Any] = {
        "target": TARGET,
        "system": "spyre",
        "revision": "sound",
        "profile": "quick",
        "seed": 7,
        "engines": (
            EngineRun("corpus", "production", 3, 1_200, 0.5, 1),
            EngineRun("hypothesis", "small", 60, 800, 2.0, 0, 4, complete=False),
        ),
        "rules": (
            RuleVerdict("ALL-R01", "held", exercised=800),
            RuleVerdict("ALL-R03", "violated", *at, first.finding.message, exercised=9, fault=1),
            RuleVerdict(
                *("SPY-R22", "violated", *at, "broken in the same step", "ALL-R03", 5), fault=1
            ),
            RuleVerdict(
                *("SPY-R07", "violated", 2),
                known.finding.scenario,
                known.finding.message,
                exercised=4,
                divergence=known.finding.divergence,
                fault=2,
            ),
            RuleVerdict("SPY-R26", "inconclusive", message="broken once, but not again"),
            RuleVerdict("SPY-R35", "not_exercised", message="A request waits <b>."),
            RuleVerdict("ALL-R09", "not_observable", message="the target does not show ]]> blocks"),
            RuleVerdict("SPY-R50", "planned", message="Later."),
        ),
        "findings": (first.finding, known.finding),
        "exit_code": 1,
    }
    values |= changes
    values.setdefault("faults", faults_of(values["findings"], BY_ID, date(2026, 1, 31)))
    return Verdict(**values)


def events(names: Sequence[str] = HOSTILE, **changes: Any) -> list[Event]:
    """A gate from its beginning to its end; `changes` are of the verdict."""
    first, known = _findings(names)
    return [
        Began(TARGET, "spyre", "sound", "quick", 7, ("small", "tight")),
        Notice("corpus: a\x1b[31m\n::error::b left out of profile quick"),
        Progress("corpus", 0, 2, 0),
        Progress("hypothesis, small", 10, 60, 100),
        Progress("hypothesis, small", 12, 60, 140, shrinking=True),
        first,
        known,
        Concluded(verdict(names, **changes)),
    ]


def printed(console: Console) -> str:
    """What a console of the fixture was told until now."""
    file: Any = console.file
    return str(file.buffer.getvalue().decode(file.encoding))


def _findings(names: Sequence[str]) -> tuple[Found, Found]:
    new = found(f"{FOLDER}/ALL-R03-0123456789.json", names)
    message = f"too wide for {', '.join(names)}"
    known = {"rule": "SPY-R07", "step": 2, "message": message, "consequences": ()}
    says = "2.0.0 and ]]> later: does <b>otherwise</b>\n::error::"
    return new, found("out/SPY-R07-9876543210.json", names, **known, divergence=says)


COMMAND = re.compile(r"\s*::")


def heard(lines: Sequence[str], token: str) -> list[str]:
    """The lines that GitHub's runner takes for commands, between those that stop it."""
    commands, silent = [], False
    for line in lines:
        if silent:
            silent = line != f"::{token}::"
        elif line == f"::stop-commands::{token}":
            silent = True
        elif COMMAND.match(line) or "##[" in line:
            commands.append(line)
    assert not silent
    return commands
