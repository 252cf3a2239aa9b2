"""Lockstep: the same decisions, step by step, as the model of the same release."""

from typing import Any

from ..model.observation import Step

# Block numbers are names: only how many a request holds is compared.
COMPARED = (
    "kind",
    "scheduled",
    "emitted",
    "tkv",
    "left_pad_blocks",
    "waiting",
    "running",
    "prefilling",
    "finished",
    "computed",
    "blocks",
)


def differences(seen: Step, model: Step) -> list[str]:
    """The fields, shown by both, in which a target's step differs from its model's."""
    found = []
    for name in COMPARED:
        own, expected = _comparable(name, seen), _comparable(name, model)
        if own is not None and expected is not None and own != expected:
            found.append(f"{name}: target {_shown(own)}, model {_shown(expected)}")
    return found


def _comparable(name: str, step: Step) -> Any:
    value = getattr(step, name)
    if name == "tkv":
        return (value or 0) if step.kind != "idle" else 0
    if value is None:
        return None
    if name == "blocks":
        return {request: len(held) for request, held in value.items()}
    if name == "scheduled":
        return list(value.items())
    return value


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value)
