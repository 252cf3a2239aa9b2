"""nano-vLLM's models for `solver.exploration`, one for each pool size, and their scopes.

Sizes are the smallest at which every constraint can take effect: blocks of two tokens, a budget of
a few tokens, and pools that two sequences fill.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...model.nano_vllm import scheduler
from ...model.nano_vllm.state import Sequence, State
from ...model.pool import free_blocks
from ..exploration.branching_history import BranchingHistory
from ..exploration.canonical_names import CanonicalNames
from ..exploration.models import QueueModels
from ..exploration.scope import MenuItem, Ranked, lengths
from ..exploration.scope import Scope as AnyScope
from ..exploration.undecided import OWN, OpenFields, outlasts_token, tokens_left
from ..systems import SystemSpace

SMALLEST = {"block_size": 2, "max_num_seqs": 3, "max_num_batched_tokens": 8}
EVERY_LENGTH = tuple(lengths(range(1, 6), range(1, 5)))
SOME_LENGTHS = tuple(lengths((1, 3, 4), (1, 2, 4)))
FEW_LENGTHS = tuple(lengths((1, 4), (1, 4)))
IN_CHUNKS = ("0.2.0",)
# Prompts that share a beginning with the first one, up to a block boundary or not, that continue it
# or its output, or that consist of different tokens.
SHARED: tuple[MenuItem, ...] = tuple(
    (prompt, tokens)
    for prompt in (
        (("shared", 4),),
        (("shared", 5),),
        (("shared", 4), (OWN, 2)),
        (("shared", 4), ("out:r0", 2)),
        ((OWN, 5),),
    )
    for tokens in (1, 3)
)


@dataclass(frozen=True)
class Scope(AnyScope):
    """A scope of nano-vLLM; its limits are values of num_blocks."""

    system: ClassVar[str] = "nano_vllm"
    smallest: ClassVar[Mapping[str, Any]] = SMALLEST
    menu: tuple[MenuItem | Ranked, ...] = EVERY_LENGTH
    limits: tuple[int, ...] = (3, 4, 5)


SCOPES = (
    Scope("lengths", "prompts up to 5, outputs up to 4 tokens", 3),
    Scope("four", "four sequences for three slots", 4, FEW_LENGTHS, (4, 5)),
    Scope("slots", "two slots", 3, SOME_LENGTHS, config=(("max_num_seqs", 2),)),
    Scope("aborts", "clients that give up", 3, FEW_LENGTHS, aborts="alone"),
    Scope(
        "chunks",
        "a budget of three tokens, so that prompts are computed in parts",
        3,
        SOME_LENGTHS,
        config=(("max_num_batched_tokens", 3),),
        revisions=IN_CHUNKS,
    ),
    Scope("cache", "prompts that begin alike", 3, SHARED[1::2], (4, 5)),
    Scope(
        "cache in chunks",
        "prompts that begin alike, in chunks of three tokens, with clients that give up",
        2,
        SHARED,
        (4, 5),
        "alone",
        (("max_num_batched_tokens", 3),),
        IN_CHUNKS,
    ),
)


class OpenSequence(OpenFields, Sequence, frozen=True):
    """A request that is not fully decided."""

    kept_output_len = Sequence.output_len
    kept_content = Sequence.content


class NanoModels(QueueModels):
    """The models of one revision in one configuration: one model for each pool size, smallest
    first."""

    system = "nano_vllm"
    sequence, open_sequence = Sequence, OpenSequence

    def queued(self, state: State, sequence: Sequence) -> State:
        return scheduler.arrive(state, sequence)

    def quiet(self, state: State) -> bool:
        config = self.configs[0]
        block = config["block_size"]
        if state.waiting or len(state.running) > config["max_num_seqs"]:
            return False
        return all(
            sequence.computed % block
            and (sequence.computed + 1) % block
            and outlasts_token(sequence)
            for sequence in state.running
        )

    def key(self, state: State, history: BranchingHistory) -> Hashable:
        return state_key(state, history, self.mentioned)


def state_key(state: State, history: BranchingHistory, mentioned: frozenset[str]) -> Hashable:
    queues = (state.waiting, state.running)
    places = {name: place for place, name in enumerate(history.live)}
    # Whether a request has arrived since the last step. Rules about newcomers depend on it.
    queued = (history.last.waiting or ()) if history.last is not None else ()
    newcomers = tuple(request.id not in queued for request in state.waiting)
    names = CanonicalNames(mentioned, queues, history)
    computed = names.computed(history, newest=True)
    return (
        tuple(
            tuple(_member(request, names, history, places) for request in queue) for queue in queues
        ),
        free_blocks(state.pool),
        names.pool(state.pool),
        computed,
        len(state.aborted),
        newcomers,
    )


def _member(
    request: Sequence, names: CanonicalNames, history: BranchingHistory, places: dict[str, int]
) -> tuple[Any, ...]:
    account = history.live.get(request.id)
    content: Hashable = None
    if isinstance(request, OpenFields):
        content = request.candidates.bits
    client: tuple[Any, ...] = ()
    if account is not None:
        client = (
            account.computed - request.computed,
            account.emitted - request.generated,
            account.prefix_hit - request.prefix_hit,
            account.preemptions > 0,
            account.regenerated,
        )
    return (
        names.request(request.id),
        names.content(request.content) if content is None else content,
        tuple(names.block(block) for block in request.blocks),
        request.computed,
        request.generated,
        request.prefix_hit,
        request.published,
        tokens_left(request),
        places.get(request.id),
        client,
    )


SPACE = SystemSpace(SCOPES, "num_blocks", "pool", NanoModels)
