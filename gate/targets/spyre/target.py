"""Target for the real Spyre schedulers: vllm-spyre 1.10.0 to sendnn-inference 2.6.3.

Runs in an environment that holds a release and not schedproof:

    PYTHONPATH=vllm-0.19.1:sendnn-inference-2.1.2 python gate/targets/run_adapter.py spyre
"""

import sys
from typing import Any

from .. import coverage, protocol_checks, scheduler_class
from ..jsonl import serve
from ..release_adapter import Hosted, HostedTarget, ids, outputs
from ..vllm.offline import fix_hash_seed
from .release import PACKAGES, Release, load_release
from .runner import BLOCK_SIZE, SpyreEngine

KEYS = {
    "block_size": protocol_checks.POSITIVE,
    "chunk_size": protocol_checks.POSITIVE,
    "max_num_seqs": protocol_checks.POSITIVE,
    "max_model_len": protocol_checks.POSITIVE,
    "max_batch_tkv": protocol_checks.POSITIVE,
    "interleave": protocol_checks.FLAG,
    "prefix_caching": protocol_checks.FLAG,
    "num_blocks": protocol_checks.or_null(protocol_checks.POSITIVE),
    "pausing": protocol_checks.FLAG,
    "long_output_priority": protocol_checks.FLAG,
}
LONGEST_MODEL_LEN = 131072  # max_position_embeddings of the stand-in model


class SpyreTarget(HostedTarget):
    """The protocol's operations on the release that is on the path."""

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        protocol_checks.check_system(system, "spyre")
        check_config(config)
        release = load_release()
        check_options(release, config)
        engine = SpyreEngine(release, config)
        title = scheduler_class.title(release.name, release.version)
        observes = observed_fields(engine)
        return Hosted(engine, *title, observes, release.defaults, engine.start_up)

    def admit(self, engine: SpyreEngine, request: protocol_checks.CheckedRequest) -> None:
        check_admissible(engine, request.output.id, len(request.prompt), request.max_tokens)
        engine.add(request)

    def advance(self, engine: SpyreEngine) -> dict[str, Any]:
        decision = engine.scheduler.schedule()
        output = engine.execute(decision)
        if engine.broken_assertion:
            print(engine.broken_assertion, file=sys.stderr, flush=True)
        aborted = self.abort_inside(engine)
        completion = engine.scheduler.update_from_output(decision, output)
        return observe(engine, decision, completion, aborted)


# --- refusals -------------------------------------------------------------------------------


def check_config(config: dict[str, Any]) -> None:
    protocol_checks.check_keys(config, KEYS)
    if config["block_size"] != BLOCK_SIZE:
        raise protocol_checks.refuse("block_size", config["block_size"], f"{BLOCK_SIZE}")
    if config["chunk_size"] % BLOCK_SIZE:
        raise protocol_checks.refuse(
            "chunk_size", config["chunk_size"], f"a multiple of {BLOCK_SIZE}"
        )
    if config["max_model_len"] > LONGEST_MODEL_LEN:
        raise protocol_checks.refuse(
            "max_model_len", config["max_model_len"], f"1 to {LONGEST_MODEL_LEN}"
        )
    if config["max_num_seqs"] > config["chunk_size"]:
        raise protocol_checks.refuse(
            "max_num_seqs",
            config["max_num_seqs"],
            f"1 to chunk_size = {config['chunk_size']} (a rule of vLLM's configuration)",
        )


def check_options(release: Release, config: dict[str, Any]) -> None:
    """Refuse options that this release lacks. `pausing` is never refused, because `start` sends
    every key, and a release without pausing ignores this key."""
    if config["long_output_priority"] and not release.has_option("LONG_OUT_PRIO"):
        lacks = f"false ({release.name} {release.version} has no such option)"
        raise protocol_checks.refuse("long_output_priority", True, lacks)


def check_admissible(engine: SpyreEngine, name: str, prompt: int, max_tokens: int) -> None:
    if name in engine.scheduler.requests:
        raise protocol_checks.RefusedError(
            f"refused by the protocol: a live request already has the id {name!r}"
        )
    if not prompt:
        raise protocol_checks.RefusedError("refused by the protocol: the prompt is empty")
    needed = prompt + max_tokens - 1
    blocks = -(-needed // BLOCK_SIZE)
    bounds = {
        "max_model_len": (needed, "prompt + max_tokens - 1"),
        "max_batch_tkv": (needed, "prompt + max_tokens - 1"),
        "num_blocks": (blocks, "blocks for prompt + max_tokens - 1"),
    }
    for key, (value, meaning) in bounds.items():
        bound = engine.config[key]
        if bound is not None and value > bound:
            raise protocol_checks.RefusedError(
                f"refused by the protocol: {meaning} = {value} > {key} = {bound}"
            )


# --- observation ----------------------------------------------------------------------------


def observed_fields(engine: SpyreEngine) -> list[str]:
    fields = ["emitted", "tkv", "left_pad_blocks", "waiting", "running", "prefilling"]
    fields += ["preempted", "finished", "computed", "blocks", "slot_blocks"]
    if engine.pauses:
        fields.append("paused")
    if engine.reserves_blocks:
        fields.append("reserved_blocks")
    if shows_free_blocks(engine):
        fields.append("free_blocks")
    if shows_prefix_hits(engine):
        fields.append("prefix_hit")
    return fields


# On 1.x the runner allocates blocks and frees them one step late, and the scheduler's count of
# computed tokens ignores prefix hits. So neither field would mean what the protocol says.


def shows_free_blocks(engine: SpyreEngine) -> bool:
    return engine.config["num_blocks"] is not None and not engine.runner_owns_blocks


def shows_prefix_hits(engine: SpyreEngine) -> bool:
    return engine.config["prefix_caching"] and not engine.runner_owns_blocks


def observe(
    engine: SpyreEngine, decision: Any, completion: Any, aborted: list[str]
) -> dict[str, Any]:
    scheduler = engine.scheduler
    kind = step_kind(engine, decision)
    held = {name: r for name, r in scheduler.requests.items() if r.num_computed_tokens}
    fields = {
        "kind": kind,
        "scheduled": scheduled_tokens(engine, decision, kind),
        "tkv": {"idle": None, "prefill": scheduler.tkv, "decode": engine.runner.tkv}[kind],
        "left_pad_blocks": {
            name: engine.runner.requests[name].padding_blocks
            for name in decision.num_scheduled_tokens
        },
        "slot_blocks": written_blocks(engine, decision, kind),
        "waiting": ids([*scheduler.waiting, *getattr(scheduler, "skipped_waiting", ())]),
        "running": ids(scheduler.running),
        "prefilling": ids(scheduler.ongoing_prefills),
        "preempted": sorted(decision.preempted_req_ids or ()),
        "computed": {name: r.num_computed_tokens for name, r in held.items()},
        "blocks": {name: engine.blocks(name) for name in held},
        **outputs(completion, aborted),
    }
    if engine.pauses:
        fields["paused"] = ids(scheduler.paused_decoding_requests)
    if engine.reserves_blocks:
        fields["reserved_blocks"] = scheduler.total_reserved_blocks
    if shows_free_blocks(engine):
        fields["free_blocks"] = engine.free_blocks()
    if shows_prefix_hits(engine):
        fields["prefix_hit"] = {name: hit_tokens(engine, name) for name in held}
    return fields


def step_kind(engine: SpyreEngine, decision: Any) -> str:
    if not decision.total_num_scheduled_tokens:
        return "idle"
    forward = engine.model.forward
    # 1.x does not run the model for a chunk that is completely cached
    return "prefill" if forward is None or forward.is_prefill else "decode"


def scheduled_tokens(engine: SpyreEngine, decision: Any, kind: str) -> dict[str, int]:
    """Return the number of real tokens that each request computes, in scheduling order. Up to 2.3,
    the scheduler's own count includes the left padding of the first chunk, so this function counts
    the tokens of the chunk that the runner prepared."""
    scheduled: dict[str, int] = dict(decision.num_scheduled_tokens)
    if kind != "prefill":
        return scheduled
    (request,) = scheduled
    forward = engine.model.forward
    if forward is None:
        return {request: 0}
    first = max(forward.chunk_start, hit_tokens(engine, request))
    return {request: max(0, forward.chunk_end - first)}


def hit_tokens(engine: SpyreEngine, request: str) -> int:
    """Return the tokens that were found in the prefix cache at admission, usable or not."""
    return int(engine.runner.requests[request].total_hit_blocks) * BLOCK_SIZE


def written_blocks(engine: SpyreEngine, decision: Any, kind: str) -> dict[str, list[int]]:
    if kind == "idle":
        return {}
    forward = engine.model.forward
    if forward is None:
        nothing = [0] * (engine.config["chunk_size"] // BLOCK_SIZE)
        return dict.fromkeys(decision.num_scheduled_tokens, nothing)
    return forward.slot_blocks


def main() -> None:
    fix_hash_seed()
    coverage.count_packages(*(f"{package}.v1.core" for package in PACKAGES))
    scheduler_class.load_early(load_release)
    serve(SpyreTarget())
