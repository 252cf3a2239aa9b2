"""What every command prints with: the console, a failure in full, one line for what is wrong."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import msgspec
from rich.console import Console
from rich.markup import escape

from ...model.scenario import Request, Scenario
from ...model.systems import full_config, resolve_revision
from ...properties.checking.session import Excerpt
from ...properties.explanations.explain import explain
from ...properties.rules.predicate import Broken
from ...spec.catalogue import Rule
from . import shortened
from .step_lines import one_line as one_line
from .step_lines import step_line

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
SHOWN_REQUESTS = 12
SHOWN_DETAILS = 15


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(3)


def make_console() -> Console:
    """A console that never wraps data, takes no `:name:` for a picture, and obeys NO_COLOR."""
    return _Console(highlight=False, soft_wrap=True, emoji=False)


def say(console: Console, line: str) -> None:
    """One line, as it stands, whatever text is in it."""
    console.print(one_line(line), markup=False, highlight=False)


@contextmanager
def busy(console: Console, what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner and `what` on a terminal, as long as the block runs. The function that it
    gives shows words behind `what`. Where there is no terminal, nothing is shown."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(escape(what)) as status:
        yield lambda words: status.update(escape(f"{what}: {words}"))


def plural(number: int, noun: str) -> str:
    """Return a number and its noun."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def notice(console: Console) -> Callable[[str], None]:
    """What says a line in passing."""
    return lambda text: console.print(text, style="dim", markup=False)


def print_failure(
    console: Console,
    rule: Rule,
    scenario: Scenario,
    broken: Broken,
    path: str,
    options: str,
    run: Excerpt,
) -> None:
    """The rule, the scenario, the step, the numbers, why, and how to replay it.

    `options` are those of the replay command, as `replay_options` gives them; `run` is the end of
    the run that broke the rule.
    """
    command = f"schedproof replay {shlex.quote(path)}{options}"
    lines = failure_lines(rule, scenario, broken, path, command, run)
    show_failure(console, rule, lines, "ADAPTER" if broken.by_adapter else "BROKEN")


def show_failure(console: Console, rule: Rule, lines: Sequence[str], word: str = "BROKEN") -> None:
    """The lines of a failure under the rule that it breaks."""
    console.print(f"[red]{word}[/red] [bold]{rule.id}[/bold] {escape(rule.title)}")
    for line in lines:
        console.print(f"  {line}", markup=False)


def failure_lines(
    rule: Rule, scenario: Scenario, broken: Broken, path: str, replay: str, run: Excerpt
) -> list[str]:
    """All that is known of a failure, a printable line each: `replay` is the whole command."""
    lines = [
        f"rule:     {rule.statement}",
        f"source:   {rule.source}",
        f"step {broken.step}:  {broken.message}",
        f"config:   {scenario_config(scenario)}",
        *request_lines(scenario),
        "steps before, with what changed:",
    ]
    last = None
    for number, step in run.recent:
        lines.append(f"  {step_line(number, step, last, scenario.config)}")
        last = step
    explanation = explain(broken.rule, scenario, broken.step, run.version)
    if explanation:
        lines += ["why:", *(f"  {line}" for line in explanation)]
    show = replay.replace("schedproof replay ", "schedproof show ", 1)
    ends = [f"scenario: {path}", f"replay:   {replay}", f"show:     {show}"]
    return [*(shortened(one_line(line)) for line in lines), *map(one_line, ends)]


def print_details(text: str, console: Console | None = None) -> None:
    """The end of a traceback or of what a target wrote to stderr; without a console, to stderr."""
    for line in text.strip().splitlines()[-SHOWN_DETAILS:]:
        shown = f"  | {one_line(line)}"
        if console is None:
            to_stderr(shown)
        else:
            console.print(shown, markup=False)


def scenario_config(scenario: Scenario) -> str:
    revision = resolve_revision(scenario.system, scenario.revision)
    return config_line(scenario.system, revision, scenario.config)


def config_line(system: str, revision: str, config: Mapping[str, Any]) -> str:
    """A configuration for a reader: its sizes, and what is not at its default."""
    usual = full_config(system, revision, {})
    parts = [f"{key} {config[key]}" for key in ALWAYS_SHOWN if key in config]
    for key, value in config.items():
        if key not in ALWAYS_SHOWN and value != usual.get(key):
            parts += _in_words(key, value)
    return f"{system} {revision}, {', '.join(parts)}"


def _in_words(key: str, value: Any) -> list[str]:
    """A key that is not at its default; a mapping (a target's own keys) is listed key by key."""
    if isinstance(value, Mapping):
        return [f"{inner} {given}" for inner, given in value.items()]
    return [IN_WORDS.get((key, value), f"{key} {value}")]


def request_lines(scenario: Scenario) -> list[str]:
    lines = []
    for request in scenario.requests[:SHOWN_REQUESTS]:
        early = request.tokens_to_emit < request.max_tokens
        stops = f", stops after {request.tokens_to_emit}" if early else ""
        aborted = ""
        if request.abort_at is not None:
            inside = "inside" if request.abort_inside else "before"
            aborted = f", aborted {inside} step {request.abort_at}"
        arrives = f"{_named(request):<9} arrives before step {request.arrival}"
        lengths = f"prompt {_prompt(request)}, max_tokens {request.max_tokens}"
        words = encoder_words(request) + load_words(request)
        lines.append(f"{arrives}: {lengths}{words}{stops}{aborted}")
    more = len(scenario.requests) - SHOWN_REQUESTS
    return lines + ([f"and {more} more requests"] if more > 0 else [])


def encoder_words(request: Request) -> str:
    """What an encoder computes of a request, to follow other words; empty for nothing."""
    if not request.encoder_inputs:
        return ""
    names = [request.prompt[number][0] for number in request.encoder_inputs]
    return f", encoder inputs {' + '.join(names)}"


def load_words(request: Request) -> str:
    """What a connector loads and sends of a request, to follow other words; empty for nothing."""
    words = ""
    if request.external_tokens:
        tokens = min(request.external_tokens, request.prompt_len)
        words = f", a load has {tokens} tokens, after {request.load_steps} steps"
    if request.load_fails_at is not None:
        words += f", fails from token {request.load_fails_at} on"
    if request.load_deferrals:
        words += f", {request.load_deferrals} times no answer whether it can be loaded"
    if request.send_steps is not None:
        words += f", its blocks are sent in {request.send_steps + 1} steps"
    return words


def _named(request: Request) -> str:
    return request.id if request.id[:1].isalnum() else repr(request.id)


def _prompt(request: Request) -> str:
    """Its length, and the requests whose tokens it repeats."""
    if all(stream == request.id for stream, _ in request.prompt):
        return str(request.prompt_len)
    parts = " + ".join(f"{stream} {tokens}" for stream, tokens in request.prompt)
    return f"{request.prompt_len} ({parts})"


def as_json(value: Any) -> bytes:
    """A file that people read, too."""
    return msgspec.json.format(json_line(value), indent=2) + b"\n"


def json_line(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_unicode(msgspec.to_builtins(value)))


def _unicode(value: Any) -> Any:
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unicode(item) for item in value]
    return unicode_text(value) if isinstance(value, str) else value


def unicode_text(text: str) -> str:
    """Return the text with lone surrogates escaped, so that it can be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def fail(message: str) -> None:
    to_stderr(f"schedproof: {shortened(one_line(message))}")


def to_stderr(line: str) -> None:
    """Print it; where it cannot be written it is lost, and the exit code is what it is."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
