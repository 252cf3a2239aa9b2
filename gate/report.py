"""What a gate prints: plain lines, progress where a terminal shows it."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
from rich.console import Console
from rich.markup import escape

from ..model.observation import Step
from ..model.scenario import Request, Scenario
from ..model.systems import full_config, resolve_revision
from ..properties.explain import explain
from ..properties.predicate import Broken
from ..properties.session import Session
from ..spec.catalogue import Rule
from .events import Event, Found, Notice, Progress
from .verdict import RuleVerdict, Verdict

MARKS = {
    "held": ("held", "green"),
    "violated": ("BROKEN", "red"),
    "diverges": ("diverges", "magenta"),
    "not_observable": ("not observable", "yellow"),
    "not_exercised": ("not exercised", "yellow"),
    "inconclusive": ("inconclusive", "yellow"),
    "planned": ("planned", "dim"),
}
# Keys that are always shown; of the others, what is not at its default, in words where there are.
ALWAYS_SHOWN = (
    *("block_size", "chunk_size", "max_num_seqs", "max_num_batched_tokens"),
    *("max_model_len", "max_batch_tkv"),
)
IN_WORDS = {
    ("interleave", False): "interleave off",
    ("prefix_caching", True): "prefix caching",
    ("pausing", False): "pausing off",
    ("long_output_priority", True): "long outputs first",
    ("enable_chunked_prefill", False): "chunking off",
    ("enable_prefix_caching", False): "prefix caching off",
    ("reserve_full_isl", False): "reserve_full_isl off",
}
SHOWN_FIELDS = (
    *("tkv", "left_pad_blocks", "waiting", "prefilling", "paused"),
    *("preempted", "finished"),
)
SHOWN_REQUESTS = 12
SHOWN_DETAILS = 15
DEFAULT_STEP_LIMIT = 10.0


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Whoever read has gone, and so has the verdict: that is no broken rule."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(3)


def make_console() -> Console:
    """A console that never wraps data and obeys NO_COLOR."""
    return _Console(highlight=False, soft_wrap=True)


def say(console: Console, line: str) -> None:
    """One line, as it stands."""
    console.print(line, markup=False, highlight=False)


def notice(console: Console) -> Callable[[str], None]:
    """What says a line in passing."""
    return lambda text: console.print(text, style="dim", markup=False)


def replay_options(target: str, rules: Sequence[str] | None, step_limit: float) -> str:
    """The options with which `replay` sees what was seen: words for a shell, a space before."""
    words = ["--target", target] if target != "model" else []
    words += ["--rule", ",".join(rules)] if rules else []
    words += ["--step-limit", f"{step_limit:g}"] if step_limit != DEFAULT_STEP_LIMIT else []
    return "".join(f" {shlex.quote(word)}" for word in words)


class GateReporter:
    """Prints events as they come: findings at once, progress only on a terminal."""

    def __init__(self, console: Console, rules: Sequence[Rule], options: str) -> None:
        self._console = console
        self._rules = {rule.id: rule for rule in rules}
        self._options = options
        self._status = console.status("") if console.is_terminal else None

    def __call__(self, event: Event) -> None:
        """Print one event."""
        if isinstance(event, Notice):
            self._console.print(one_line(event.text), style="dim", markup=False)
        elif isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, Found):
            self.close()
            finding = event.finding
            print_failure(
                self._console,
                self._rules[finding.rule],
                event.scenario,
                Broken(finding.rule, finding.step, finding.message),
                finding.scenario,
                self._options,
                event.session,
            )
            if finding.divergence:
                self._console.print(f"  known:    {one_line(finding.divergence)}", markup=False)
            print_details(event.session.details or event.stderr, self._console)
            timing = f"found after {finding.found_after:.1f} s"
            if finding.shrunk_in:
                timing += f", shrunk in {finding.shrunk_in:.1f} s"
            self._console.print(f"  {finding.engine}, {finding.scale} scale: {timing}\n")

    def close(self) -> None:
        """Take the progress line away."""
        if self._status is not None:
            self._status.stop()

    def _progress(self, event: Progress) -> None:
        if self._status is None:
            return
        of = f" of {event.of}" if event.of else ""
        self._status.update(f"{event.engine}: run {event.runs}{of}, {event.steps} steps")
        self._status.start()


def print_failure(
    console: Console,
    rule: Rule,
    scenario: Scenario,
    broken: Broken,
    path: str,
    options: str,
    session: Session,
) -> None:
    """The rule, the scenario, the step, the numbers, why, and how to replay it.

    `options` are those of the replay command, as `replay_options` gives them; `session` is the
    run that broke the rule.
    """
    console.print(f"[red]BROKEN[/red] [bold]{rule.id}[/bold] {escape(rule.title)}")
    console.print(f"  rule:     {escape(rule.says)}")
    console.print(f"  source:   {escape(rule.source)}")
    console.print(f"  step {broken.step}:  {escape(one_line(broken.message))}")
    console.print(f"  config:   {escape(_config(scenario))}")
    for line in _requests(scenario):
        console.print(f"  {escape(line)}")
    console.print("  steps before, with what changed:")
    last = None
    for number, step in session.recent:
        console.print(f"    {step_line(number, step, last)}", markup=False)
        last = step
    explanation = explain(broken.rule, scenario, broken.step, session.started.version)
    if explanation:
        console.print("  why:")
    for line in explanation:
        console.print(f"    {line}", markup=False)
    console.print(f"  scenario: {escape(path)}")
    command = f"schedproof replay {shlex.quote(path)}{options}"
    console.print(f"  replay:   {escape(command)}")


def print_details(text: str, console: Console | None = None) -> None:
    """The end of a traceback or of what a target wrote to stderr; without a console, to stderr."""
    for line in text.strip().splitlines()[-SHOWN_DETAILS:]:
        shown = f"  | {one_line(line)}"
        if console is None:
            print(shown, file=sys.stderr)
        else:
            console.print(shown, markup=False)


def print_verdict(console: Console, verdict: Verdict, rules: Sequence[Rule]) -> None:
    """One line a rule, then what ran, then the result."""
    print_rules(console, verdict.rules, rules)
    for engine in verdict.engines:
        refused = f", {engine.refused_configs} configurations refused" * bool(
            engine.refused_configs
        )
        rejected = f", {engine.rejected_requests} requests refused at the door" * bool(
            engine.rejected_requests
        )
        broken_off = "" if engine.complete else ", broken off"
        console.print(
            f"{engine.name}, {engine.scale}: {engine.runs} runs, {engine.steps} steps in "
            f"{engine.seconds:.1f} s{refused}{rejected}{broken_off}"
        )
    console.print(one_line(summary(verdict, rules)), style="bold", markup=False)


def print_rules(console: Console, entries: Sequence[RuleVerdict], rules: Sequence[Rule]) -> None:
    """One line a rule, and how many have none."""
    titles = {rule.id: rule.title for rule in rules}
    by_id = {rule.id: rule for rule in rules}
    planned = [entry for entry in entries if entry.status == "planned"]
    unchecked = [entry for entry in entries if by_id[entry.id].unchecked]
    for entry in entries:
        if entry in planned or entry in unchecked:
            continue
        word, style = MARKS["diverges" if entry.divergence else entry.status]
        console.print(
            f"[{style}]{word:<14}[/{style}] {entry.id:<8} {escape(titles[entry.id])}"
            f"{escape(_reason(entry))}"
        )
        if entry.divergence:
            console.print(f"    the rule: {by_id[entry.id].says}", markup=False)
            console.print(f"    known of {one_line(entry.divergence)}", markup=False)
    if unchecked:
        console.print(
            f"[dim]{len(unchecked)} more have no predicate of their own (schedproof rules says "
            "why, and what stands in)[/dim]"
        )
    if planned:
        console.print(
            f"[dim]{len(planned)} more rules are planned (schedproof rules shows them)[/dim]"
        )


def summary(verdict: Verdict, rules: Sequence[Rule]) -> str:
    """The result in one line."""
    what = f"{verdict.target.name} {verdict.target.version} against {verdict.revision}"
    word = {0: "conforms", 1: "does not conform"}.get(verdict.exit_code, "inconclusive")
    return f"{what}: {word} ({counts(verdict.rules, rules)}; seed {verdict.seed})"


def counts(entries: Sequence[RuleVerdict], rules: Sequence[Rule]) -> str:
    """How many rules got which verdict; those without a predicate are not counted."""
    unchecked = {rule.unchecked for rule in rules if rule.unchecked}
    count = dict.fromkeys(MARKS, 0)
    for entry in entries:
        count[entry.status] += entry.message not in unchecked
    known = sum(bool(entry.divergence) for entry in entries)
    which = f" ({known} known divergence{'s' * (known > 1)})" if known else ""
    parts = [f"{count['held']} held", f"{count['violated']} broken{which}"]
    parts += [
        f"{count[status]} {MARKS[status][0]}"
        for status in ("not_exercised", "not_observable", "inconclusive")
        if count[status]
    ]
    return ", ".join(parts)


def step_line(number: int, step: Step, last: Step | None) -> str:
    """One step for a reader: kind and members, then the other fields that changed."""
    members = ", ".join(f"{name}+{tokens}" for name, tokens in step.scheduled.items())
    parts = [f"step {number:>5} {step.kind:<7} {members}"]
    for name in SHOWN_FIELDS:
        value = getattr(step, name)
        if value and (last is None or value != getattr(last, name)):
            parts.append(f"{name} {_plain(value)}")
    return "  ".join(parts)


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{' '.join(value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} {item}" for key, item in value.items()) + "}"
    return str(value)


def _reason(entry: RuleVerdict) -> str:
    if entry.status == "violated":
        also = f" (with {entry.consequence_of})" if entry.consequence_of else ""
        return f": {one_line(entry.message or '')}{also}"
    if entry.status == "held":
        return f" (at stake in {entry.at_stake} steps)"
    return f": {entry.message}" if entry.message else ""


def _config(scenario: Scenario) -> str:
    revision = resolve_revision(scenario.system, scenario.revision)
    return config_line(scenario.system, revision, scenario.config)


def config_line(system: str, revision: str, config: Mapping[str, Any]) -> str:
    """A configuration for a reader: its sizes, and what is not at its default."""
    usual = full_config(system, revision, {})
    parts = [f"{key} {config[key]}" for key in ALWAYS_SHOWN if key in config]
    parts += [
        IN_WORDS.get((key, value), f"{key} {value}")
        for key, value in config.items()
        if key not in ALWAYS_SHOWN and value != usual[key]
    ]
    return f"{system} {revision}, {', '.join(parts)}"


def _requests(scenario: Scenario) -> list[str]:
    lines = []
    for request in scenario.requests[:SHOWN_REQUESTS]:
        early = request.tokens_to_emit < request.max_tokens
        stops = f", stops after {request.tokens_to_emit}" if early else ""
        aborted = ""
        if request.abort_at is not None:
            inside = "inside" if request.abort_inside else "before"
            aborted = f", aborted {inside} step {request.abort_at}"
        lines.append(
            f"{request.id:<9} arrives before step {request.arrival}: prompt {_prompt(request)}, "
            f"max_tokens {request.max_tokens}{stops}{aborted}"
        )
    more = len(scenario.requests) - SHOWN_REQUESTS
    return lines + ([f"and {more} more requests"] if more > 0 else [])


def _prompt(request: Request) -> str:
    """Its length, and whose words it repeats."""
    if all(stream == request.id for stream, _ in request.prompt):
        return str(request.prompt_len)
    parts = " + ".join(f"{stream} {tokens}" for stream, tokens in request.prompt)
    return f"{request.prompt_len} ({parts})"


def verdict_json(verdict: Verdict) -> bytes:
    """The verdict file."""
    return as_json(verdict)


def as_json(value: Any) -> bytes:
    """A file that people read, too."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def fail(message: str) -> None:
    """One line on stderr."""
    print(f"schedproof: {one_line(message)}", file=sys.stderr)


def one_line(text: str) -> str:
    """What a target says, without line ends and control characters."""
    return "".join(char if char.isprintable() else " " for char in text)
