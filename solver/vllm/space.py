"""vLLM's models for `solver.exploration`, one for each pool size, and their scopes.

Sizes are the smallest at which every constraint can take effect: blocks of two tokens, a budget of
two blocks, and pools that two requests fill.

The free blocks are part of a state, so pools of different sizes never share a state. One
exploration covers all pools, but steps each of them separately.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...model.vllm import scheduler
from ...model.vllm import state as model_state
from ...model.vllm.state import State
from ..exploration.branching_history import BranchingHistory
from ..exploration.models import QueueModels
from ..exploration.scope import AnyItem, Loaded, MenuItem, Ranked, lengths
from ..exploration.scope import Scope as AnyScope
from ..exploration.undecided import OWN, Candidates, OpenFields, outlasts_token
from ..systems import SystemSpace
from .key import Key

SMALLEST_BLOCK = 2
SMALLEST = {
    "block_size": SMALLEST_BLOCK,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 4,
    "max_model_len": 13,
    "enable_prefix_caching": False,
}
EVERY_LENGTH = tuple(lengths(range(1, 8), range(1, 7)))
SOME_LENGTHS = tuple(lengths((1, 3, 4, 6), (1, 3, 5)))
FEW_LENGTHS = tuple(lengths((1, 4), (1, 4)))


def with_priorities(items: tuple[MenuItem, ...], priorities: tuple[int, ...]) -> tuple[Ranked, ...]:
    return tuple((prompt, tokens, own) for own in priorities for prompt, tokens in items)


def with_loads(
    items: tuple[MenuItem, ...],
    loads: tuple[tuple[int, int], ...],
    priorities: tuple[int, ...] = (0,),
) -> tuple[Loaded, ...]:
    """Return every item with every priority and every load. A load consists of the number of the
    prompt's blocks that a connector has (at most all of them), and the number of steps that loading
    them takes."""
    return tuple(
        (prompt, tokens, own, min(blocks * SMALLEST_BLOCK, sum(part for _, part in prompt)), steps)
        for own in priorities
        for blocks, steps in loads
        for prompt, tokens in items
    )


# Prompts that share a beginning with the first one, up to a block boundary or not, that continue it
# or its output, or that consist of different tokens.
SHARED = tuple(
    (prompt, tokens)
    for prompt in (
        (("shared", 2),),
        (("shared", 4),),
        (("shared", 5),),
        (("shared", 4), (OWN, 2)),
        (("shared", 4), ("out:r0", 2)),
        ((OWN, 5),),
    )
    for tokens in (1, 4)
)


@dataclass(frozen=True)
class Scope(AnyScope):
    """A scope of vLLM; its limits are values of num_blocks."""

    system: ClassVar[str] = "vllm"
    smallest: ClassVar[Mapping[str, Any]] = SMALLEST
    menu: tuple[AnyItem, ...] = EVERY_LENGTH
    limits: tuple[int, ...] = (3, 4, 5, 6)


CACHES = ("enable_prefix_caching", True)
BY_PRIORITY = ("policy", "priority")
FIRST_CHUNK = ("reserve_full_isl", False)
AHEAD = ("async_scheduling", True)
STAGES = ("pipeline_parallel_size", 3)
FAST = ("early_completions", 1)
LOADS = ("kv_connector", True)
# How many blocks of a prompt a connector has (none, one, or all), and how many steps a load takes.
EITHER = ((0, 0), (1, 0), (9, 2))
# Each prompt except the last once, alternating between the largest and the smallest max_tokens.
ALTERNATING = (*SHARED[1:10:4], *SHARED[2:10:4])

SCOPES = (
    Scope("lengths", "prompts up to 7, outputs up to 6 tokens", 3),
    Scope("four", "four requests for three slots", 4, SOME_LENGTHS),
    Scope("slots", "two slots", 3, SOME_LENGTHS, config=(("max_num_seqs", 2),)),
    Scope("aborts", "clients that give up", 3, SOME_LENGTHS, aborts="alone"),
    Scope(
        "budget",
        "a budget of three blocks",
        3,
        SOME_LENGTHS,
        config=(("max_num_batched_tokens", 6),),
    ),
    Scope(
        "threshold",
        "chunks of three tokens, of which only the first must fit",
        3,
        SOME_LENGTHS,
        config=(FIRST_CHUNK, ("long_prefill_token_threshold", 3), ("max_num_batched_tokens", 6)),
    ),
    Scope(
        "whole prompts",
        "chunking off",
        3,
        SOME_LENGTHS,
        config=(("enable_chunked_prefill", False), ("max_num_batched_tokens", 7)),
    ),
    Scope(
        "watermark", "a block kept free", 3, SOME_LENGTHS, (4, 5, 6), config=(("watermark", 0.3),)
    ),
    Scope(
        "priority",
        "two priorities",
        3,
        with_priorities(SOME_LENGTHS, (0, 1)),
        (3, 4, 5),
        config=(BY_PRIORITY,),
    ),
    Scope(
        "important aborts",
        "two priorities, clients that give up, only the first chunk must fit",
        3,
        with_priorities(SOME_LENGTHS[1::3], (0, 1)),
        (4, 5),
        "alone",
        (BY_PRIORITY, FIRST_CHUNK),
    ),
    Scope("cache", "prompts that begin alike", 3, ALTERNATING, (4, 5), config=(CACHES,)),
    Scope(
        "cache aborts",
        "prompts that begin alike, with clients that give up",
        2,
        SHARED,
        (3, 4, 5),
        "alone",
        (CACHES,),
    ),
    Scope(
        "important cache",
        "prompts that begin alike, with two priorities",
        3,
        with_priorities(ALTERNATING[::2], (0, 1)),
        (4,),
        config=(BY_PRIORITY, CACHES),
    ),
    Scope("ahead", "two steps in flight", 3, SOME_LENGTHS, (3, 4, 5), config=(AHEAD,)),
    Scope(
        "ahead aborts",
        "two steps in flight, with clients that give up",
        2,
        SOME_LENGTHS,
        (3, 4),
        "alone",
        (AHEAD,),
    ),
    Scope(
        "stages", "a pipeline of three stages", 3, SOME_LENGTHS[::2], (3, 4, 5), config=(STAGES,)
    ),
    Scope(
        "fast stages",
        "a pipeline of three stages with a fast worker",
        3,
        SOME_LENGTHS[::2],
        (3, 4),
        config=(STAGES, FAST),
    ),
    Scope("loads", "a connector", 3, with_loads(FEW_LENGTHS, EITHER), (3, 4, 5), config=(LOADS,)),
    Scope(
        "loads ahead",
        "a connector and two steps in flight",
        3,
        with_loads(FEW_LENGTHS, EITHER[::2]),
        (3, 4, 5),
        config=(LOADS, AHEAD),
    ),
)


class OpenSequence(OpenFields, model_state.Sequence, frozen=True):
    """A request that is not fully decided. Its priority and its load are always decided."""

    kept_output_len = model_state.Sequence.output_len
    kept_content = model_state.Sequence.content


class VllmModels(QueueModels):
    """The models of one revision in one configuration: one model for each pool size, smallest
    first."""

    system = "vllm"
    queues = ("waiting", "running", "parked")
    sequence, open_sequence = model_state.Sequence, OpenSequence

    def __init__(
        self,
        revision: str,
        config: Mapping[str, Any],
        limits: Sequence[int],
        formula: str | None = None,
    ) -> None:
        super().__init__(revision, config, limits, formula)
        assert not any(model.config.drafts for model in self.models), "the key has no drafts"
        first = self.models[0].config
        self.idle_is_waste = first.depth == 1 and not first.loads
        self.waits_are_bounded = self.idle_is_waste and first.policy == "fcfs"

    def opened(self, request: str, candidates: Candidates) -> Any:
        """Return a new sequence. All candidates must have the same priority and the same load."""
        assert candidates.priority is not None, request
        assert candidates.external_tokens is not None, request
        assert candidates.load_steps is not None, request
        content: Any = candidates
        return self.decided(
            OpenSequence(
                *(request, 0, 0, 0),
                priority=candidates.priority,
                content=content,
                external=candidates.external_tokens,
                load_steps=candidates.load_steps,
            )
        )

    def queued(self, state: State, sequence: model_state.Sequence) -> State:
        """Return the state in which the sequence waits, at the place that its priority
        determines."""
        return scheduler.arrive(self.models[0].config, state, sequence)

    def quiet(self, state: State) -> bool:
        if state.waiting or not self.idle_is_waste:
            return False
        config = self.configs[0]
        block, caches = config["block_size"], config["enable_prefix_caching"]
        return all(
            sequence.decodes
            and sequence.computed % block
            and not (caches and (sequence.computed + 1) % block == 0)
            and outlasts_token(sequence)
            for sequence in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        caches = self.configs[0]["enable_prefix_caching"]
        return Key(caches, self.mentioned, in_flight=not self.idle_is_waste)(state, history)


SPACE = SystemSpace(SCOPES, "num_blocks", "pool", VllmModels)
