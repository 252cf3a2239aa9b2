"""The help of the command line: commands by what they are for, a summary that fits, an example."""

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
        "corpus": "regression scenarios: add, run, list, export, generate",
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
        "selfcheck": "does the suite find what it should",
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
    "selfcheck": "schedproof selfcheck --only mutants",
    "check": "schedproof check contracts",
}


# By option, what its value is; of others the type says it.
VALUES = {
    "--rule": "RULE",
    "--exclude": "RULE",
    "--set": "KEY=VALUE",
    "--system": "SYSTEM",
    "--revision": "REVISION",
    "--lockstep": "REVISION",
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
        for one in self.params:
            if one.param_type_name == "option" and not one.metavar:
                one.metavar = next((VALUES[opt] for opt in one.opts if opt in VALUES), None)


class Grouped(typer.core.TyperGroup):
    """The commands in their groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups, each a section."""
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([*commands.items()])
