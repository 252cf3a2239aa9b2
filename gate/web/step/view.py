"""Describe a run by hand as plain data for the page."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from ....model.scenario import Request
from ....properties.explanations.measures import VOLUME, Measure, measures
from ...console.output import (
    SHOWN_DETAILS,
    config_line,
    load_words,
    one_line,
    partition_words,
)
from ...console.step_lines import step_line
from ..base.words import QUEUES, progress, queues
from .run import ByHand, Taken

KINDS = ("padding", "cached", "prompt", "generated")
MAX_ALONE = 24  # blocks in a row that are drawn one by one


class Cell(NamedTuple):
    """Equal blocks in a row, with the number of tokens of each kind in one of them."""

    blocks: int
    tokens: tuple[tuple[str, int], ...]


def cells(padding: int, cached: int, prompt: int, generated: int, block_size: int) -> list[Cell]:
    """Return the row of a request as cells; in a long row, equal neighbouring blocks form one cell.
    `padding` is in blocks, and the other lengths are tokens whose KV is computed."""
    lengths = (padding * block_size, cached, prompt, generated)
    row = list(_blocks(lengths, block_size))
    if len(row) <= MAX_ALONE:
        return [Cell(1, tokens) for tokens in row]
    return [Cell(len(list(alike)), tokens) for tokens, alike in groupby(row)]


def _blocks(lengths: tuple[int, ...], block_size: int) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield for each block the number of tokens of each kind."""
    remaining = dict(zip(KINDS, lengths, strict=True))
    while any(remaining.values()):
        room = block_size
        held = []
        for kind in KINDS:
            taken = min(room, remaining[kind])
            if taken:
                held.append((kind, taken))
                remaining[kind] -= taken
                room -= taken
        yield tuple(held)


SHOWN_STEPS = 100
REPLAY = "schedproof replay by-hand.json"


def view(run: ByHand, options: str) -> dict[str, Any]:
    """Return the current state of the run as data; with `options`, a replay judges as this run
    does."""
    setup, session = run.setup, run.session
    history = session.monitor.history
    return {
        "title": f"{session.started.name} {session.started.version}, step by step",
        "config": config_line(setup.system, setup.revision, setup.config),
        "next": run.clients.steps,
        "requests": [_request(run, request) for request in run.clients.requests],
        "queues": [[name, members] for name, members in queues(history).items()],
        "tkv": None if history.last is None else history.last.tkv,
        "measures": [[*measure] for measure in _measures(run)],
        "chart": _chart(run),
        "block_size": setup.config["block_size"],
        "last": _last(run),
        "log": [_line(run, taken) for taken in run.taken[-SHOWN_STEPS:]],
        "left_out": max(0, len(run.taken) - SHOWN_STEPS),
        "verdict": verdict(run),
        "broken": run.first_broken is not None,
        "ended": run.ended,
        "fault": None if run.fault is None else one_line(run.fault),
        "details": _details(run),
        "notice": run.notice,
        "can_undo": run.can_undo,
        "can_abort": not session.cannot_abort,
        "has_connector": bool(setup.config.get("kv_connector")),
        "has_priorities": setup.config.get("policy") == "priority",
        "replay": REPLAY + options,
    }


def verdict(run: ByHand) -> str:
    first = run.first_broken
    if run.fault is not None:
        return f"no verdict: {one_line(run.fault)}"
    if first is not None:
        return one_line(f"{first.rule} is broken in step {first.step}: {first.message}")
    staked = {rule for taken in run.taken for rule in taken.exercised}
    if not staked:
        return "no rule was exercised yet"
    return f"no rule is broken; {len(staked)} of {len(run.session.checked)} rules were exercised"


def _measures(run: ByHand) -> list[Measure]:
    """Return how much of each limit the last step used. For the limit on the volume, that is the
    last decode step."""
    config = run.setup.config
    reported = measures(run.session.monitor.history.last, config)
    decodes = [
        taken for taken in run.taken if taken.step is not None and taken.step.kind == "decode"
    ]
    if decodes and decodes[-1] is not run.taken[-1]:
        for measure in measures(decodes[-1].step, config):
            if measure.name == VOLUME:
                reported.insert(0, measure._replace(name=f"{VOLUME} in step {decodes[-1].number}"))
    return reported


def _chart(run: ByHand) -> dict[str, Any]:
    shown = run.taken[-SHOWN_STEPS:]
    of_steps = [
        {measure.name: measure for measure in measures(taken.step, run.setup.config)}
        for taken in shown
    ]
    latest = {name: measure for of_step in of_steps for name, measure in of_step.items()}
    lines = [
        {
            "name": name,
            "limit": measure.limit,
            "unit": measure.unit,
            "values": [step[name].value if name in step else None for step in of_steps],
        }
        for name, measure in latest.items()
    ]
    broken = [taken.number for taken in shown if taken.broken]
    return {"first": shown[0].number if shown else 0, "lines": lines, "broken": broken}


def _request(run: ByHand, request: Request) -> dict[str, Any]:
    name, history = request.id, run.session.monitor.history
    account = history.requests.get(name)
    coming = request.arrival == run.clients.steps
    refused = run.session.rejected.get(name)
    words = f"prompt {request.prompt_len}"
    if len(request.prompt) > 1 or request.prompt[0][0] != name:
        words += f" ({' + '.join(f'{stream} {length}' for stream, length in request.prompt)})"
    words += f", max_tokens {request.max_tokens}"
    words += f", priority {request.priority}" if request.priority else ""
    words += partition_words(request) + load_words(request)
    reported: dict[str, Any] = {"id": name, "asked": words, "here": coming or name in history.live}
    reported["plans"] = _plans(run, request)
    if refused is not None:
        reported["where"] = one_line(f"refused: {refused}")
    elif account is None:
        later = request.arrival > run.clients.steps
        late = f"arrives before step {request.arrival}" if later else "was never taken"
        reported["where"] = "arrives before the next step" if coming else late
    else:
        reported["where"] = "has left" if account.ended else _queue(run, name)
        reported["progress"] = progress(history, name)
        if not account.ended:
            padding = run.padding.get(name, 0) if account.computed else 0
            cached = min(account.prefix_hit, account.computed)
            prompt = min(account.computed, account.prompt) - min(cached, account.prompt)
            reported["cells"] = cells(
                *(max(0, padding), cached, prompt),
                max(0, account.computed - account.prompt),
                run.setup.config["block_size"],
            )
    return reported


def _queue(run: ByHand, name: str) -> str:
    queued = queues(run.session.monitor.history)
    return next((queue for queue in reversed(QUEUES) if name in queued.get(queue, ())), "unlisted")


def _plans(run: ByHand, request: Request) -> list[str]:
    plans = []
    account = run.session.monitor.history.live.get(request.id)
    if request.abort_at == run.clients.steps:
        plans.append(f"gives up {'inside' if request.abort_inside else 'before'} the next step")
    emitted = account.emitted if account is not None else 0
    is_here = account is not None or request.arrival == run.clients.steps
    if is_here and request.output_len is not None and request.output_len == emitted + 1:
        plans.append("its next token is EOS")
    return plans


def _last(run: ByHand) -> dict[str, Any] | None:
    if not run.taken:
        return None
    taken = run.taken[-1]
    titles = {rule.id: rule for rule in run.setup.rules}
    first = run.first_broken
    return {
        "line": _words(run, taken),
        "broken": [
            [
                failure.rule,
                titles[failure.rule].title,
                titles[failure.rule].statement,
                one_line(failure.message),
            ]
            for failure in taken.broken
        ],
        "after": first is not None and bool(taken.broken) and taken.broken[0] is not first,
        "exercised": [
            [rule.id, rule.title] for rule in run.setup.rules if rule.id in taken.exercised
        ],
    }


def _line(run: ByHand, taken: Taken) -> dict[str, Any]:
    return {"line": _words(run, taken), "broken": [failure.rule for failure in taken.broken]}


def _words(run: ByHand, taken: Taken) -> str:
    if taken.step is None:
        return f"step {taken.number:>5} no answer"
    before = run.taken[taken.number - 1].step if taken.number else None
    return step_line(taken.number, taken.step, before, run.setup.config)


def _details(run: ByHand) -> list[str]:
    text = (run.session.details or run.setup.stderr()) if run.ended else ""
    return [one_line(line) for line in text.strip().splitlines()[-SHOWN_DETAILS:]]
