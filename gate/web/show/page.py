"""Render a run as one page that opens from a folder, without a network or a server.

The scripts of the page draw the steps from compact data. Parts of the page that do not depend on a
step are filled in here.
"""

import base64
import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....model.observation import Step
from ....properties.checking.lockstep import COMPARED, differing
from ....properties.explanations.failure import Projected
from ....properties.rules.registry import LOCKSTEP
from ....spec.catalogue import load
from ....spec.systems import SYSTEMS
from ...console import output
from ...console.step_lines import one_line
from ..base.drawing import WIDE, picture
from ..base.page import render_template
from .following import KINDS, STATES, STOPS, WORDS, Changes, Line
from .recording import RecordedRun

SCRIPTS = [
    f"show_{part}"
    for part in ("data", "batch", "step", "story", "rules", "chart", "pictures", "moving")
]
LOSSES = ("preempted", "paused")
JOINED = re.compile(r"step (\d+): (.*) joins; ", re.DOTALL)  # the beginning of an explanation
MAX_LINES = 8  # longer explanations are collapsed


def page(run: RecordedRun) -> str:
    values = {**static_values(run), "title": output.one_line(run.name), "data": pack(run)}
    return render_template("show", values, SCRIPTS, ["cause"])


def pack(run: RecordedRun) -> str:
    return base64.b64encode(gzip.compress(output.json_line(page_data(run)), 9, mtime=0)).decode()


def page_data(run: RecordedRun) -> dict[str, Any]:
    """Return the run as the data of a page.

    Numbers by step have the form of `following.Line.flat`, and a request is replaced by its index
    in `ids`. Characters that would end a line or reverse its direction are removed from names and
    texts.
    """
    followed = run.followed
    ids_sent = run.scenario.request_ids
    ids = {name: place for place, name in enumerate(_names(run, ids_sent))}
    return {
        "steps": len(run.steps),
        "opens": first_step_shown(run),
        "cause": _cause(run, ids),
        "never": _uncomputed_hit(run, ids),
        "block": run.config["block_size"],
        "limit": run.config.get("max_batch_tkv"),
        "pool": run.config.get("num_blocks"),
        "ranked": run.config.get("policy") == "priority",
        "pads": SYSTEMS[run.scenario.system].pads,
        "widest": followed.widest,
        "states": STATES,
        "kinds": KINDS,
        "words": WORDS,
        "stops": STOPS,
        "ids": [one_line(name) for name in ids],
        "requests": [_request(run, number) for number in range(len(ids_sent))],
        "run": _lines(followed.run),
        "of": [_lines(followed.requests.get(name, {})) for name in ids_sent],
        "queues": {
            name: [[step, [ids[request] for request in queue]] for step, queue in changes.kept]
            for name, changes in followed.queues.items()
        },
        "blocks": [_growth(followed.blocks.get(name)) for name in ids_sent],
        "rules": [
            {"id": rule.id, "title": rule.title, "says": rule.statement, "source": rule.source}
            | {"stakes": followed.stakes[rule.id].flat()}
            for rule in run.checked
        ],
        "broken": [
            [failure.rule, failure.step, one_line(failure.message)] for failure in run.broken
        ],
        "happenings": [
            [
                happening.step,
                happening.what,
                ids.get(happening.request, -1),
                happening.first,
                happening.second,
                one_line(happening.word),
            ]
            for happening in run.happenings()
        ],
        "refused": _refused(run, ids),
        "projected": [_joined(projected, ids) for projected in run.projected if projected.joined],
    }


def first_step_shown(run: RecordedRun) -> int:
    """Return the step at which the page opens: the step that breaks a rule; without one, the first
    step in which a request loses its place; without either, step 0."""
    last = max(len(run.steps) - 1, 0)
    if run.broken:
        return min(run.broken[0].step, last)
    return next((happening.step for happening in run.happenings() if happening.what in LOSSES), 0)


def _cause(run: RecordedRun, ids: Mapping[str, int]) -> list[int] | None:
    reason = cause(run)
    return None if reason is None or reason[1] not in ids else [reason[0], ids[reason[1]]]


def _uncomputed_hit(run: RecordedRun, ids: Mapping[str, int]) -> list[int] | None:
    """Return the request whose prefix hit includes tokens that no request had computed, and the
    range of these tokens (first, and one past the last)."""
    bar = next(iter(run.cause.bars), None) if run.cause is not None else None
    if bar is None or bar.request not in ids or bar.parts[0].kind not in ("cached", "never"):
        return None
    before, never = 0, {part.kind: part.tokens for part in bar.parts}.get("never", 0)
    if bar.parts[0].kind == "cached":
        before = bar.parts[0].tokens
    return [ids[bar.request], before, before + never] if never else None


def cause(run: RecordedRun) -> tuple[int, str] | None:
    """Return the step and the request with which the explanation of the failure begins."""
    why = run.cause.why if run.cause is not None else ()
    joined = JOINED.match(why[0]) if why else None
    return None if joined is None else (int(joined[1]), joined[2])


def _names(run: RecordedRun, sent: Sequence[str]) -> Iterable[str]:
    queued = (
        name
        for changes in run.followed.queues.values()
        for _, queue in changes.kept
        for name in queue
    )
    reported = (happening.request for happening in run.followed.happenings if happening.request)
    return dict.fromkeys([*sent, *queued, *reported])


def _request(run: RecordedRun, number: int) -> dict[str, Any]:
    request = run.scenario.requests[number]
    return {
        "prompt": request.prompt_len,
        "max_tokens": request.max_tokens,
        "stops_after": request.tokens_to_emit,
        "priority": request.priority,
        "content": [[one_line(stream), length] for stream, length in request.prompt],
    }


def _refused(run: RecordedRun, ids: Mapping[str, int]) -> dict[str, Any]:
    volume, to = Line(), Changes()
    for projected in run.projected:
        if not projected.joined:
            volume.note(projected.step, projected.largest)
            to.note(projected.step, projected.newcomer)
    return {"volume": volume.flat(), "to": [[step, ids[name]] for step, name in to.kept]}


def _joined(projected: Projected, ids: Mapping[str, int]) -> list[Any]:
    reaches = [[ids[name], reach] for name, reach in projected.reaches.items()]
    return [projected.step, ids[projected.newcomer], projected.largest, reaches]


def _lines(lines: Mapping[str, Line]) -> dict[str, list[int]]:
    return {name: line.flat() for name, line in lines.items() if line.pieces}


def _growth(changes: Changes | None) -> list[list[Any]]:
    """Return every change to a request's blocks: the step, how many blocks remain, and the new
    blocks."""
    grown: list[list[Any]] = []
    before: Sequence[int] = ()
    for step, blocks in changes.kept if changes is not None else ():
        pairs = zip(before, blocks, strict=False)
        kept = next((n for n, (old, new) in enumerate(pairs) if old != new), None)
        same = min(len(before), len(blocks)) if kept is None else kept
        grown.append([step, same, list(blocks[same:])])
        before = blocks
    return grown


class Field(NamedTuple):
    """A field of a step, with the target's value and the model's value as text."""

    name: str
    differs: bool
    target: str
    model: str


def static_values(run: RecordedRun) -> dict[str, Any]:
    scenario = run.scenario
    rules = {rule.id: rule for rule in load(scenario.system, scenario.revision or "")}
    fields = side_by_side(run)
    gone = bool(run.broken) and run.broken[0].step >= len(run.steps)  # the target crashed or hung
    return {
        "run": run,
        "config": output.config_line(scenario.system, scenario.revision or "", scenario.config),
        "rule": rules[run.broken[0].rule] if run.broken else None,
        "max_lines": MAX_LINES,
        "wide": WIDE,
        "picture": picture(run.cause),
        "details": output.last_lines(run.details) if gone else [],
        "lockstep": LOCKSTEP,
        "fields": fields,
        "differs": sum(field.differs for field in fields or ()),
    }


def side_by_side(run: RecordedRun) -> list[Field] | None:
    if run.expected is None or not run.steps:
        return None
    target, model = run.steps[-1], run.expected
    differs = {difference.field for difference in differing(target, model)}
    return [
        Field(name, name in differs, _value(target, name), _value(model, name))
        for name in COMPARED
        if getattr(target, name) is not None or getattr(model, name) is not None
    ]


def _value(step: Step, field: str) -> str:
    value = getattr(step, field)
    if value is None:
        return "not shown"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items()) or "none"
    return _plain(value) or "none"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
