"""Output shared by all commands: the console, failures in full, and one-line errors."""

import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.text import Text

from ...model.errors import InputError
from ...model.scenario import Request, Scenario
from ...model.systems import full_config, resolve_revision
from ...properties.checking.session import Excerpt
from ...properties.explanations.failure import explain
from ...properties.rules.predicate import Broken
from ...spec.catalogue import Rule
from . import shortened
from .step_lines import one_line as one_line
from .step_lines import step_line

# Keys that are always shown. Other keys are shown if they differ from their default. IN_WORDS gives
# the wording for some of them.
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
# Text to be copied, such as a command or a line of a file, is not wrapped.
COPIED = re.compile(
    r"schedproof (?:corpus|explore|gate|init|replay|search|show|step)\b|^ +\w+ = \""
)
LABEL = re.compile(r" *(?:\d+\. |\S(?:\S| (?! )){0,16}  +)")
SHOWN_DETAILS = 15


class _Console(Console):
    def print(self, *objects: Any, markup: bool | None = None, **options: Any) -> None:
        """Print an object. On a terminal, wrap long text between words, but not commands, which
        must remain easy to copy. Output to files and pipes is never wrapped."""
        match objects:
            case (str(text),) if self.is_terminal and not COPIED.search(text):
                objects = (self._wrap(self.render_str(text, markup=markup)),)
        super().print(*objects, markup=markup, **options)

    def _wrap(self, text: Text) -> Text:
        """Wrap the text. After a label at its beginning, such as "rule:", align further lines with
        the text behind the label."""
        if text.cell_len <= self.width or "\n" in text.plain:
            return text
        label = LABEL.match(text.plain)
        indent = label.end() if label else len(text.plain) - len(text.plain.lstrip()) + 2
        first, rest = text.divide([indent])
        lines = rest.wrap(self, max(self.width - indent, 20), no_wrap=False)
        for line in lines:
            line.rstrip()
        return first + Text("\n" + " " * indent).join(lines)

    def status(self, *args: Any, **options: Any) -> Status:
        """Return a spinner. It shows nothing if FORCE_COLOR asks for colours in a file or pipe."""
        is_shown = self._force_terminal or not self.is_terminal or self.file.isatty()
        console = self if is_shown else Console(file=io.StringIO())
        return Status(*args, **options, console=console)

    def on_broken_pipe(self) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(3)


def make_console() -> Console:
    """Return a console that never wraps data, does not turn `:name:` into an emoji, and respects
    NO_COLOR."""
    console = _Console(highlight=False, soft_wrap=True, emoji=False)
    if not console.width:  # COLUMNS=0, with which rich would print nothing
        console.width = 80
    return console


def say(console: Console, line: str) -> None:
    """Print the text as one line, without interpreting markup."""
    console.print(one_line(line), markup=False, highlight=False)


@contextmanager
def busy(console: Console, what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal while the block runs. Yield a function that appends to the
    spinner's text."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(escape(what)) as status:
        yield lambda words: status.update(escape(f"{what}: {words}"))


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def notice(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, style="dim", markup=False)


def print_failure(
    console: Console,
    rule: Rule,
    scenario: Scenario,
    broken: Broken,
    path: str,
    options: str,
    run: Excerpt,
    why: Sequence[str] | None = None,
) -> None:
    """Print a failure in full. `options` are those of the replay command, and `run` holds the last
    steps before the failure."""
    command = f"schedproof replay {shlex.quote(path)}{options}"
    lines = failure_lines(rule, scenario, broken, path, command, run, why)
    show_failure(console, rule, lines, "ADAPTER" if broken.by_adapter else "BROKEN")


def show_failure(console: Console, rule: Rule, lines: Sequence[str], word: str = "BROKEN") -> None:
    console.print(f"[red]{word}[/red] [bold]{rule.id}[/bold] {escape(rule.title)}")
    for line in lines:
        console.print(f"  {line}", markup=False)


def failure_lines(
    rule: Rule,
    scenario: Scenario,
    broken: Broken,
    path: str,
    replay: str,
    run: Excerpt,
    why: Sequence[str] | None = None,
) -> list[str]:
    """Return the lines that describe a failure in full. `replay` is the replay command, and `why`
    is the known cause."""
    lines = [
        f"rule:     {rule.statement}",
        f"source:   {rule.source}",
        f"step {broken.step}:  {broken.message}",
        f"config:   {scenario_config(scenario)}",
        *request_lines(scenario),
        "the steps before, and what changed:",
    ]
    last = None
    for number, step in run.recent:
        lines.append(f"  {step_line(number, step, last, scenario.config)}")
        last = step
    explanation = why
    if explanation is None:
        explanation = explain(broken.rule, scenario, broken.step, run.version)
    if explanation:
        lines += ["why:", *(f"  {line}" for line in explanation)]
    show = replay.replace("schedproof replay ", "schedproof show ", 1)
    ends = [f"scenario: {path}", f"replay:   {replay}", f"show:     {show}"]
    return [*(shortened(one_line(line)) for line in lines), *map(one_line, ends)]


def last_lines(text: str) -> list[str]:
    """Return the end of a traceback or of a target's stderr, with each line shortened and made safe
    to print."""
    return [shortened(one_line(line)) for line in text.strip().splitlines()[-SHOWN_DETAILS:]]


def print_details(text: str, console: Console | None = None) -> None:
    """Print the end of a traceback or of a target's stderr. Without a console, print it to
    stderr."""
    for line in last_lines(text):
        shown = f"  | {line}"
        if console is None:
            to_stderr(shown)
        else:
            console.print(shown, markup=False)


def scenario_config(scenario: Scenario) -> str:
    revision = resolve_revision(scenario.system, scenario.revision)
    return config_line(scenario.system, revision, scenario.config)


def config_line(system: str, revision: str, config: Mapping[str, Any]) -> str:
    """Describe a configuration by its sizes and by the keys whose values differ from their
    defaults."""
    usual = full_config(system, revision, {})
    with suppress(InputError):  # a recorded configuration may contain unknown keys
        config = full_config(system, revision, config)
    parts = [f"{key} {config[key]}" for key in ALWAYS_SHOWN if key in config]
    for key, value in config.items():
        if key not in ALWAYS_SHOWN and value != usual.get(key):
            parts += _in_words(key, value)
    return f"{system} {revision}, {', '.join(parts)}"


def _in_words(key: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{inner} {given}" for inner, given in value.items()]
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        # these values are clear without their keys
        return [f"{key} {' + '.join(' '.join(map(str, item.values())) for item in value)}"]
    return [IN_WORDS.get((key, value), f"{key} {value}")]


def request_lines(scenario: Scenario) -> list[str]:
    lines, loads = [], scenario.config.get("kv_connector")
    for request in scenario.requests[:SHOWN_REQUESTS]:
        early = request.tokens_to_emit < request.max_tokens
        stops = f", stops after {request.tokens_to_emit}" if early else ""
        aborted = ""
        if request.abort_at is not None:
            inside = "inside" if request.abort_inside else "before"
            aborted = f", aborted {inside} step {request.abort_at}"
        arrives = f"{_named(request):<9} arrives before step {request.arrival}"
        lengths = f"prompt {_prompt(request)}, max_tokens {request.max_tokens}"
        words = partition_words(request) + encoder_words(request)
        words += load_words(request) if loads else ""
        if request.sent_as is not None:
            words += f", sent as {request.sent_as}"
        if request.grammar_steps:
            words += f", its grammar is compiled after {plural(request.grammar_steps, 'step')}"
        if request.tool_steps:
            words += f", its tool runs for {plural(request.tool_steps, 'step')}"
        words += ", its grammar is invalid" if request.grammar_fails else ""
        if request.grammar_begins:
            words += f", its grammar begins after {plural(request.grammar_begins, 'token')}"
        if request.grammar_ends is not None:
            words += f", its grammar ends after {plural(request.grammar_ends, 'token')}"
        if request.grammar_drafts:
            words += (
                f", {', '.join(map(str, request.grammar_drafts))} of its drafts fit its grammar"
            )
        turns = turn_words(request)
        lines.append(f"{arrives}: {lengths}{words}{stops}{aborted}{turns}")
    more = len(scenario.requests) - SHOWN_REQUESTS
    events = [f"{event.kind} before step {event.step}" for event in scenario.events]
    return lines + ([f"and {more} more requests"] if more > 0 else []) + events


def turn_words(request: Request) -> str:
    words = ""
    for turn in request.turns:
        when = "at once" if turn.delay is None else f"after {plural(turn.delay, 'step')}"
        stops = ""
        if turn.tokens_to_emit < turn.max_tokens:
            stops = f", stops after {turn.tokens_to_emit}"
        if turn.grammar_ends is not None:
            stops += f", its grammar ends after {plural(turn.grammar_ends, 'token')}"
        words += f"; turn {when}: {turn.prompt_len} more, max_tokens {turn.max_tokens}{stops}"
    return words


def partition_words(request: Request) -> str:
    adapter = f", adapter {request.lora}" if request.lora is not None else ""
    salt = f", salt {request.cache_salt}" if request.cache_salt is not None else ""
    return adapter + salt


def encoder_words(request: Request) -> str:
    if not request.encoder_inputs:
        return ""
    names = [request.prompt[number][0] for number in request.encoder_inputs]
    return f", encoder inputs {' + '.join(names)}"


def load_words(request: Request) -> str:
    words = ""
    if request.external_tokens:
        tokens = min(request.external_tokens, request.prompt_len)
        are = "are" if tokens != 1 else "is"
        after = plural(request.load_steps, "step")
        words = f", {plural(tokens, 'token')} {are} loaded after {after}"
    if request.load_fails_at is not None:
        words += f", the load fails from token {request.load_fails_at} on"
    if request.load_deferrals:
        words += f", the connector defers its answer {plural(request.load_deferrals, 'time')}"
    if request.send_steps is not None:
        words += f", its blocks are sent in {plural(request.send_steps + 1, 'step')}"
        words += " even if it is aborted" if request.send_aborted else ""
    return words


def _named(request: Request) -> str:
    return request.id if request.id[:1].isalnum() else repr(request.id)


def _prompt(request: Request) -> str:
    """Describe a prompt: its length, and the requests whose tokens it repeats."""
    if all(stream == request.id for stream, _ in request.prompt):
        return str(request.prompt_len)
    parts = " + ".join(f"{stream} {tokens}" for stream, tokens in request.prompt)
    return f"{request.prompt_len} ({parts})"


def as_json(value: Any) -> bytes:
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
    """Print a line to stderr. If that fails, drop the line; the exit code does not change."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)
