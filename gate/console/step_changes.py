"""What is new in a step: the fields that changed, a tkv that jumps, requests that cross a block
border."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...model.observation import Step

# Beside the tkv, what is shown when it changes; events even where they are the same.
EVENTS = ("encoder_inputs", "encoder_dropped", "preempted", "finished")
FIELDS = ("left_pad_blocks", "waiting", "parked", "prefilling", "paused", *EVENTS)


class News(NamedTuple):
    """A step beside the one before it.

    Attributes:
        number: of the step, from 0.
        step: the step itself.
        tkv: the tkv where it changed, in tokens, and what it was: None where it is not known.
        jumps: it did not grow by one.
        borders: requests that computed the first token of a block, and nothing else.
        volume: of a decode step, batch × tkv in tokens; None without a limit on it.
        limit: max_batch_tkv.
        fields: the other fields that changed, with their values.
        alike: decodes the same requests as the step before, and nothing else happens.
    """

    number: int
    step: Step
    tkv: tuple[int | None, int] | None
    jumps: bool
    borders: tuple[str, ...]
    volume: int | None
    limit: int | None
    fields: dict[str, Any]
    alike: bool

    @property
    def over(self) -> bool:
        """More is decoded than the limit allows."""
        return _is_over(self.volume, self.limit)


def step_news(number: int, step: Step, last: Step | None, config: Mapping[str, Any]) -> News:
    """What changed since `last`, the step before; None where it is not known."""
    tkv = changed_tkv(step, last)
    jumps = tkv is not None and tkv[0] is not None and tkv[1] != tkv[0] + 1
    borders = crossing(step, last, config.get("block_size"))
    fields = {}
    for name in FIELDS:
        value = getattr(step, name)
        if value and (last is None or name in EVENTS or value != getattr(last, name)):
            fields[name] = value
    volume, limit = volume_of(step), config.get("max_batch_tkv")
    alike = (
        last is not None
        and step.kind == last.kind == "decode"
        and [*step.scheduled.items()] == [*last.scheduled.items()]
        and not (jumps or borders or fields)
        and _is_over(volume, limit) == _is_over(volume_of(last), limit)
    )
    volume = None if limit is None else volume
    return News(number, step, tkv, jumps, borders, volume, limit, fields, alike)


def changed_tkv(step: Step, last: Step | None) -> tuple[int | None, int] | None:
    """The tkv of the step before and of this one, where both are known and differ."""
    before = last.tkv if last is not None else None
    if not step.tkv or step.tkv == before:
        return None
    return (before or None, step.tkv)


def crossing(step: Step, last: Step | None, block_size: int | None) -> tuple[str, ...]:
    """The requests whose one token of this step is the first of another block."""
    if last is None or last.computed is None or block_size is None:
        return ()
    return tuple(
        name
        for name, tokens in step.scheduled.items()
        if tokens == 1 and (had := last.computed.get(name, 0)) and had % block_size == 0
    )


def volume_of(step: Step) -> int | None:
    """Batch × tkv in tokens, of a decode step that shows its tkv."""
    return len(step.scheduled) * step.tkv if step.kind == "decode" and step.tkv else None


def _is_over(volume: int | None, limit: int | None) -> bool:
    return volume is not None and limit is not None and volume > limit
