"""Report what vLLM's scheduler sends to its workers with a decision.

Source: releases 0.19.1 to 0.33.0, GPUModelRunner._update_states, and the second model runner's
finish_requests, add_requests and update_requests.
"""

from collections.abc import Mapping
from typing import Any

from .drafts import NO_DRAFT


def message_to_worker(
    scheduler: Any, decision: Any, encoded: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Return the message to the worker about requests. The first model runner keeps preempted
    requests, and the scheduler tells it when they resume. The second model runner forgets preempted
    requests, and starts afresh with a request that is sent again as a new one.

    `encoded` contains the numbers of each request's encoder inputs.
    """
    cached = decision.scheduled_cached_reqs
    computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    blocks = {
        name: new for name, new in zip(cached.req_ids, cached.new_block_ids, strict=True) if new
    }
    told: dict[str, Any] = {}
    if new := decision.scheduled_new_reqs:
        told["new"] = [request.req_id for request in new]
        computed |= {request.req_id: request.num_computed_tokens for request in new}
        blocks |= {request.req_id: request.block_ids for request in new}
    told["computed"] = {name: max(tokens, 0) for name, tokens in computed.items()}
    if cached.resumed_req_ids:
        told["resumed"] = sorted(cached.resumed_req_ids)
    if blocks:
        # Copy these lists: the worker appends to them, and the scheduler may do so too.
        told["blocks"] = {name: [[*group] for group in groups] for name, groups in blocks.items()}
    dropped = {*decision.finished_req_ids}
    if getattr(scheduler, "use_v2_model_runner", False):
        dropped.update(decision.preempted_req_ids or (), told.get("new", ()))
    if dropped:
        told["dropped"] = sorted(dropped)
    if copies := getattr(decision, "kv_cache_block_copies", None):
        told["copies"] = [[copy.src_block_id, copy.dst_block_id] for copy in copies]
    if sends_tokens(scheduler):
        told["tokens"] = known_tokens(decision)
    if encoded:
        told |= inputs(decision, encoded)
    if getattr(scheduler, "num_spec_tokens", 0):
        told |= drafts(scheduler, decision)
    return told


def drafts(scheduler: Any, decision: Any) -> dict[str, Any]:
    """Return how many drafts of each request the worker verifies, and whose drafts it has to fill
    in. A request that joins has no drafts yet; its placeholders are padding."""
    tokens = decision.scheduled_spec_decode_tokens
    told: dict[str, Any] = {"drafts": {name: len(own) for name, own in tokens.items() if own}}
    if not scheduler.scheduler_config.async_scheduling:
        return told
    resumed = decision.scheduled_cached_reqs.resumed_req_ids
    joining = {*resumed, *(request.req_id for request in decision.scheduled_new_reqs)}
    if filled_in := [
        name for name, own in tokens.items() if NO_DRAFT in own and name not in joining
    ]:
        told["placeholders"] = filled_in
    return told


def inputs(decision: Any, encoded: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the encoder inputs whose data the worker gets, and those whose data it discards."""
    sent = {
        request.req_id: [place for place, part in enumerate(parts) if part.data is not None]
        for request in decision.scheduled_new_reqs
        if (parts := request.mm_features)
    }
    released: dict[str, list[int]] = {}
    # Only the second model runner of later releases.
    for name, updates in getattr(decision, "encoder_input_updates", {}).items():
        for place, data in updates.items():
            (released if data is None else sent).setdefault(name, []).append(place)
    return {
        field: {name: [encoded[name][place] for place in places] for name, places in of.items()}
        for field, of in (("inputs", sent), ("released", released))
        if of or field == "inputs"
    }


def sends_tokens(scheduler: Any) -> bool:
    """Return whether the first stage of a pipeline receives the tokens that the last stage
    samples."""
    return bool(
        getattr(scheduler, "use_pp", False) and not scheduler.scheduler_config.async_scheduling
    )


def known_tokens(decision: Any) -> dict[str, int]:
    """Return how many tokens of each request, including drafts, the first stage knows after
    receiving them."""
    cached, drafts = decision.scheduled_cached_reqs, decision.scheduled_spec_decode_tokens
    known = {
        request.req_id: len(request.prefill_token_ids or request.prompt_token_ids)
        for request in decision.scheduled_new_reqs
    }
    rows = zip(cached.req_ids, cached.num_computed_tokens, cached.new_token_ids, strict=True)
    for name, computed, new in rows:
        known[name] = computed + len(new) + len(drafts.get(name, ()))
    return known
