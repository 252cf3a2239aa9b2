"""The commands, each loaded when it is asked for; and their help: commands by what they are for, a
summary that fits, an example."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer.core

WIDTH = 120  # columns, at most; else that of the terminal
SETTINGS = {"max_content_width": WIDTH}
# By what a user wants: commands in the order of the help, each with a summary of a line.
GROUPS = {
    "Begin": {
        "demo": "what the commands do, in half a minute, on the models",
        "init": "write an adapter, the configuration, a workflow and a hook",
        "doctor": "is the adapter sound, before the scheduler is judged",
    },
    "Judge": {
        "gate": "judge a scheduler: a verdict per rule",
        "replay": "run one scenario, and show every step",
        "corpus": "regression scenarios: add, run, list, export",
        "diff": "where do two schedulers decide otherwise",
        "check-trace": "judge what a server recorded",
        "matrix": "judge many releases, each in every configuration",
        "serve": "a Python target on stdin and stdout",
    },
    "Search": {
        "search": "one rule: a counterexample, a proof, or inconclusive",
        "explore": "every behaviour of small scopes",
        "campaign": "search for hours, on one machine or many",
    },
    "Look": {
        "show": "a run as a page for a browser",
        "step": "step a scheduler by hand, in a browser",
    },
    "Trust": {
        "rules": "the rules of a system, and what checks each",
        "check": "prove the arithmetic of the models",
    },
}
EXAMPLES = {
    "demo": "schedproof demo",
    "init": "schedproof init --system generic",
    "doctor": "schedproof doctor my_pkg.sched:make_target --system vllm",
    "gate": "schedproof gate vllm==0.33.0 --rule V1-R05 --profile quick",
    "replay": "schedproof replay late-arrivals-before-961 --rule SPY-R07 --fold",
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


# By option, what its value is; of others the type says it.
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


def example(name: str) -> str | None:
    """What stands below the help of a command."""
    return f"Example: {EXAMPLES[name]}" if name in EXAMPLES else None


class Command(typer.core.TyperCommand):
    """A command whose options say what their values are."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for param in self.params:
            if param.param_type_name == "option" and not param.metavar:
                param.metavar = next((VALUES[opt] for opt in param.opts if opt in VALUES), None)


class Commands(Mapping[str, Any]):
    """Commands by name. All together take half a second to load, and one is asked for."""

    _names = tuple(name for group in GROUPS.values() for name in group)

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """A command.

        Raises:
            KeyError: there is none of this name.
        """
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
    """The command of a module: its function `command`, or else its `app` of several commands."""
    module: Any = import_module(f"{__package__}.{name.replace('-', '_')}")
    if hasattr(module, "command"):
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        as_command = app.command(name, epilog=example(name), context_settings=SETTINGS, cls=Command)
        as_command(module.command)
    else:
        app = module.app
    loaded = typer.main.get_command(app)
    loaded.name = name
    return loaded


class Grouped(typer.core.TyperGroup):
    """The commands in their groups."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Commands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups, each a section."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*commands.items()])
