"""What last happened to the requests that a message names: the cause, where no other is known."""

from collections.abc import Iterator
from functools import partial

from ..history.content import in_common
from ..history.request_history import RequestHistory
from .failure import Failure, left

NAMED = 3  # requests that the sentences name


def last_events(failure: Failure) -> list[str]:
    """Return a sentence for each request that the message names, in order of the steps: what
    happened to it last, before the failing step."""
    named = [request.id for request in failure.scenario.requests if failure.names(request.id)]
    events = [event for name in named[:NAMED] for event in _last_event(failure, name)]
    return [f"step {number}: {words}" for number, words in sorted(events)]


def _last_event(failure: Failure, name: str) -> Iterator[tuple[int, str]]:
    """Yield the step and its event; nothing if the request arrives in the failing step."""
    account = failure.history.requests.get(name)
    if account is None or account.between_turns:
        return
    failing = failure.first.step
    if account.ended_at is not None and account.ended_at < failing:
        yield account.ended_at, f"{name} ends ({account.ended})"
        return
    for number in range(min(failing, len(failure.steps)) - 1, -1, -1):
        step = failure.steps[number]
        if name in (step.preempted or ()):
            yield number, f"{name} is preempted"
            return
        if tokens := step.scheduled.get(name):
            computed = (step.computed or {}).get(name)
            yield number, f"{name} computes {_tokens(tokens)}{_of(computed, account.prompt)}"
            return
    if hit := (failure.last.prefix_hit or {}).get(name):
        yield from _found(failure, account, hit)
    for request in failure.scenario.requests:
        if request.id == name and request.arrival < failing:
            about = f"prompt {request.prompt_len}, max_tokens {request.max_tokens}"
            yield request.arrival, f"{name} arrives: {about}"
            return


def _found(failure: Failure, account: RequestHistory, hit: int) -> Iterator[tuple[int, str]]:
    """Yield who computed the tokens that a request finds when it starts."""
    others = [other for other in failure.history.kin(account) if other is not account]
    source = max(others, key=partial(in_common, account), default=None)
    if source is not None and in_common(account, source) >= hit:
        found = f"{source.id} begins, and computes the {hit:,} tokens that {account.id} finds"
        yield max(source.began, 0), found + left(source)


def _tokens(count: int) -> str:
    return f"{count:,} token{'s' * (count != 1)}"


def _of(computed: int | None, prompt: int) -> str:
    if computed is None:
        return ""
    if computed < prompt:
        return f", and has {computed:,} of its prompt's {prompt:,}"
    return f", and has {computed:,}"
