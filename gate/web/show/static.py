"""The parts of a page that no step changes: what ran, what broke and why, model beside target."""

from typing import Any, NamedTuple

from ....model.observation import Step
from ....properties.checking.lockstep import COMPARED, differing
from ....properties.rules.registry import LOCKSTEP
from ....spec.catalogue import load
from ...console import output
from .payload import cause
from .recording import Run

MAX_LINES = 8  # of an explanation; a longer one is folded


class Field(NamedTuple):
    """A field of a step as the target and its model did it, in words."""

    name: str
    differs: bool
    target: str
    model: str


def static_values(run: Run) -> dict[str, Any]:
    """What the template `show.html` needs of a run."""
    scenario = run.scenario
    rules = {rule.id: rule for rule in load(scenario.system)}
    fields = side_by_side(run)
    return {
        "run": run,
        "config": output.config_line(scenario.system, scenario.revision or "", scenario.config),
        "rule": rules[run.broken[0].rule] if run.broken else None,
        "max_lines": MAX_LINES,
        "cause": cause(run),
        "details": run.details.strip().splitlines()[-output.SHOWN_DETAILS :],
        "lockstep": LOCKSTEP,
        "fields": fields,
        "differs": sum(field.differs for field in fields or ()),
    }


def side_by_side(run: Run) -> list[Field] | None:
    """The fields of the last step that the target or its model shows; None without a model."""
    if run.expected is None or not run.steps:
        return None
    target, model = run.steps[-1], run.expected
    differs = {one.field for one in differing(target, model)}
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
