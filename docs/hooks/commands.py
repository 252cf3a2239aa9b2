"""<!-- commands --> becomes every command with its arguments, options and defaults."""

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
    """A section a command, those of a group one after the other."""
    for word, command in group.commands.items():
        whole = f"{name} {word}"
        if hasattr(command, "commands"):
            yield from commands(command, whole)
            continue
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        options = [one for one in command.params if one.param_type_name == "option"]
        usage = "".join(f" {_argument(one)}" for one in arguments)
        yield f"## {whole} {{ #{whole.replace(' ', '-')} }}\n"
        yield f"{command.help}\n"
        yield f"```text\n{whole}{usage}{' [OPTIONS]' * bool(options)}\n```\n"
        if command.params:
            yield "| argument or option | meaning | default |\n|---|---|---|"
            yield from (_row(_argument(one), one) for one in arguments)
            yield from (_row(_option(one), one) for one in options)
            yield ""


def _argument(one: Any) -> str:
    name = (one.metavar or one.name).upper()
    name = f"{name}…" if one.nargs != 1 else name
    return name if one.required else f"[{name}]"


def _option(one: Any) -> str:
    return ", ".join([*one.opts, *one.secondary_opts])


def _row(shown: str, one: Any) -> str:
    words = (one.help or "").replace("|", "\\|").replace("<", "&lt;")
    default = one.default
    told = default not in (None, False, (), []) and not callable(default)
    return f"| `{shown}` | {words} | {f'`{default}`' if told else ''} |"
