"""Paths of an exploration as scenarios, to be replayed like any other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..model.scenario import Request, Scenario
from .explore import Label
from .undecided import Candidates, Menu


@dataclass
class _Client:
    """What a path says of one request."""

    arrival: int
    candidates: Candidates
    emitted: int = 0
    ends: bool = False
    abort_at: int | None = None
    abort_inside: bool = False


def scenario_of(
    path: Sequence[Label], menu: Menu, member: int, system: str, revision: str, config: Any
) -> Scenario:
    """The run that a path describes, in the configuration of number `member`.

    What was not looked at is the first of the menu that this configuration takes.
    """
    clients: dict[str, _Client] = {}
    step = 0
    for kind, *rest in path:
        if kind == "arrive":
            name, bits = rest
            clients[name] = _Client(step, menu.candidates(bits))
        elif kind == "choose":
            name, bits = rest
            clients[name].candidates = menu.candidates(bits)
        elif kind == "give up":
            clients[rest[0]].abort_at = step
        else:
            given_up, tokens = rest
            for name, bits, ending in tokens:
                clients[name].candidates = menu.candidates(bits)
                clients[name].emitted += 1
                clients[name].ends = ending
            if given_up is not None:
                clients[given_up[0]].abort_at = step
                clients[given_up[0]].abort_inside = given_up[1]
            step += 1
    return Scenario(
        system=system,
        revision=revision,
        config=dict(config),
        requests=tuple(_request(name, one, member) for name, one in clients.items()),
    )


def _request(name: str, client: _Client, member: int) -> Request:
    menu = client.candidates.menu
    number = next(n for n in client.candidates.numbers() if menu.accepted[n] >> member & 1)
    content = menu.candidates(1 << number).known_tokens(name)
    assert content is not None
    item = menu.items[number]
    return Request(
        id=name,
        arrival=client.arrival,
        prompt=content,
        max_tokens=item.max_tokens,
        output_len=client.emitted if client.ends else item.max_tokens,
        abort_at=client.abort_at,
        abort_inside=client.abort_inside,
        priority=item.priority,
        external_tokens=item.external_tokens,
        load_steps=item.load_steps,
    )
