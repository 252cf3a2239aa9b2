"""The features of a vLLM request beyond its prompt: drafts, loads, and encoder inputs.

There are only a few sizes of images, and some images occur more than once.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from ...model.pool import Content
from ...model.scenario import Request, Segment, Turn
from ..history.prefix_hits import caches
from . import PREFILL_INTERVALS, REPORTED_HITS, V2_WITHOUT_LOOKAHEAD
from .history import blocked, encoder, groups, in_flight, loads, partitions, sessions, speculation
from .workloads import PICTURE, TITLES

Config = Mapping[str, Any]
MANY = 1 << 10  # more requests than any batch has
MOST = 8  # the largest number of items in a list of a request
# Names for both salts and adapters, so that a salt may have the name of an adapter.
PARTITIONS = st.sampled_from((None, None, "x", "y"))
TWO_ADAPTERS = st.sampled_from((None, None, "x", "x#2"))  # two adapters called x
ADAPTERS = st.sampled_from(("x", "y", "z", "u", "v"))  # more than there are slots
GRAMMAR_FAILS = st.sampled_from((*7 * (False,), True))
OTHER_MAX_TOKENS = st.sampled_from((*11 * (False,), True))
GRAMMAR_STEPS = st.sampled_from((0, 1, 3, 0, 2, 8))
DELAYS = st.sampled_from((0, None, 2, 8, None, 1))


@st.composite
def encoders(draw: st.DrawFn, config: Mapping[str, Any]) -> dict[str, Any]:
    """Draw an encoder whose budget and room are enough for one image, or for the tokens of a step.

    vLLM derives both from the largest image of a model and max_num_batched_tokens.
    """
    budget, block = config["max_num_batched_tokens"], config["block_size"]
    picture = draw(st.sampled_from((1, 1, budget + 1, budget + block, 2 * budget)))
    size = max(budget, min(picture, config["max_model_len"] - 2))
    whole = {"disable_chunked_mm_input": True} if size == budget and draw(st.booleans()) else {}
    return {"max_num_encoder_input_tokens": size, "encoder_cache_size": size, **whole}


def dynamic_drafts(config: Mapping[str, Any], drafts: int) -> st.SearchStrategy[dict[str, Any]]:
    """Draw options that make the number of drafts depend on the number of requests. Usually, draw
    none."""
    dynamic = ranges_of_requests(config["max_num_seqs"], drafts).map(
        lambda ranges: {"num_speculative_tokens_per_batch_size": ranges}
    )
    return st.one_of(st.just({}), st.just({}), st.just({}), dynamic)


@st.composite
def ranges_of_requests(draw: st.DrawFn, most: int, drafts: int) -> list[list[int]]:
    """Draw two to four ranges of the number of requests, each with its number of drafts."""
    ends = draw(st.sets(st.integers(1, most), min_size=1, max_size=3))
    first = (1, *(end + 1 for end in sorted(ends)))
    last = (*sorted(ends), MANY)
    return [[*pair, draw(st.integers(0, drafts))] for pair in zip(first, last, strict=True)]


@st.composite
def later_limits(draw: st.DrawFn, config: Mapping[str, Any]) -> dict[str, Any]:
    """Sometimes draw a limit on running requests that is lower than max_num_seqs, or an adaptive
    threshold."""
    drawn: dict[str, Any] = {}
    if draw(st.sampled_from((*4 * (False,), True))):
        drawn["max_num_active_seqs"] = draw(st.integers(1, config["max_num_seqs"]))
    if config["long_prefill_token_threshold"] and draw(st.sampled_from((*3 * (False,), True))):
        drawn["long_prefill_token_threshold_adaptive"] = True
    return drawn


WITHOUT_INTERVAL = {
    *("kv_connector", "structured_outputs", "streaming_inputs", "encoder_cache_size", "max_loras"),
}


def prefill_intervals(
    config: Mapping[str, Any], avoid: frozenset[str]
) -> st.SearchStrategy[dict[str, Any]]:
    """Sometimes draw an interval between prefills."""
    if PREFILL_INTERVALS in avoid or config["policy"] == "priority":
        return st.just({})
    if WITHOUT_INTERVAL & config.keys():
        return st.just({})
    few = st.integers(2, 4).map(lambda steps: {"prefill_schedule_interval": steps})
    return st.one_of(st.just({}), st.just({}), st.just({}), few)


def model_runners(
    config: Mapping[str, Any], avoid: frozenset[str]
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the V2 model runner for a third of the configurations with which it starts."""
    in_stages = in_flight.depth(config) > 2 and speculation.decides_ahead(config)
    without = speculation.drafts(config) and not speculation.lookahead(config)
    if in_stages or (without and V2_WITHOUT_LOOKAHEAD in avoid):
        return st.just({})
    return st.sampled_from(({}, {}, {"use_v2_model_runner": True}))


@st.composite
def last_options(draw: st.DrawFn, config: Config, avoid: frozenset[str]) -> dict[str, Any]:
    """Draw an interval between prefills, a model runner, and whether routers are told what is
    cached."""
    drawn = draw(prefill_intervals(config, avoid)) | draw(model_runners(config, avoid))
    if caches(config) and draw(st.sampled_from((*3 * (False,), True))):
        modes = ("incremental",) if REPORTED_HITS in avoid else ("full", "incremental")
        drawn |= {"kv_cache_events": draw(st.sampled_from(modes))}
    return drawn


@st.composite
def with_pictures(draw: st.DrawFn, request: Request, config: Mapping[str, Any]) -> Request:
    """Return the request with images added to its own part of the prompt. A part that repeats an
    earlier request keeps the images of that request, except an image in which the part ends."""
    room = min(config["max_num_encoder_input_tokens"], config["encoder_cache_size"])
    sizes = sorted({1, max(room // 2, 1), room // 2 + 1, room}, reverse=True)
    prompt: list[Segment] = []
    for name, length in request.prompt:
        if name == request.id:
            prompt += draw(_split(name, length, sizes))
        else:
            prompt.append((name, length) if _whole(name, length) else (request.id, length))
    numbers = [n for n, (name, _) in enumerate(prompt) if name.startswith(PICTURE)]
    return msgspec.structs.replace(request, prompt=tuple(prompt), encoder_inputs=tuple(numbers))


@st.composite
def _split(draw: st.DrawFn, name: str, length: int, sizes: list[int]) -> Content:
    album = draw(st.sampled_from((True, False, False)))
    first = draw(st.integers(0, len(TITLES) - 1))
    parts: list[Segment] = []
    for number in range(MOST if album else draw(st.sampled_from((2, MOST, 1, 0)))):
        before = 0 if album else min(draw(st.sampled_from((0, 1, 4))), length)
        size = sizes[0] if album else draw(st.sampled_from(sizes))
        if before + size > length:
            break
        title = TITLES[(first + number) % len(TITLES)] if album else draw(st.sampled_from(TITLES))
        parts += [(name, before)] if before else []
        parts.append((f"{PICTURE} {title} of {size}", size))
        length -= before + size
    return (*parts, (name, length)) if length else tuple(parts)


def _whole(name: str, length: int) -> bool:
    return not name.startswith(PICTURE) or name.endswith(f" of {length}")


@st.composite
def with_features(draw: st.DrawFn, request: Request, config: Mapping[str, Any]) -> Request:
    """Add the features that the configuration allows, such as drafts, a load or images."""
    if drafts := speculation.drafts(config):
        request = msgspec.structs.replace(request, accepted=draw(accepted(drafts)))
    if loads.are_made(config):
        request = draw(with_load(request, config))
    if encoder.encodes(config):
        request = draw(with_pictures(request, config))
    if partitions.are_possible(config):
        salt, adapter = (
            draw(PARTITIONS),
            draw(ADAPTERS if config.get("max_loras", 0) > 2 else TWO_ADAPTERS),
        )
        request = msgspec.structs.replace(request, cache_salt=salt, lora=adapter)
    if blocked.can_be(config):
        request = draw(with_grammar(request, config))
    if sessions.are_held(config):
        request = draw(with_turns(request, config))
    return request


@st.composite
def with_grammar(draw: st.DrawFn, request: Request, config: Config) -> Request:
    """Return the request with a drawn grammar. Half of the models do not reason before they answer.
    With sessions, no grammar takes time to compile."""
    ends, held = draw(ends_of_grammars(request.tokens_to_emit)), sessions.are_held(config)
    drafts = speculation.drafts(config)
    reasons = draw(st.booleans()) and not (ends and ends < 2)
    last = request.tokens_to_emit if ends is None else ends - 1
    return msgspec.structs.replace(
        request,
        grammar_steps=0 if held else draw(GRAMMAR_STEPS),
        grammar_fails=not (held or encoder.encodes(config)) and draw(GRAMMAR_FAILS),
        grammar_begins=draw(st.integers(1, last)) if reasons else 0,
        grammar_ends=ends,
        grammar_drafts=draw(fitting(drafts)) if drafts else (),
    )


def ends_of_grammars(tokens: int) -> st.SearchStrategy[int | None]:
    """Draw after how many tokens the grammar of an output ends. Usually, it does not end before the
    answer."""
    return st.one_of(st.none(), st.none(), st.integers(1, tokens))


def fitting(drafts: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw how many drafts, out of `drafts`, fit a grammar for each number of known tokens. In
    half of the cases, all of them do."""
    some = st.lists(st.integers(0, drafts), min_size=1, max_size=4).map(tuple)
    return st.one_of(st.just(()), some)


@st.composite
def with_turns(draw: st.DrawFn, request: Request, config: Mapping[str, Any]) -> Request:
    """Return the request, usually with further turns.

    Most inputs and outputs end at a block boundary, or one token away from it. Outputs are
    shortened to leave room for a turn. In most sessions, all turns have the same max_tokens.
    Otherwise, a scheduler that confuses the turns' max_tokens would break almost every run.
    """
    block, room = config["block_size"], most_tokens(config) - request.prompt_len
    if room < 3 or not draw(st.integers(0, 3)):
        return request
    border = -request.prompt_len % block or block
    tokens = st.sampled_from((1, 2, block, block + 1, 2 * block, max(block - 1, 1)))
    first = min(draw(st.one_of(tokens, st.just(border))), (room - 1) // 2)
    room -= first
    varies = draw(OTHER_MAX_TOKENS)
    turns: list[Turn] = []
    for number in range(draw(st.integers(1, 3))):
        length, most = draw(tokens), draw(tokens) if varies else first
        if length + most > room:
            break
        room -= length + most
        name = draw(st.sampled_from((f"{request.id}.{number}", "more")))
        stops = draw(st.sampled_from((None, None, 1, max(most // 2, 1), max(most - 1, 1))))
        delay = draw(DELAYS)
        ends = draw(st.sampled_from((None, 1, most, 2 * most))) if blocked.can_be(config) else None
        turn = Turn(prompt=((name, length),), max_tokens=most, output_len=stops, delay=delay)
        turns.append(msgspec.structs.replace(turn, grammar_ends=ends))
    if not turns:
        return request
    emitted = min(request.tokens_to_emit, first)
    return msgspec.structs.replace(
        request, max_tokens=first, output_len=emitted, turns=tuple(turns)
    )


def most_tokens(config: Mapping[str, Any]) -> int:
    """Return how many tokens a session may have at most, so that every target accepts it."""
    limits = [config["max_model_len"]]
    if config["num_blocks"] is not None:
        limits.append(config["num_blocks"] * config["block_size"])
    if not config["enable_chunked_prefill"]:
        limits.append(config["max_num_batched_tokens"])
    return int(min(limits))


def has_features(config: Mapping[str, Any]) -> bool:
    named = partitions.are_possible(config) or blocked.can_be(config) or sessions.are_held(config)
    drafts = speculation.drafts(config)
    return bool(drafts or named or loads.are_made(config) or encoder.encodes(config))


@st.composite
def too_large(draw: st.DrawFn, config: Mapping[str, Any], name: str) -> Request | None:
    """Occasionally draw a request with an input too large for the encoder ever to compute."""
    if not encoder.encodes(config) or not draw(st.booleans()):
        return None
    tokens = draw(st.sampled_from((1, 9))) + encoder.longest(config)
    prompt = ((f"{name} input", tokens),)
    return Request(id=name, arrival=0, prompt=prompt, max_tokens=1, encoder_inputs=(0,))


def accepted(drafts: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw the number of correct drafts, out of `drafts`, for each verification of a request."""
    return st.lists(st.integers(0, drafts), min_size=1, max_size=4).map(tuple)


@st.composite
def with_load(draw: st.DrawFn, request: Request, config: Mapping[str, Any]) -> Request:
    """Return the request with a drawn number of prompt tokens that a connector has: none, some
    blocks, or all."""
    block, at_once = groups.hit_unit(config), loads.are_synchronous(config)
    whole = request.prompt_len // block * block
    tokens = draw(st.sampled_from((0, request.prompt_len, whole, min(block, whole))))
    steps = draw(st.sampled_from((0, 1, 3, 8))) if tokens and not at_once else 0
    fails = None
    if tokens and not (at_once and in_flight.depth(config) > 1):
        fails = draw(st.sampled_from((None, None, None, 0, tokens // 2)))
    return msgspec.structs.replace(
        request,
        external_tokens=tokens,
        load_steps=steps,
        load_fails_at=fails,
        load_deferrals=draw(st.sampled_from((0, 0, 0, 0, 1, 3))),
        send_steps=draw(st.sampled_from((None, None, None, 0, 3))),
        # Only vLLM has `send_aborted`. `policy` distinguishes vLLM from `generic`, which has no
        # such key.
        send_aborted="policy" in config and draw(st.sampled_from((*3 * (False,), True))),
    )
