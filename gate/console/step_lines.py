"""A line a step: what is new in it, in words; colours only say it again."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.text import Text

from ...model.observation import Step
from .sanitize import one_line
from .step_changes import News, step_news

STYLES = {
    **{"jump": "yellow", "border": "cyan", "over": "bold red", "idle": "dim"},
    **{"preempted": "yellow", "paused": "yellow", "finished": "green"},
}
Part = tuple[str, str]  # words, and their style


class StepLines:
    """Says each step of a run; with `fold` one line for decode steps in a row that are alike."""

    def __init__(
        self, say: Callable[[Text], None], config: Mapping[str, Any], *, fold: bool = False
    ) -> None:
        self._say = say
        self._config = config
        self._fold = fold
        self._last: Step | None = None
        self._alike: list[News] = []  # the first and the last of them

    def __call__(self, number: int, step: Step) -> None:
        """The next step."""
        news = step_news(number, step, self._last, self._config)
        self._last = step
        if self._fold and news.alike:
            self._alike[1:] = [news]
            return
        self.close()
        self._say(step_text(news))

    def close(self) -> None:
        """Say what was held back."""
        if self._alike:
            first, last = self._alike[0], self._alike[-1]
            self._say(folded_text(first, last) if first is not last else step_text(first))
            self._alike = []


def step_line(number: int, step: Step, last: Step | None, config: Mapping[str, Any]) -> str:
    """One step for a reader: kind and members, then what changed since `last`."""
    return step_text(step_news(number, step, last, config)).plain


def step_text(news: News) -> Text:
    """One step for a reader, with colours."""
    step = news.step
    return _text([(f"step {news.number:>5} {_members(step)}", STYLES.get(step.kind, ""))], news)


def folded_text(first: News, last: News) -> Text:
    """Decode steps that are alike, in one line."""
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
