"""Shrink a scenario further than Hypothesis does: fewer requests, smaller numbers, whole blocks.

Hypothesis shrinks the choices that led to a scenario. This pass shrinks the scenario itself, until
only the requests and tokens that the failure needs are left.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any

from msgspec.structs import replace

from ...model.errors import InputError
from ...model.scenario import OF_FEATURES, Control, Event, Request, Scenario, Segment
from ...model.systems import check_features, full_config, resolve_revision
from ..search.state import features_of_requests

# Trials of a scenario that hangs; each takes the full time limit of a step.
HANG_ATTEMPTS = 10
# The optional fields of requests that a finding names as needed. The remaining ones are sizes, or
# `features_of_requests` has a name for them.
NAMED_FIELDS = ("external_tokens", "send_steps", "send_aborted", "cache_salt", "lora")

# For some control events, one that does less.
PLAINER: Mapping[str, Control] = {
    "reset_running_requests": "reset_prefix_cache",
    **{"sleep": "reset_running_requests", "wake_up": "resume"},
}


def shrink(scenario: Scenario, still_breaks: Callable[[Scenario], bool], attempts: int) -> Scenario:
    """Return the smallest scenario found for which `still_breaks` is true, in at most `attempts`
    trials."""
    tried: set[str] = set()
    best, place, progress = scenario, 0, True
    while progress:
        progress = False
        # Changes that failed before the last success would most likely fail again, so they come
        # last.
        ahead = islice(enumerate(simpler(best)), place, None)
        for number, candidate in chain(ahead, islice(enumerate(simpler(best)), place)):
            key = repr((candidate.config, candidate.requests, candidate.events))
            if key in tried:
                continue
            if attempts == 0:
                return best
            tried.add(key)
            attempts -= 1
            if still_breaks(candidate):
                best, place, progress = candidate, number, True
                break
    return best


def until(scenario: Scenario, step: int) -> Scenario:
    """Return the scenario without anything that happens after this step."""
    kept = [request for request in scenario.requests if request.arrival <= step]
    patient = [
        replace(request, abort_at=None, abort_inside=False)
        if (request.abort_at or 0) > step
        else request
        for request in kept
    ]
    events = tuple([event for event in scenario.events if event.step <= step])
    return replace(scenario, requests=tuple(patient), events=events)


def simpler(scenario: Scenario) -> Iterator[Scenario]:
    requests = scenario.requests
    yield from _without_many(scenario)
    for index in reversed(range(len(requests))):
        if len(requests) > 1:
            yield replace(scenario, requests=requests[:index] + requests[index + 1 :])
    earliest = min(request.arrival for request in requests)
    if earliest > 0:
        events = tuple([_sooner(event, earliest) for event in scenario.events])
        earlier = tuple(_earlier(request, earliest) for request in requests)
        yield replace(scenario, requests=earlier, events=events)
    yield from _fewer_events(scenario)
    yield from _plainer_options(scenario)
    plain = tuple([replace(request, accepted=(), **OF_FEATURES) for request in requests])
    if plain != requests:
        yield replace(scenario, requests=plain)
    block = int(scenario.config.get("block_size", 64))
    for index in reversed(range(len(requests))):
        for plainer in simpler_requests(requests[index], block):
            yield replace(scenario, requests=(*requests[:index], plainer, *requests[index + 1 :]))


def _fewer_events(scenario: Scenario) -> Iterator[Scenario]:
    """Yield simpler scenarios: without one control event, with an event that does less, or with an
    event one step earlier."""
    events = scenario.events
    for index in reversed(range(len(events))):
        before, event, after = events[:index], events[index], events[index + 1 :]
        yield replace(scenario, events=(*before, *after))
        if event.kind in PLAINER:
            plainer = replace(event, kind=PLAINER[event.kind])
            yield replace(scenario, events=(*before, plainer, *after))
        if event.step > 0:
            yield replace(scenario, events=(*before, _sooner(event, 1), *after))


def _sooner(event: Event, steps: int) -> Event:
    return replace(event, step=max(event.step - steps, 0))


def _without_many(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario without half of its requests, without a quarter, and so on. Removing
    hundreds of requests one by one would use up every attempt."""
    requests = scenario.requests
    part = len(requests) // 2
    while part > 1:
        for start in reversed(range(0, len(requests), part)):
            if kept := requests[:start] + requests[start + part :]:
                yield replace(scenario, requests=kept)
        part //= 2


def simpler_requests(request: Request, block: int) -> Iterator[Request]:
    """Yield simpler requests: without the abort, a feature or the early end, or with smaller
    numbers."""
    if request.abort_at is not None:
        yield replace(request, abort_at=None, abort_inside=False)
    if request.abort_inside:
        yield replace(request, abort_inside=False)
    if (plain := request.without_connector()) != request:
        yield plain
    for key, nothing in {**OF_FEATURES, "sent_as": None}.items():
        if getattr(request, key) != nothing:
            yield replace(request, **{key: nothing})
    for key in (
        "grammar_steps",
        "grammar_begins",
        "load_steps",
        "load_deferrals",
        "send_steps",
        "tool_steps",
    ):
        for smaller in smaller_numbers(getattr(request, key) or 0, 0, block):
            yield replace(request, **{key: smaller})
    yield from _simpler_turns(request, block)
    if request.output_len is not None and request.output_len != request.max_tokens:
        yield replace(request, output_len=None)
    if request.priority:
        yield replace(request, priority=0)
    for smaller in smaller_numbers(request.abort_at or 0, request.arrival, block):
        yield replace(request, abort_at=smaller)
    for smaller in smaller_numbers(request.arrival, 0, block):
        if request.abort_at is None:
            yield replace(request, arrival=smaller)
    for smaller in smaller_numbers(request.max_tokens, 1, block):
        emitted = min(request.tokens_to_emit, smaller)
        yield replace(request, max_tokens=smaller, output_len=emitted)
    if any(stream != request.id for stream, _ in request.prompt):
        prompt = ((request.id, request.prompt_len),)
        yield replace(request, prompt=prompt, encoder_inputs=())
    yield from _fewer_encoder_inputs(request)
    for smaller in smaller_numbers(request.prompt_len, 1, block):
        yield _cut(request, smaller)


def _simpler_turns(request: Request, block: int) -> Iterator[Request]:
    for number, turn in enumerate(request.turns):
        before, after = request.turns[:number], request.turns[number + 1 :]
        yield replace(request, turns=(*before, *after))
        plainer = [
            replace(turn, **{key: None})
            for key in ("output_len", "grammar_ends")
            if getattr(turn, key) is not None
        ]
        for delay in smaller_numbers(turn.delay or 0, 0, block):
            plainer.append(replace(turn, delay=delay))
        for tokens in smaller_numbers(turn.prompt_len, 1, block):
            plainer.append(replace(turn, prompt=((turn.prompt[0][0], tokens),)))
        for most in smaller_numbers(turn.max_tokens, 1, block):
            emitted = min(turn.tokens_to_emit, most)
            plainer.append(replace(turn, max_tokens=most, output_len=emitted))
        for simpler_turn in plainer:
            yield replace(request, turns=(*before, simpler_turn, *after))


def _fewer_encoder_inputs(request: Request) -> Iterator[Request]:
    for number in request.encoder_inputs:
        before, after = request.prompt[:number], request.prompt[number + 1 :]
        kept = tuple([n for n in request.encoder_inputs if n != number])
        if before or after:
            moved = tuple([n - (n > number) for n in kept])
            yield replace(request, prompt=(*before, *after), encoder_inputs=moved)
        text = (request.id, request.prompt[number][1])
        yield replace(request, prompt=(*before, text, *after), encoder_inputs=kept)


def _cut(request: Request, tokens: int) -> Request:
    kept: list[Segment] = []
    whole: list[int] = []
    for number, (stream, length) in enumerate(request.prompt):
        if tokens <= 0:
            break
        if number in request.encoder_inputs and length > tokens:
            stream = request.id
        elif number in request.encoder_inputs:
            whole.append(number)
        kept.append((stream, min(length, tokens)))
        tokens -= length
    return replace(request, prompt=tuple(kept), encoder_inputs=tuple(whole))


def _plainer_options(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with one option at its default or removed, or with one item of a list
    removed."""
    defaults = _defaults(scenario)
    for key, value in scenario.config.items():
        if _is_changed(scenario, key, defaults):
            yield from _at_default(scenario, key, defaults)
        for number in range(len(value) if isinstance(value, list | tuple) else 0):
            shorter = value[:number] + value[number + 1 :]
            yield from _valid(scenario, scenario.config | {key: shorter})
    plain = {key: value for key, value in scenario.config.items() if key in defaults}
    if len(plain) < len(scenario.config) - 1:  # options that need one another
        yield from _valid(scenario, plain)


def _at_default(scenario: Scenario, key: str, defaults: Mapping[str, Any]) -> list[Scenario]:
    """Return the scenario with an option at its default or removed. If other options need this
    option, return one scenario for each of them, with both options reset. Return no scenario if
    that is not enough."""

    def without(*keys: str) -> list[Scenario]:
        config = {k: v for k, v in scenario.config.items() if k not in keys or k in defaults}
        return _valid(scenario, config | {k: defaults[k] for k in keys if k in defaults})

    others = [k for k in scenario.config if k != key and _is_changed(scenario, k, defaults)]
    return without(key) or [both for other in others for both in without(key, other)]


def _valid(scenario: Scenario, config: Mapping[str, Any]) -> list[Scenario]:
    """Return the scenario with this configuration, or nothing if the configuration is
    impossible."""
    revision = resolve_revision(scenario.system, scenario.revision)
    with suppress(InputError):  # another option or a request needs what is missing
        full_config(scenario.system, revision, config)
        check_features(scenario, revision, config)
        return [replace(scenario, config={**config})]
    return []


def _defaults(scenario: Scenario) -> Mapping[str, Any]:
    revision = resolve_revision(scenario.system, scenario.revision)
    return full_config(scenario.system, revision, {})


def _changed_options(scenario: Scenario) -> frozenset[str]:
    """Return the keys of the optional features that the scenario turns on or changes."""
    defaults = _defaults(scenario)
    return frozenset(key for key in scenario.config if _is_changed(scenario, key, defaults))


def _is_changed(scenario: Scenario, key: str, defaults: Mapping[str, Any]) -> bool:
    return _is_option(key, defaults) and scenario.config[key] != defaults.get(key)


def _is_option(key: str, defaults: Mapping[str, Any]) -> bool:
    """Return whether a key is a feature and not a size. For a feature, the default is a word, on,
    off, 0, unbounded, or absent. Keys that a target declares itself (`own`) have no known
    default."""
    default = defaults.get(key)
    return key != "own" and (isinstance(default, bool | str) or not default)


def needed_features(
    scenario: Scenario, still_breaks: Callable[[Scenario], bool | None]
) -> tuple[str, ...]:
    """Name the features that a shrunk scenario needs to break its rule.

    Replay the scenario once for each option, with the option at its default, or off if it is on by
    default. If another option needs this option, reset both. Leave out features that the target
    itself requires (`still_breaks` returns None).
    """
    defaults = _defaults(scenario)
    needed = []
    for key, value in scenario.config.items():
        if _is_changed(scenario, key, defaults):
            plainer = _at_default(scenario, key, defaults)
            is_needed = all(still_breaks(other) is False for other in plainer)
        else:
            is_on = value is True and _is_option(key, defaults)
            off = _valid(scenario, scenario.config | {key: False}) if is_on else []
            is_needed = any(still_breaks(other) is False for other in off)
        if is_needed:
            needed.append(_feature(key, value))
    return (*needed, *_features_beside_config(scenario))


def features_in(scenario: Scenario) -> tuple[str, ...]:
    """Name all features of a scenario, whether or not it needs them to break its rule."""
    options = (_feature(key, value) for key, value in scenario.config.items())
    return (*options, *_features_beside_config(scenario))


def _features_beside_config(scenario: Scenario) -> Iterator[str]:
    occurs = features_of_requests(scenario) | {"control event": bool(scenario.events)}
    yield from (name for name, is_there in occurs.items() if is_there)
    for key in NAMED_FIELDS:
        if any(getattr(request, key) != OF_FEATURES[key] for request in scenario.requests):
            yield key


def _feature(key: str, value: Any) -> str:
    """Name a feature. Omit the value if it is a number, since a number says nothing about the
    cause."""
    if isinstance(value, bool):
        return f"{key} {'on' if value else 'off'}"
    return f"{key} {value}" if isinstance(value, str) else key


def size(scenario: Scenario) -> tuple[int, int]:
    """Return the size of a scenario, for comparison: the number of requests, then tokens and
    steps."""
    requests = scenario.requests
    tokens = sum(request.prompt_len + request.max_tokens + request.arrival for request in requests)
    tokens += sum(request.tokens_to_emit + (request.abort_at or 0) for request in requests)
    return len(requests), tokens + sum(1 + event.step for event in scenario.events)


def stands_for(scenario: Scenario, other: Scenario) -> bool:
    """Return whether `scenario` can replace `other` as an example of the same failure: it needs no
    further optional feature, and is no larger."""
    needs_no_more = _changed_options(scenario) <= _changed_options(other)
    return needs_no_more and size(scenario) <= size(other)


def smaller_numbers(number: int, least: int, block: int) -> Iterator[int]:
    candidates = (least, number // 2, number - block, number // block * block, number - 1)
    seen = set()
    for candidate in candidates:
        if least <= candidate < number and candidate not in seen:
            seen.add(candidate)
            yield candidate


def _earlier(request: Request, steps: int) -> Request:
    abort_at = None if request.abort_at is None else max(request.abort_at - steps, 0)
    return replace(request, arrival=request.arrival - steps, abort_at=abort_at)
