"""Observe the checkout's own model runner: which tokens it hands to the device in a step, and in
which slots.

`prepare_prefill` and `prepare_decode` are the checkout's code. No kernel ever runs: tensors are
lists, and the model, its layers and its weights are empty modules.
"""

import importlib
import sys
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

EMPTY = (
    *("nanovllm.models", "nanovllm.models.qwen3", "nanovllm.layers", "nanovllm.layers.sampler"),
    *("nanovllm.utils.loader", "torch.distributed"),
)


class Work(NamedTuple):
    """The positions and slots of the tokens that a step computes for one sequence."""

    positions: list[int]
    slots: list[int]


class Tensor(list[Any]):
    """A tensor that stays a list, whatever device it is moved to."""

    def cuda(self, **_: Any) -> "Tensor":
        return self


class Nothing(ModuleType):
    """A module in which every name is an empty class."""

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
        # In a decode step all rows have equally many tokens, because the kernel supports no other
        # batch.
        row = len(positions) // len(sequences)
        rows = range(0, row * len(sequences) + 1, max(row, 1))
        ends = self._context().cu_seqlens_q if is_prefill else rows
        if not len(positions) == len(slots) == ends[-1]:
            raise ValueError(f"{len(positions)} tokens and {len(slots)} slots, expected {ends[-1]}")
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
