"""Print one line per step, with what changed in that step. Colours only repeat what the words
say."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rich.text import Text

from ...model.observation import Step

# Fields other than the tkv that are shown when they change; events are shown even if they repeat.
EVENTS = ("encoder_inputs", "encoder_dropped", "preempted", "finished")
FIELDS = ("left_pad_blocks", "waiting", "parked", "prefilling", "paused", *EVENTS)


class News(NamedTuple):
    """The changes in a step.

    Attributes:
        tkv: the previous (None if unknown) and the new tkv in tokens, if it changed.
        jumps: whether the tkv changed by a number other than 1.
        borders: requests that computed a single token in the step, the first token of a block.
        volume: batch × tkv of a decode step in tokens; None if there is no limit on it.
        fields: the other fields that changed, with their values.
        alike: whether the step only decodes the same requests as the previous step.
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
        return _is_over(self.volume, self.limit)


def step_news(number: int, step: Step, last: Step | None, config: Mapping[str, Any]) -> News:
    """Return what changed since `last`, the previous step (None if unknown)."""
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
    before = last.tkv if last is not None else None
    if not step.tkv or step.tkv == before:
        return None
    return (before or None, step.tkv)


def crossing(step: Step, last: Step | None, block_size: int | None) -> tuple[str, ...]:
    if last is None or last.computed is None or block_size is None:
        return ()
    return tuple(
        name
        for name, tokens in step.scheduled.items()
        if tokens == 1 and (had := last.computed.get(name, 0)) and had % block_size == 0
    )


def volume_of(step: Step) -> int | None:
    """Return the batch × tkv of a decode step, in tokens; None if the step does not show its
    tkv."""
    return len(step.scheduled) * step.tkv if step.kind == "decode" and step.tkv else None


def _is_over(volume: int | None, limit: int | None) -> bool:
    return volume is not None and limit is not None and volume > limit


def one_line(text: str) -> str:
    """Replace line ends and control characters, so that foreign text prints as one line."""
    return "".join(char if char.isprintable() else " " for char in text)


STYLES = {
    **{"jump": "yellow", "border": "cyan", "over": "bold red", "idle": "dim"},
    **{"preempted": "yellow", "paused": "yellow", "finished": "green"},
}
Part = tuple[str, str]  # a piece of text, and its style


class StepLines:
    """Prints each step of a run; with `fold`, consecutive decode steps that are alike share a
    line."""

    def __init__(
        self, say: Callable[[Text], None], config: Mapping[str, Any], *, fold: bool = False
    ) -> None:
        self._say = say
        self._config = config
        self._fold = fold
        self._last: Step | None = None
        self._alike: list[News] = []  # the first and the last of the steps that share a line

    def __call__(self, number: int, step: Step) -> None:
        news = step_news(number, step, self._last, self._config)
        self._last = step
        if self._fold and news.alike:
            self._alike[1:] = [news]
            return
        self.close()
        self._say(step_text(news))

    def close(self) -> None:
        if self._alike:
            first, last = self._alike[0], self._alike[-1]
            self._say(folded_text(first, last) if first is not last else step_text(first))
            self._alike = []


def step_line(number: int, step: Step, last: Step | None, config: Mapping[str, Any]) -> str:
    """Describe a step: its kind and requests, then what changed since `last`."""
    return step_text(step_news(number, step, last, config)).plain


def step_text(news: News) -> Text:
    step = news.step
    return _text([(f"step {news.number:>5} {_members(step)}", STYLES.get(step.kind, ""))], news)


def folded_text(first: News, last: News) -> Text:
    text = Text(one_line(f"steps {first.number}-{last.number} {_members(last.step)}"))
    if first.step.tkv and last.step.tkv:
        text.append(f"  tkv {first.step.tkv} -> {last.step.tkv}")
    if last.volume is not None:
        text.append(f"  volume {first.volume} -> {last.volume}/{last.limit}")
        text.append(" over" if last.over else "", STYLES["over"])
    text.append(f"  {last.number - first.number + 1} steps alike", "dim")
    return text


def _text(parts: list[Part], news: News) -> Text:
    text = Text()
    for words, style in [*parts, *_news(news)]:
        text.append(one_line(words), style)
    return text


def _news(news: News) -> Iterator[Part]:
    if news.tkv is not None:
        before, now = news.tkv
        yield (f"  tkv {before} -> {now}", "") if news.jumps else (f"  tkv {now}", "")
        if news.jumps:
            yield " jump", STYLES["jump"]
    if news.borders:
        yield " |" if news.tkv else "  |", ""
        yield f" border {', '.join(news.borders)}", STYLES["border"]
    if news.volume is not None:
        yield f"  volume {news.volume}/{news.limit}", ""
        if news.over:
            yield " over", STYLES["over"]
    for name, value in news.fields.items():
        yield f"  {name} {_plain(value)}", STYLES.get(name, "")


def _members(step: Step) -> str:
    members = ", ".join(f"{name}+{tokens}" for name, tokens in step.scheduled.items())
    return f"{step.kind:<7} {members}"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{' '.join(value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} {_item(item)}" for key, item in value.items()) + "}"
    return str(value)


def _item(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
