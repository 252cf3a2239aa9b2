"""Target for nano-vLLM: its scheduler, block manager and model runner, without the model.

    SCHEDPROOF_NANO_VLLM=DIR python gate/targets/run_adapter.py nano_vllm

The checkout's own `prepare_prefill` and `prepare_decode` determine the tokens of a step and their
slots in the cache. Nothing is computed: tensors are lists, and empty modules replace the model, its
layers and its weights. This module makes no decision itself; everything it reports comes from the
scheduler.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Sequence
from itertools import count, pairwise
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from .. import coverage, protocol_checks
from ..jsonl import Reply, serve
from ..protocol_checks import EOS, Output
from ..release_adapter import Hosted, HostedTarget

EMPTY = (
    *("nanovllm.models", "nanovllm.models.qwen3", "nanovllm.layers", "nanovllm.layers.sampler"),
    *("nanovllm.utils.loader", "torch.distributed"),
)


class Work(NamedTuple):
    """The positions and cache slots of the tokens that a step computes for one sequence."""

    positions: list[int]
    slots: list[int]


class Tensor(list[Any]):
    """A list that stands for a tensor, and stays a list when it is moved to a device."""

    def cuda(self, **_: Any) -> "Tensor":
        return self


class Nothing(ModuleType):
    """A module whose attributes are all empty classes."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Runner:
    """The checkout's model runner, without a device."""

    def __init__(self, block_size: int) -> None:
        _stand_in_for_the_device()
        module = importlib.import_module("nanovllm.engine.model_runner")
        self._context = importlib.import_module("nanovllm.utils.context").get_context
        self._runner = module.ModelRunner.__new__(module.ModelRunner)
        self._runner.block_size = block_size

    def work(self, sequences: Sequence[Any], is_prefill: bool) -> list[Work]:
        prepare = self._runner.prepare_prefill if is_prefill else self._runner.prepare_decode
        _, positions = prepare(sequences)
        slots = self._context().slot_mapping
        # The kernel requires that all rows of a decode step have the same number of tokens.
        row = len(positions) // len(sequences)
        rows = range(0, row * len(sequences) + 1, max(row, 1))
        ends = self._context().cu_seqlens_q if is_prefill else rows
        if not len(positions) == len(slots) == ends[-1]:
            raise ValueError(
                f"a step has {len(positions)} tokens and {len(slots)} slots, not {ends[-1]} of each"
            )
        return [Work(positions[a:b], slots[a:b]) for a, b in pairwise(ends)]


def _stand_in_for_the_device() -> None:
    torch = Nothing("torch")
    names: dict[str, Any] = {
        "Tensor": Tensor,
        "tensor": lambda values, **_: Tensor(values),
        "inference_mode": lambda: lambda function: function,
    }
    torch.__dict__.update(names)
    sys.modules.setdefault("torch", torch)
    for name in EMPTY:
        sys.modules.setdefault(name, Nothing(name))


CHECKOUT = "SCHEDPROOF_NANO_VLLM"
OBSERVES = ["emitted", "waiting", "running", "prefilling", "preempted", "finished"]
OBSERVES += ["computed", "prefix_hit", "blocks", "free_blocks", "slot_blocks"]
KEYS = {
    "block_size": protocol_checks.POSITIVE,
    "num_blocks": protocol_checks.POSITIVE,
    "max_num_seqs": protocol_checks.POSITIVE,
    "max_num_batched_tokens": protocol_checks.POSITIVE,
}


class NanoTarget(HostedTarget):
    """Serve the protocol's operations with the checkout's scheduler, which has no aborts."""

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        protocol_checks.check_system(system, "nano_vllm")
        protocol_checks.check_keys(config, KEYS)
        if config["block_size"] < 2:
            raise protocol_checks.refuse("block_size", config["block_size"], "at least 2")
        engine = Engine(config)
        return Hosted(engine, "nano-vllm", engine.version, OBSERVES)

    def admit(self, engine: "Engine", request: protocol_checks.CheckedRequest) -> None:
        if request.output.id in engine.live:
            raise protocol_checks.RefusedError(
                f"an unfinished request has the id {request.output.id!r}"
            )
        if not request.prompt:
            raise protocol_checks.RefusedError(f"request {request.output.id!r} has no prompt")
        engine.add(request)

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        self._started()
        return {"ok": False, "error": "unsupported", "message": "nano-vLLM has no abort"}

    def advance(self, engine: "Engine") -> dict[str, Any]:
        return engine.step()


class Engine:
    """A scheduler with its requests. The scheduler assigns the sequence numbers."""

    def __init__(self, config: dict[str, Any]) -> None:
        engine = import_engine(os.environ.get(CHECKOUT, ""))
        self._params = importlib.import_module("nanovllm.sampling_params").SamplingParams
        self._sequence = engine["sequence"].Sequence
        self._sequence.block_size = config["block_size"]
        self._sequence.counter = count()
        self.scheduler = engine["scheduler"].Scheduler(
            SimpleNamespace(
                max_num_seqs=config["max_num_seqs"],
                max_num_batched_tokens=config["max_num_batched_tokens"],
                eos=EOS,
                kvcache_block_size=config["block_size"],
                num_kvcache_blocks=config["num_blocks"],
            )
        )
        self._block_size = config["block_size"]
        self._runner = Runner(self._block_size)
        # whether a prompt may be computed in chunks
        self._chunked = "is_prefill" in inspect.signature(self.scheduler.postprocess).parameters
        self._outputs: dict[int, Output] = {}
        # For each sequence: the tokens found in the cache, and the tokens computed so far.
        self._hits: dict[int, int] = {}
        self._computed: dict[int, int] = {}

    @property
    def version(self) -> str:
        """The version of the checkout.

        Three states of the code call themselves 0.2.0: the state that nano-vLLM's document
        describes, the newest state, and a state in between, which cuts prompts into chunks but
        publishes no blocks. The returned version tells them apart.
        """
        named = version()
        if hasattr(self.scheduler.block_manager, "hash_blocks"):
            return named
        return f"chunked, before {named}" if self._chunked else f"before {named}"

    def add(self, request: protocol_checks.CheckedRequest) -> None:
        sequence = self._sequence(request.prompt, self._params(max_tokens=request.max_tokens))
        self._outputs[sequence.seq_id] = request.output
        self.scheduler.add(sequence)

    def step(self) -> dict[str, Any]:
        if self.scheduler.is_finished():
            return {"kind": "idle", "scheduled": {}, "slot_blocks": {}, **self._after([], [])}
        ran = list(self.scheduler.running)
        held = {sequence.seq_id for sequence in self.scheduler.waiting if sequence.block_table}
        scheduled, is_prefill = self.scheduler.schedule()
        waits = {sequence.seq_id for sequence in self.scheduler.waiting}
        preempted = [sequence for sequence in ran if sequence.seq_id in waits]
        work = dict(zip(scheduled, self._runner.work(scheduled, is_prefill), strict=True))
        for sequence in scheduled if is_prefill else ():
            if sequence.seq_id not in held:
                self._hits[sequence.seq_id] = sequence.num_cached_tokens
        generated = {sequence.seq_id: sequence.num_completion_tokens for sequence in scheduled}
        sampled = [
            self._outputs[sequence.seq_id].token(generated[sequence.seq_id])
            for sequence in scheduled
        ]
        rest = (is_prefill,) if self._chunked else ()
        self.scheduler.postprocess(scheduled, sampled, *rest)
        emitted = [
            sequence
            for sequence in scheduled
            if sequence.num_completion_tokens > generated[sequence.seq_id]
        ]
        for sequence, (positions, _) in work.items():
            start = sequence.num_cached_tokens
            self._computed[sequence.seq_id] = positions[-1] + 1 if positions else start
        return {
            "kind": "prefill" if is_prefill else "decode",
            "scheduled": {self.name(sequence): len(work[sequence].positions) for sequence in work},
            "slot_blocks": {self.name(sequence): self._blocks(work[sequence]) for sequence in work},
            **self._after(emitted, preempted),
        }

    @property
    def live(self) -> set[str]:
        return {
            self.name(sequence) for sequence in (*self.scheduler.waiting, *self.scheduler.running)
        }

    def name(self, sequence: Any) -> str:
        return self._outputs[sequence.seq_id].id

    def _blocks(self, work: Work) -> list[int]:
        """Return the blocks that a step writes, in order. The first block of the pool has number
        1. Report 0 for a token that is written at the wrong offset of its block."""
        size, places = self._block_size, zip(work.positions, work.slots, strict=True)
        return list(
            dict.fromkeys((slot // size + 1) * (slot % size == at % size) for at, slot in places)
        )

    def _after(self, emitted: list[Any], preempted: list[Any]) -> dict[str, Any]:
        waiting, running = list(self.scheduler.waiting), list(self.scheduler.running)
        holders = [sequence for sequence in running + waiting if sequence.block_table]
        done = [sequence for sequence in emitted if sequence.is_finished]
        reasons = {
            self.name(sequence): "eos" if sequence.token_ids[-1] == EOS else "length"
            for sequence in done
        }
        return {
            "emitted": {self.name(sequence): 1 for sequence in emitted},
            "waiting": [self.name(sequence) for sequence in waiting],
            "running": [self.name(sequence) for sequence in running],
            "prefilling": [self.name(sequence) for sequence in waiting if sequence.block_table],
            "preempted": [self.name(sequence) for sequence in preempted],
            "finished": reasons,
            "computed": {
                self.name(sequence): self._computed[sequence.seq_id] for sequence in holders
            },
            "prefix_hit": {
                self.name(sequence): self._hits.get(sequence.seq_id, 0) for sequence in holders
            },
            "blocks": {
                self.name(sequence): [block + 1 for block in sequence.block_table]
                for sequence in holders
            },
            "free_blocks": len(self.scheduler.block_manager.free_block_ids),
        }


def import_engine(checkout: str) -> dict[str, ModuleType]:
    """Import the scheduler's modules, inside an otherwise empty package."""
    package = ModuleType("nanovllm")
    package.__path__ = [os.path.join(checkout, "nanovllm")]
    config = ModuleType("nanovllm.config")
    config.Config = SimpleNamespace  # type: ignore[attr-defined]
    sys.modules.setdefault("nanovllm", package)
    sys.modules.setdefault("nanovllm.config", config)
    stand_in_for_hashing()
    parts = ("sequence", "block_manager", "scheduler")
    return {part: importlib.import_module(f"nanovllm.engine.{part}") for part in parts}


def stand_in_for_hashing() -> None:
    """Replace xxhash and NumPy if they are missing, because the scheduler needs them only to hash
    tokens, and any hash will do."""
    if _is_missing("xxhash"):
        xxhash = ModuleType("xxhash")
        xxhash.xxh64 = _Hash  # type: ignore[attr-defined]
        sys.modules["xxhash"] = xxhash
    if _is_missing("numpy"):
        numpy = ModuleType("numpy")
        numpy.array = _Tokens  # type: ignore[attr-defined]
        sys.modules["numpy"] = numpy


def _is_missing(module: str) -> bool:
    return module not in sys.modules and importlib.util.find_spec(module) is None


class _Hash:
    """A 64-bit hash with the interface of xxh64."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=8)

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def intdigest(self) -> int:
        return int.from_bytes(self._hash.digest(), "little")


class _Tokens(list[int]):
    def tobytes(self) -> bytes:
        return b"".join(token.to_bytes(8, "little") for token in self)


def version() -> str:
    import tomllib

    with open(os.path.join(os.environ[CHECKOUT], "pyproject.toml"), "rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def main() -> None:
    coverage.count_packages("nanovllm.engine")
    serve(NanoTarget())
