"""Explain a wrong hit by a bar of tokens, and a crossed limit by a curve."""

import re
from collections.abc import Iterator

from ..history.content import in_common, known_tokens
from ..history.request_history import RequestHistory
from .cause import Bar, Cause, Curve, Part
from .failure import Failure, left
from .measures import TOKENS, VOLUME, Measure, measures

BEYOND = re.compile(r"(\d+) > (?:\w+ )?(\d+)")
MOST_BARS = 10  # requests of a step that are drawn one by one
POINTS = 120  # of a curve; earlier steps are left out


def hit_cause(failure: Failure) -> Cause | None:
    for name, hit in _hits(failure).items():
        request = failure.history.requests.get(name)
        if request is None or request.began != failure.first.step or hit not in failure.numbers:
            continue
        if not failure.names(name):
            continue
        others = [other for other in failure.history.kin(request) if other is not request]
        source = max(others, key=lambda other: _shared_with(request, other), default=None)
        known = max(request.recompute_from, _shared_with(request, source) if source else 0)
        if hit > known:
            return _never_computed(failure, request, hit, known, source)
        due = [number for number in failure.numbers if hit < number <= known]
        if due and "finds" in failure.message:
            return _not_found(failure, request, hit, max(due), source)
    return None


def _hits(failure: Failure) -> dict[str, int]:
    """Return the prefix hits of the step. If a request ends in the step, its hit is no longer
    shown, and is computed from its tokens."""
    step, requests = failure.last, failure.history.requests
    gone = [name for name in step.finished or () if name in requests and name in step.scheduled]
    unseen = {name: requests[name].computed - step.scheduled[name] for name in gone}
    return {**(step.prefix_hit or {}), **{name: hit for name, hit in unseen.items() if hit > 0}}


def _never_computed(
    failure: Failure, request: RequestHistory, hit: int, known: int, source: RequestHistory | None
) -> Cause:
    size, table = failure.config["block_size"], (failure.last.blocks or {}).get(request.id, ())
    place = known // size
    block = table[place] if place < len(table) else None
    holder = failure.holder(block, request.id) if block is not None else None
    if holder is not None:
        source = failure.history.requests.get(holder[0], source)
    why = []
    if source is not None:
        shared = f"of which {in_common(request, source)} are also tokens of {request.id}"
        done = f"has computed {source.max_computed} tokens, {shared}{left(source)}"
        if holder is None:
            why.append(f"step {max(source.began, 0)}: {source.id} begins; it {done}")
        else:
            found = f"where {request.id} looks for tokens {known} to {(place + 1) * size - 1}"
            why.append(f"step {holder[1]}: {source.id} holds block {block}, {found}; it {done}")
    why.append(
        f"step {failure.first.step}: {request.id} finds these blocks by their content, and skips "
        f"{hit} tokens, although no request has computed {hit - known} of them"
    )
    bars = [_bar(failure, request, ("cached", known), ("never", hit - known))]
    is_known = holder is not None or (source is not None and in_common(request, source) >= hit)
    elsewhere = None if is_known else _elsewhere(failure, request, known, hit)
    if elsewhere is not None:
        other, place, many = elsewhere
        where = f"after {place} other token{'s' * (place != 1)}" if place else "at its beginning"
        why[:-1] = [
            f"step {max(other.began, 0)}: {other.id} begins; it has computed {many} of these "
            f"tokens, but {where}"
        ]
        rest = other.max_computed - place - many
        bars.append(_bar(failure, other, ("computed", place), ("same", many), ("computed", rest)))
    elif source is not None:
        computed = source.max_computed
        ahead = hit - computed if in_common(request, source) >= hit else 0
        bars.append(_bar(failure, source, ("computed", computed), ("never", max(ahead, 0))))
    headline = f"{hit - known} of {hit} cached tokens were never computed"
    return Cause(headline, tuple(why), bars=tuple(bars))


def _not_found(
    failure: Failure, request: RequestHistory, hit: int, due: int, source: RequestHistory | None
) -> Cause:
    bars = [_bar(failure, request, ("cached", hit), ("missed", due - hit))]
    why = []
    if source is not None and source.max_computed >= due:
        bars.append(_bar(failure, source, ("computed", source.max_computed)))
        step = max(source.began, 0)
        why.append(f"step {step}: {source.id} computes the same tokens{left(source)}")
    why.append(
        f"step {failure.first.step}: {request.id} finds {hit} of them, and computes "
        f"{due - hit} again"
    )
    headline = f"{due - hit} of {due} cached tokens are not found"
    return Cause(headline, tuple(why), bars=tuple(bars))


def _bar(failure: Failure, request: RequestHistory, *parts: tuple[str, int]) -> Bar:
    now = failure.last.scheduled.get(request.id, 0)
    done = sum(tokens for _, tokens in parts)
    left = max(request.prompt + request.regenerated - done, 0)
    now = min(now, left) if parts[0][0] == "cached" else 0
    parts = (*parts, ("now", now), ("rest", left - now))
    drawn = tuple(Part(kind, tokens) for kind, tokens in parts if tokens)
    return Bar(request.id, drawn, request.ended or "")


def limit_cause(failure: Failure) -> Cause | None:
    beyond = [(int(value), int(limit)) for value, limit in BEYOND.findall(failure.message)]
    for measure in measures(failure.last, failure.config):
        if measure.value > measure.limit and {measure.value, measure.limit} <= failure.numbers:
            if measure.name == TOKENS:
                return _sum(failure, measure)
            return _curve(failure, measure.name, measure.unit, measure.value, measure.limit)
    for value, limit in beyond:
        if limit == failure.config.get("max_batch_tkv"):
            return _curve(failure, VOLUME, "tokens", value, limit, is_coming=True)
        return Cause(
            f"{value:,}/{limit:,}: {value - limit:,} over",  # the message says which limit it is
            bars=(Bar("", (Part("computed", limit), Part("never", value - limit))),),
        )
    return None


def _sum(failure: Failure, measure: Measure) -> Cause:
    """Draw the tokens of the requests one after another, with the limit above them."""
    scheduled = [*failure.last.scheduled.items()]
    others = scheduled[: 1 - MOST_BARS] if len(scheduled) > MOST_BARS else []
    if others:
        together = (f"{len(others)} others", sum(tokens for _, tokens in others))
        scheduled = [together, *scheduled[1 - MOST_BARS :]]
    bars, done = [Bar("limit", (Part("limit", measure.limit),))], 0
    for name, tokens in scheduled:
        fits = min(max(measure.limit - done, 0), tokens)
        pieces = (("gap", done), ("now", fits), ("over", tokens - fits))
        drawn = tuple(Part(kind, length) for kind, length in pieces if length)
        bars.append(Bar(name, drawn, f"{tokens:,}"))
        done += tokens
    many = f"{measure.value:,}/{measure.limit:,} tokens, {measure.value - measure.limit:,} over"
    return Cause(f"{TOKENS}: {many}", bars=tuple(bars))


def padding_cause(failure: Failure) -> Cause | None:
    """Draw the left padding and the tokens of each request in a batch, up to the tkv. For a
    prefill, draw the chunks up to their end."""
    step, message = failure.last, failure.first.message
    is_about_it = failure.ended_by_it and ("padd" in message or "tkv" in message)
    if step.left_pad_blocks is None or not is_about_it:
        return None
    chunk = failure.config.get("chunk_size", 0) if step.kind == "prefill" else 0
    bars = []
    if step.tkv is not None and not chunk:
        bars.append(Bar("tkv", (Part("tkv", step.tkv),), f"{step.tkv:,}"))
    for name, now in [*step.scheduled.items()][:MOST_BARS]:
        request, pads = failure.history.requests.get(name), step.left_pad_blocks.get(name, 0)
        pad = max(pads, 0) * failure.config["block_size"]
        done = max(request.computed if request is not None else now, now)
        empty = -(pad + done) % chunk if chunk else 0
        pieces = (("pad", pad), ("computed", done - now), ("now", now), ("empty", empty))
        bars.append(Bar(name, tuple(Part(kind, length) for kind, length in pieces if length)))
    return Cause("", bars=tuple(bars)) if step.scheduled else None


def _curve(
    failure: Failure, name: str, unit: str, value: int, limit: int, *, is_coming: bool = False
) -> Cause:
    points = [
        (number, measure.value)
        for number, step in enumerate(failure.steps)
        for measure in measures(step, failure.config)
        if measure.name == name
    ][-POINTS:]
    begin = points[0][0] if points else 0
    projected = []
    if name == VOLUME:
        joins = [join for join in failure.projections if join.joined]
        ends = [*(join.step for join in joins[1:]), len(failure.steps)][: len(joins)]
        projected = [
            (max(join.step, begin), end, join.largest, join.newcomer)
            for join, end in zip(joins, ends, strict=True)
            if end > begin
        ]
    coming = value if is_coming else None
    curve = Curve(name, unit, limit, tuple(points), tuple(projected), coming)
    will = " to come" if is_coming else ""
    headline = f"{name}{will}: {value:,}/{limit:,} {unit}, {value - limit:,} over"
    before = dict(points).get(failure.first.step - 1)
    rises = f"{name} is {value:,}"
    if before is not None:
        rises = f"{name} goes from {before:,} to {value:,}"
    who = ", ".join(f"{name} {tokens:,}" for name, tokens in failure.last.scheduled.items())
    why = [] if is_coming else [f"step {failure.first.step}: {rises}; scheduled: {who}"]
    if name == VOLUME and not projected and not is_coming:
        why[:0] = _joined_last(failure)
    if projected and projected[-1][2] > limit:
        begin, _, most, newcomer = projected[-1]
        formula = f"the formula of {failure.version}"
        why.insert(0, f"step {begin}: {newcomer} joins, although {formula} projects {most:,}")
    return Cause(headline, tuple(why), curve=curve)


def _joined_last(failure: Failure) -> list[str]:
    """Return a sentence about the last step in which a request of the batch computed a part of its
    prompt."""
    for number in range(len(failure.steps) - 1, -1, -1):
        step = failure.steps[number]
        new = [name for name in step.scheduled if name in failure.last.scheduled]
        if step.kind == "prefill" and new:
            who = ", ".join(new)
            return [f"step {number}: {who} computes the last of its prompt, and joins the batch"]
    return []


def _elsewhere(
    failure: Failure, request: RequestHistory, known: int, hit: int
) -> tuple[RequestHistory, int, int] | None:
    """Return a request that has computed the missing tokens of a hit, but after different tokens.
    Also return the number of tokens before the missing ones, and how many of the missing ones the
    request has computed."""
    wanted = next((stream for stream, begin, end in _places(request) if begin <= known < end), None)
    for other in failure.history.requests.values():
        if other is request or other.partition != request.partition:
            continue
        for stream, begin, end in _places(other):
            many = min(end, other.max_computed) - begin
            if stream == wanted and many > 0:
                return other, begin, min(many, hit - known)
    return None


def _places(request: RequestHistory) -> Iterator[tuple[str, int, int]]:
    """Yield each stream of a request's tokens, with the positions at which it begins and ends."""
    begin = 0
    for stream, length in known_tokens(request):
        yield stream, begin, begin + length
        begin += length


def _shared_with(request: RequestHistory, other: RequestHistory) -> int:
    """Return how many of the first tokens of a request the other request has computed."""
    return min(in_common(request, other), other.max_computed)
