"""Target for vLLM's own V1 scheduler, on a CPU and without weights.

Runs in an environment that holds a release and not schedproof:

    PYTHONPATH=vllm-0.28.0 python gate/targets/run_adapter.py vllm
"""

from typing import Any

from .. import coverage, protocol_checks, scheduler_class
from ..jsonl import serve
from ..release_adapter import Hosted, HostedTarget
from . import control, grammars, groups
from .drafts import KEYS as DRAFT_KEYS
from .encoder import KEYS as ENCODER_KEYS
from .engine import VllmEngine
from .in_flight import KEYS as IN_FLIGHT_KEYS
from .observation import look_at, look_before, observe, observed_fields
from .offline import fix_hash_seed
from .release import defaults, load_release

KEYS = {
    "block_size": protocol_checks.POSITIVE,
    "num_blocks": protocol_checks.or_null(protocol_checks.POSITIVE),
    "max_num_seqs": protocol_checks.POSITIVE,
    "max_num_batched_tokens": protocol_checks.POSITIVE,
    "max_model_len": protocol_checks.POSITIVE,
    "long_prefill_token_threshold": protocol_checks.COUNT,
    "enable_chunked_prefill": protocol_checks.FLAG,
    "enable_prefix_caching": protocol_checks.FLAG,
    "policy": protocol_checks.one_of("fcfs", "priority"),
    "watermark": protocol_checks.SHARE,
    "reserve_full_isl": protocol_checks.FLAG,
    "num_speculative_tokens": protocol_checks.COUNT,
    "num_lookahead_tokens": protocol_checks.COUNT,
    "async_scheduling": protocol_checks.FLAG,
    "pipeline_parallel_size": protocol_checks.POSITIVE,
    "early_completions": protocol_checks.COUNT,
    "kv_connector": protocol_checks.FLAG,
    "kv_load_failure_policy": protocol_checks.one_of("recompute", "fail"),
    "max_num_encoder_input_tokens": protocol_checks.COUNT,
    "encoder_cache_size": protocol_checks.COUNT,
    "prefix_cache_retention_interval": protocol_checks.or_null(protocol_checks.COUNT),
    "kv_groups": protocol_checks.Kind(groups.is_list, "a list of groups"),
    "cache_partitions": protocol_checks.FLAG,
    grammars.KEY: protocol_checks.FLAG,
    "reused_ids": protocol_checks.FLAG,
}


LOAD_KEYS = ("kv_connector", "kv_load_failure_policy")
MAY_MISS = (
    *DRAFT_KEYS,
    *IN_FLIGHT_KEYS,
    *LOAD_KEYS,
    *ENCODER_KEYS,
    *groups.KEYS,
    "cache_partitions",
    "reused_ids",
    grammars.KEY,
)


class VllmTarget(HostedTarget):
    """The protocol's operations on the vLLM release that is on the path."""

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        protocol_checks.check_system(system, "vllm")
        protocol_checks.check_keys(config, KEYS, may_miss=MAY_MISS)
        release = load_release()
        engine = VllmEngine(release, config)
        title = scheduler_class.title("vllm", release.version)
        observes = observed_fields(engine)
        described = (*title, observes, defaults(release), engine.start_up)
        return Hosted(engine, *described, control.accepted_events(engine))

    def admit(self, engine: VllmEngine, request: protocol_checks.CheckedRequest) -> None:
        engine.add(request)

    def advance(self, engine: VllmEngine) -> dict[str, Any]:
        engine.grammars.step()
        before = look_before(engine)
        decision = engine.scheduler.schedule()
        decided = look_at(engine, before, decision)
        engine.blocks()  # note blocks now, before the step ends requests
        done = engine.flights.set_off(engine.execute(decision))
        aborted = self.abort_inside(engine)
        if done is None:
            return observe(engine, decided, {}, aborted, {})
        engine.loads_step(done.output)
        completion = engine.scheduler.update_from_output(done.decision, done.output)
        engine.drafts.propose(engine.scheduler, done.output)
        return observe(engine, decided, completion, aborted, done.first)


def main() -> None:
    fix_hash_seed()
    coverage.count_packages("vllm.v1.core")
    scheduler_class.load_early(load_release)
    serve(VllmTarget())
