"""Target for vLLM's own V1 scheduler, on a CPU and without weights.

Runs as a script in an environment that holds a release and not schedproof:

    PYTHONPATH=vllm-0.28.0 python gate/targets/vllm_target.py

No file of this folder may be called vllm.py: the folder of a script comes first on its path.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from . import door
    from .jsonl import ProtocolError, Reply, serve
    from .vllm_engine import Engine
    from .vllm_observation import look_at, look_before, observe, observed_fields
    from .vllm_offline import fix_hash_seed
    from .vllm_release import load_release
else:
    import door
    from jsonl import ProtocolError, Reply, serve
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


class VllmTarget:
    """The five operations on whichever release is on the path."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._inside: list[str] = []  # aborts that wait for the inside of the next step
        self._aborted: list[str] = []  # aborts that the next step reports

    def start(self, system: str, revision: str, config: dict[str, Any]) -> Reply:
        """A fresh scheduler; `revision` only says what the target is compared with."""
        self.stop()
        try:
            door.check_system(system, "vllm")
            door.check_keys(config, KEYS)
            release = load_release()
            engine = Engine(release, config)
        except door.RefusedError as refusal:
            return {"ok": False, "error": "config", "message": str(refusal)}
        self._engine = engine
        return {
            "ok": True,
            "name": "vllm",
            "version": release.version,
            "observes": observed_fields(engine),
        }

    def add(self, request: dict[str, Any]) -> Reply:
        """Queue a request, unless vLLM refuses it at its front door."""
        engine = self._started()
        asked = door.read_request(request)
        try:
            engine.add(asked)
        except door.RefusedError as refusal:
            return {"ok": False, "error": "rejected", "message": str(refusal)}
        return {"ok": True}

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """Abort before the next decision, or inside the next step."""
        engine = self._started()
        if inside:
            self._inside.append(id)
        elif engine.abort(id):
            self._aborted.append(id)
        return {"ok": True}

    def step(self) -> Reply:
        """One decision of the scheduler, its tokens made up and taken back."""
        engine = self._started()
        before = look_before(engine)
        decision = engine.scheduler.schedule()
        decided = look_at(engine, before, decision)
        output = engine.execute(decision)
        # The engine core, too, looks at aborts that came in meanwhile once the model is through.
        self._aborted += [name for name in self._inside if engine.abort(name)]
        completion = engine.scheduler.update_from_output(decision, output)
        seen = observe(engine, decided, completion, self._aborted)
        self._inside, self._aborted = [], []
        return {"ok": True, "step": seen}

    def stop(self) -> Reply:
        """Forget the scheduler."""
        self._engine = None
        self._inside, self._aborted = [], []
        return {"ok": True}

    def _started(self) -> Engine:
        if self._engine is None:
            raise ProtocolError("nothing is started; send 'start' first")
        return self._engine


if __name__ == "__main__":
    fix_hash_seed()
    serve(VllmTarget())
