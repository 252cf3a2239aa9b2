"""The parts of a page that no step changes: what ran, what broke and why, model beside target."""

from collections.abc import Sequence
from html import escape
from typing import Any

from ....model.observation import Step
from ....properties.checking.lockstep import COMPARED, differing
from ....properties.predicates.rules import LOCKSTEP
from ....spec.catalogue import load
from ...console import output
from .recording import Run

SHOWN_LINES = 8


def heading(run: Run) -> str:
    """What ran, and how it ended."""
    scenario, started = run.scenario, run.started
    config = output.config_line(scenario.system, scenario.revision or "", scenario.config)
    lines = [
        f"<h1>{_text(run.name)}</h1>",
        f'<p id="target">{_text(f"{started.name} {started.version}")} '
        f"against {_text(scenario.revision or '')}: <strong>{_text(run.ended)}</strong></p>",
        f'<p id="config">{_text(config)}</p>',
        *(f"<p class=note>{_text(note)}</p>" for note in run.notes),
    ]
    return "\n".join(lines)


def failure(run: Run) -> str:
    """The rules that the last step breaks, in the words of the terminal; or nothing."""
    if not run.broken:
        return ""
    first, *others = run.broken
    rule = next(one for one in load(run.scenario.system) if one.id == first.rule)
    rows: list[tuple[str, str]] = [
        ("rule", _text(rule.says)),
        ("source", _text(rule.source)),
        (f"step {first.step}", _text(first.message)),
        *(("in the same step", _text(f"{one.rule}: {one.message}")) for one in others),
    ]
    if run.why:
        rows.append(("why", _lines(run.why)))
    if run.details.strip():
        tail = run.details.strip().splitlines()[-output.SHOWN_DETAILS :]
        words = "\n".join(_text(line) for line in tail)
        rows.append(("its last words", f'<pre tabindex="0">{words}</pre>'))
    if run.replay:
        rows.append(("replay", f"<code>{_text(run.replay)}</code>"))
    told = "\n".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in rows)
    title = f"BROKEN {_text(rule.id)} {_text(rule.title)}"
    return f'<section id="failure"><h2>{title}</h2><dl>{told}</dl></section>'


def side_by_side(run: Run) -> str:
    """The last step as the target and its model did it, field by field; differing ones marked."""
    if run.expected is None or not run.steps:
        return ""
    target, model = run.steps[-1], run.expected
    number = len(run.steps) - 1
    differs = {one.field for one in differing(target, model)}
    rows = "\n".join(
        _row(field, target, model, field in differs)
        for field in COMPARED
        if getattr(target, field) is not None or getattr(model, field) is not None
    )
    many = f"{len(differs)} field{'s' * (len(differs) != 1)} differ{'s' * (len(differs) == 1)}"
    return f"""<section id="lockstep"><h2>Step {number}: target and model</h2>
<p>{LOCKSTEP}: {many}, marked with ≠. Block numbers are names: they are compared up to renaming.</p>
<div class="wide" role="region" aria-label="target and model" tabindex="0"><table>
<thead><tr><th scope="col">field</th><th scope="col">differs</th><th scope="col">target</th>
<th scope="col">model {_text(run.scenario.revision or "")}</th></tr></thead>
<tbody>{rows}</tbody></table></div></section>"""


def _row(field: str, target: Step, model: Step, differs: bool) -> str:
    mark = '<td class="mark">≠</td>' if differs else "<td></td>"
    kind = ' class="differs"' if differs else ""
    cells = "".join(f"<td>{_value(getattr(one, field))}</td>" for one in (target, model))
    return f'<tr{kind} data-field="{field}"><th scope="row">{field}</th>{mark}{cells}</tr>'


def _value(value: Any) -> str:
    if value is None:
        return "not shown"
    if isinstance(value, dict):
        return _text(", ".join(f"{name} {_plain(item)}" for name, item in value.items())) or "none"
    return _text(_plain(value)) or "none"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _lines(lines: Sequence[str]) -> str:
    """A line each; what is long is folded but for its first line."""
    first, *others = (_text(line) for line in lines)
    if len(others) < SHOWN_LINES:
        return "<br>".join((first, *others))
    inside = "<br>".join(others)
    return f"<details><summary>{first} ({len(others)} lines)</summary>{inside}</details>"


def _text(text: str) -> str:
    return escape(output.one_line(output.unicode_text(text)))
