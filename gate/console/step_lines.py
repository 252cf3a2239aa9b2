"""Print one line per step, with its changes. The colours add nothing to the words."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.text import Text

from ...model.observation import Step

# Fields, besides the tkv, that are shown when they change. Events are shown even if they repeat.
EVENTS = ("encoder_inputs", "encoder_dropped", "preempted", "finished")
FIELDS = ("left_pad_blocks", "waiting", "parked", "prefilling", "paused", *EVENTS)


class News(NamedTuple):
    """The changes in a step.

    Attributes:
        tkv: the previous and the new tkv in tokens, if it changed; the previous one is None if
            unknown.
        jumps: whether the tkv did not grow by exactly 1.
        borders: requests whose only token in this step is the first of a block.
        volume: batch × tkv of a decode step in tokens; None if no limit applies to it.
        fields: the other fields that changed, with their values.
        stands_out: whether the step needs its own line because of an event, a jump or a border.
    """

    number: int
    step: Step
    tkv: tuple[int | None, int] | None
    jumps: bool
    borders: tuple[str, ...]
    volume: int | None
    limit: int | None
    fields: dict[str, Any]
    stands_out: bool

    @property
    def over(self) -> bool:
        return self.volume is not None and self.limit is not None and self.volume > self.limit

    @property
    def turns(self) -> tuple[Any, ...]:
        """The parts of the line that must be equal if steps are to share a line."""
        return self.step.kind, *self.step.scheduled.items(), self.over


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
    stands_out = bool(jumps or borders or fields.keys() & {*EVENTS})
    volume = None if limit is None else volume
    return News(number, step, tkv, jumps, borders, volume, limit, fields, stands_out)


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


def one_line(text: str) -> str:
    """Replace line ends and control characters, so that foreign text prints as one line."""
    return "".join(char if char.isprintable() else " " for char in text)


STYLES = {
    **{"jump": "yellow", "border": "cyan", "over": "bold red", "idle": "dim"},
    **{"preempted": "yellow", "paused": "yellow", "finished": "green"},
}
Part = tuple[str, str]  # a piece of text and its style


class StepLines:
    """Print each step of a run.

    With `fold`, similar consecutive steps share a line, and so do alternating prefill and decode
    steps.
    """

    def __init__(
        self, say: Callable[[Text], None], config: Mapping[str, Any], *, fold: bool = False
    ) -> None:
        self._say = say
        self._config = config
        self._fold = fold
        self._last: Step | None = None
        self._recent: list[News] = []  # the last two steps
        self._alike: list[News] = []  # the steps that share a line, without those in the middle
        self._period = 1  # the number of steps after which they repeat

    def __call__(self, number: int, step: Step) -> None:
        news = step_news(number, step, self._last, self._config)
        self._last = step
        period = self.repeats(news) if self._fold else 0
        if not period or (self._alike and period != self._period):
            self.close()
        self._recent = [*self._recent[-1:], news]
        if not period:
            self._say(step_text(news))
            return
        self._period = period
        self._alike = [*self._alike[:2], *self._alike[2:][-1:], news]

    def repeats(self, news: News) -> int:
        """Return 1 if this step repeats the previous one, 2 if it repeats the step before that,
        else 0."""
        if news.stands_out or not self._recent:
            return 0
        before, last = self._recent[0], self._recent[-1]
        if news.turns == last.turns:
            return 0 if news.fields else 1
        again = (before.turns, before.fields) == (news.turns, news.fields)
        return 2 if again and not last.stands_out else 0

    def close(self) -> None:
        if len(self._alike) > self._period:
            self._say(folded_text(self._alike, self._period))
        else:
            for news in self._alike:
                self._say(step_text(news))
        self._alike = []


def step_line(number: int, step: Step, last: Step | None, config: Mapping[str, Any]) -> str:
    """Describe a step: its kind and requests, then what changed since `last`."""
    return step_text(step_news(number, step, last, config)).plain


def step_text(news: News) -> Text:
    step = news.step
    return _text([(f"step {news.number:>5} {_members(step)}", STYLES.get(step.kind, ""))], news)


def folded_text(alike: Sequence[News], period: int) -> Text:
    """Return one line for the steps `alike`, which repeat with a period of `period` steps."""
    first, last = alike[0], alike[-1]
    members = " and ".join(_members(news.step) for news in alike[:period])
    text = Text(one_line(f"steps {first.number}-{last.number} {members}"))
    tkvs = [news.step.tkv for news in alike if news.step.tkv]
    if len(tkvs) > 1 and (period == 1 or tkvs[0] != tkvs[-1]):
        text.append(f"  tkv {tkvs[0]} -> {tkvs[-1]}")
    volumes = [news.volume for news in alike if news.volume is not None]
    if volumes:
        text.append(f"  volume {volumes[0]} -> {volumes[-1]}/{last.limit}")
        text.append(" over" if any(news.over for news in alike) else "", STYLES["over"])
    how = "alike" if period == 1 else "in turn"
    text.append(f"  {last.number - first.number + 1} steps {how}", "dim")
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
