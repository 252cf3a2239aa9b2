"""Replaces <!-- commands --> by every command with its arguments, options and defaults."""

from collections.abc import Iterator
from typing import Any

import typer

from schedproof.gate.cli.app import app

MARKER = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the commands."""
    if MARKER not in markdown:
        return markdown
    return markdown.replace(MARKER, "\n".join(commands(typer.main.get_command(app), "schedproof")))


def commands(group: Any, name: str) -> Iterator[str]:
    """Yield a section for each command, including those of groups."""
    for word, command in group.commands.items():
        whole = f"{name} {word}"
        if hasattr(command, "commands"):
            yield from commands(command, whole)
            continue
        arguments = [
            parameter for parameter in command.params if parameter.param_type_name == "argument"
        ]
        options = [
            parameter for parameter in command.params if parameter.param_type_name == "option"
        ]
        usage = "".join(f" {_argument(parameter)}" for parameter in arguments)
        yield f"## {whole} {{ #{whole.replace(' ', '-')} }}\n"
        yield f"{command.help}\n"
        yield f"```text\n{whole}{usage}{' [OPTIONS]' * bool(options)}\n```\n"
        if command.params:
            yield "| argument or option | meaning | default |\n|---|---|---|"
            yield from (_row(_argument(parameter), parameter) for parameter in arguments)
            yield from (_row(_option(parameter), parameter) for parameter in options)
            yield ""


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper()
    name = f"{name}…" if parameter.nargs != 1 else name
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _row(shown: str, parameter: Any) -> str:
    words = (parameter.help or "").replace("|", "\\|").replace("<", "&lt;")
    default = parameter.default
    told = default not in (None, False, (), []) and not callable(default)
    return f"| `{shown}` | {words} | {f'`{default}`' if told else ''} |"
