"""The commands and their help, in groups by purpose, each with a summary and an example.

Commands are loaded on first use. `--help` leaves out commands and options that are rarely needed;
`--help --all` shows them.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer.core

from ...model.errors import InputError

WIDTH = 120  # columns at most; a narrower terminal keeps its own width
SETTINGS = {"max_content_width": WIDTH}
# The commands with their one-line summaries, in the order of the help.
GROUPS = {
    "Begin": {
        "demo": "show the main commands on the models, in half a minute",
        "init": "write an adapter, a configuration, a CI workflow and a hook",
        "doctor": "check an adapter before you judge a scheduler",
    },
    "Judge": {
        "gate": "judge a scheduler: a verdict per rule",
        "replay": "run one scenario, and show every step",
        "corpus": "manage regression scenarios: add, run, list, export",
        "import": "turn a recorded load into a scenario",
        "diff": "show where two schedulers decide differently",
        "check-trace": "judge a recorded run",
        "matrix": "judge many releases, each in every configuration",
        "serve": "serve a Python target on stdin and stdout",
    },
    "Search": {
        "search": "search one rule for a counterexample or a proof",
        "explore": "explore every behaviour of small scopes",
        "campaign": "search for hours, on one machine or many",
    },
    "Look": {
        "show": "render a run as an HTML page",
        "step": "step a scheduler by hand, in a browser",
    },
    "Trust": {
        "rules": "list the rules of a system and what checks each",
        "check": "prove the arithmetic of Spyre's model",
    },
}
EXAMPLES = {
    "demo": "schedproof demo",
    "init": "schedproof init --system generic",
    "doctor": "schedproof doctor my_pkg.sched:make_target --system vllm",
    "gate": "schedproof gate vllm==0.33.0 --rule V1-R05 --profile quick",
    "replay": "schedproof replay late-arrivals-before-961 --rule SPY-R07 --fold",
    "import": "schedproof import mooncake trace.jsonl --config max_model_len=131072",
    "diff": "schedproof diff vllm==0.28.0 vllm==0.33.0 --profile quick",
    "check-trace": "schedproof check-trace run.jsonl --explain",
    "matrix": "schedproof matrix vllm sendnn-inference==2.6.3",
    "serve": "schedproof serve model",
    "search": "schedproof search SPY-R07 --prove",
    "explore": "schedproof explore --system vllm --scope slots",
    "campaign": "schedproof campaign --budget 8h --workers 4",
    "show": "schedproof show late-arrivals-before-961 -o run.html",
    "step": "schedproof step --system vllm",
    "rules": "schedproof rules SPY-R07",
    "check": "schedproof check contracts",
}


# Shown only by `--help --all`.
RARE_COMMANDS = {"check", "campaign", "import", "matrix", "serve"}
RARE_OPTIONS = {
    "gate": ("--ndjson", "--step-limit", "--memory-limit", "--time-limit", "--offline"),
    "explore": ("--walks", "--deepest", "--order", "--aborts", "--full"),
}

# Placeholders for the values of options. All other options show the type of their value.
VALUES = {
    "--rule": "RULE",
    "--exclude": "RULE",
    "--config": "KEY=VALUE",
    "--system": "SYSTEM",
    "--revision": "REVISION",
    "--compare-with": "REVISION",
    "--target": "TARGET",
    "--profile": "PROFILE",
    "--out": "FOLDER",
    "--corpus": "FOLDER",
    "--path": "FOLDER",
    "--path-a": "FOLDER",
    "--path-b": "FOLDER",
    "--scope": "SCOPE",
    "--engine": "ENGINE",
    "--only": "PART",
    "--scheduler-cls": "CLASS",
    "--budget": "TIME",
}


STATED_DEFAULT = re.compile(r"\s*[(\[]default: [^)\]]*[)\]]")
ALL = "--help --all also shows rarely used options."


def example(name: str) -> str | None:
    return f"Example: {EXAMPLES[name]}" if name in EXAMPLES else None


def without_all(words: list[str]) -> tuple[list[str], bool]:
    """Remove `--all` from the words if they also contain `--help`. Return the words, and whether
    `--all` was removed."""
    wants_all = "--help" in words and "--all" in words
    return [word for word in words if not (wants_all and word == "--all")], wants_all


class Command(typer.core.TyperCommand):
    """A command whose help shows placeholders for values and hides rarely used options."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        param: Any
        for param in self.params:
            if param.param_type_name == "option" and not param.metavar:
                param.metavar = next((VALUES[opt] for opt in param.opts if opt in VALUES), None)
        if self.short_help and not self.help:  # `python -OO` keeps no docstrings
            self.help = f"{self.short_help[0].upper()}{self.short_help[1:]}."

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args, wants_all = without_all(args)
        rare = () if wants_all else RARE_OPTIONS.get(self.name or "", ())
        options: list[Any] = [param for param in self.params if param.param_type_name == "option"]
        for option in options:
            option.hidden = any(name in rare for name in option.opts)
            if ctx.lookup_default(option.name, call=False) is not None:
                # The help then shows the default from the project file instead.
                option.help = STATED_DEFAULT.sub("", option.help or "")
        for param in self.params:
            if param.required and ctx.lookup_default(param.name) is not None:
                param.required = False  # the project file names it
        self.epilog = "\n\n".join(filter(None, [example(self.name or ""), ALL * bool(rare)]))
        given = [*args]
        rest: list[str] = super().parse_args(ctx, args)
        self._check_paths(ctx, given)
        return rest

    def _check_paths(self, ctx: Any, words: list[str]) -> None:
        """Raise InputError for an empty path, which usually stands for an unset variable. Otherwise
        it would be the current folder."""
        empty = {first for first, word in pairwise(["", *words]) if not word}
        empty |= {word.removesuffix("=") for word in words if word.endswith("=")}
        options_first = sorted(self.params, key=lambda param: param.param_type_name == "argument")
        for param in options_first if empty else ():
            value = ctx.params.get(param.name)
            values = value if isinstance(value, list | tuple) else [value]
            kind = getattr(getattr(param, "type", None), "name", "")  # in older versions of Typer
            if kind != "path" and not any(isinstance(path, Path) for path in values):
                continue
            if param.param_type_name == "argument" and not {"", Path()}.isdisjoint(values):
                raise InputError(param.metavar or param.name.upper(), "''; valid: a path")
            if names := sorted(empty.intersection(param.opts)):
                raise InputError(names[0], "''; valid: a path")


class Commands(Mapping[str, Any]):
    """Commands by name, each loaded on first use. Loading all of them would take half a second."""

    _names = tuple(name for group in GROUPS.values() for name in group)

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = _load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _load(name: str) -> Any:
    module: Any = import_module(f"{__package__}.{name.replace('-', '_')}")
    if hasattr(module, "command"):
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        as_command = app.command(
            name,
            epilog=example(name),
            short_help=next(group[name] for group in GROUPS.values() if name in group),
            context_settings=SETTINGS,
            cls=Command,
        )
        as_command(module.command)
    else:
        app = module.app
    loaded = typer.main.get_command(app)
    loaded.name = name
    return loaded


class Grouped(typer.core.TyperGroup):
    """All commands, in groups."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands()
        self._shows_all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in ("--help", "--all"):
            args, self._shows_all = without_all(args)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in GROUPS.items():
            shown = [
                row for row in commands.items() if self._shows_all or row[0] not in RARE_COMMANDS
            ]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)
        if not self._shows_all:
            formatter.write_paragraph()
            formatter.write_text(f"--help --all also shows {', '.join(sorted(RARE_COMMANDS))}.")
