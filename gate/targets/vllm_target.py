"""Target for vLLM's own V1 scheduler, on a CPU and without weights.

Runs as a script in an environment that holds a release and not schedproof:

    PYTHONPATH=vllm-0.28.0 python gate/targets/vllm_target.py

No file of this folder may be called vllm.py: the folder of a script comes first on its path.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from . import door
    from .hosted import Hosted, HostedTarget
    from .jsonl import serve
    from .vllm_engine import Engine
    from .vllm_observation import look_at, look_before, observe, observed_fields
    from .vllm_offline import fix_hash_seed
    from .vllm_release import load_release
else:
    import door
    from hosted import Hosted, HostedTarget
    from jsonl import serve
    from vllm_engine import Engine
    from vllm_observation import look_at, look_before, observe, observed_fields
    from vllm_offline import fix_hash_seed
    from vllm_release import load_release

KEYS = {
    "block_size": door.POSITIVE,
    "num_blocks": door.or_null(door.POSITIVE),
    "max_num_seqs": door.POSITIVE,
    "max_num_batched_tokens": door.POSITIVE,
    "max_model_len": door.POSITIVE,
    "long_prefill_token_threshold": door.COUNT,
    "enable_chunked_prefill": door.FLAG,
    "enable_prefix_caching": door.FLAG,
    "policy": door.one_of("fcfs", "priority"),
    "watermark": door.SHARE,
    "reserve_full_isl": door.FLAG,
}


class VllmTarget(HostedTarget):
    """The five operations on whichever release is on the path."""

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        """A scheduler of its own; raises RefusedError."""
        door.check_system(system, "vllm")
        door.check_keys(config, KEYS)
        release = load_release()
        engine = Engine(release, config)
        return Hosted(engine, "vllm", release.version, observed_fields(engine))

    def admit(self, engine: Engine, asked: door.Asked) -> None:
        """Queue a request, unless vLLM refuses it at its front door."""
        engine.add(asked)

    def advance(self, engine: Engine) -> dict[str, Any]:
        """One decision of the scheduler, its tokens made up and taken back."""
        before = look_before(engine)
        decision = engine.scheduler.schedule()
        decided = look_at(engine, before, decision)
        output = engine.execute(decision)
        aborted = self.abort_inside(engine)
        completion = engine.scheduler.update_from_output(decision, output)
        return observe(engine, decided, completion, aborted)


if __name__ == "__main__":
    fix_hash_seed()
    serve(VllmTarget())
