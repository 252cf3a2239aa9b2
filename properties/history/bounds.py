"""How long requests may take at most, in steps, by system: what completion and waiting go by.

Source: target protocol, "Bounds".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...spec.systems import part
from ..vllm.history import encoder, in_flight, loads
from . import admissibility as door
from .admissibility import CanRun, Limits
from .request_history import RequestHistory

Config = Mapping[str, Any]


class Bounds(NamedTuple):
    """A system's bounds, in steps.

    `alone`: one request that has the scheduler to itself, from where it is. `waits`: until the
    first in line is scheduled, behind requests that have started; None where nothing bounds it.
    `together`: all requests, each of which alone takes `work` in sum. `can_run`: a request of this
    prompt and max_tokens must not be refused at the door. `limits`: the bounds
    on prompt + max_tokens - 1.
    """

    alone: Callable[[Config, RequestHistory], int]
    waits: Callable[[Config, RequestHistory, Sequence[RequestHistory]], int | None]
    together: Callable[[Config, int, int], int]
    can_run: CanRun = door.nothing_surely
    limits: Limits = door.no_limits

    def beyond(self, config: Config, prompt: int, max_tokens: int) -> bool:
        """The request can never run to its end: it exceeds a limit by itself."""
        return any(prompt + max_tokens - 1 > limit for limit in self.limits(config))


def spyre_alone(config: Config, one: RequestHistory) -> int:
    """Its chunks, twice for interleaving, and its tokens."""
    chunks = -(-(one.prompt - min(one.computed, one.prompt)) // int(config["chunk_size"]))
    return 2 * chunks + one.max_tokens - one.emitted


def spyre_waits(config: Config, first: RequestHistory, started: Sequence[RequestHistory]) -> int:
    """Until every request that has started has ended, and its own first chunk."""
    ahead = sum(spyre_alone(config, one) for one in started)
    own = 2 * -(-first.prompt // int(config["chunk_size"]))
    # Faults that cost a step each have rules of their own: leave them room here.
    return ahead + own + len(started) + 2


def one_after_the_other(config: Config, work: int, requests: int) -> int:
    """The request that has come first is served in every step."""
    return work + 2 * requests + 2


def vllm_alone(config: Config, one: RequestHistory) -> int:
    """All its tokens in chunks, and one by one those that it generates, each of which passes every
    decision on its way: a request that is preempted begins anew, so what it has computed does not
    count."""
    chunk = min(
        config["max_num_batched_tokens"],
        config["long_prefill_token_threshold"] or config["max_num_batched_tokens"],
    )
    # A chunk ends before an input that has no room in a step, and begins anew.
    chunks = -(-(one.prompt + one.max_tokens) // chunk) + 2 * len(one.inputs)
    steps = int(chunks + one.max_tokens)
    return steps * in_flight.depth(config) + one.deferrals


def vllm_waits(
    config: Config, first: RequestHistory, started: Sequence[RequestHistory]
) -> int | None:
    """First come, first served: until all requests that came before have ended. By priority,
    others may overtake for ever; with more than two steps in flight those that were preempted
    before may; with a connector all others, while it is loaded; and while an encoder has no room
    for it, those that need none."""
    depth = in_flight.depth(config)
    overtaken = loads.are_made(config) or encoder.encodes(config)
    if config["policy"] == "priority" or depth > 2 or overtaken:
        return None
    return sum(vllm_alone(config, one) for one in started) + (len(started) + 2) * depth


def vllm_together(config: Config, work: int, requests: int) -> int:
    """First come, first served: the eldest is never preempted. By priority the most important one
    is not, but it may wait behind every request that runs, anew for each request."""
    turns = requests + 1 if config["policy"] == "priority" else 1
    return turns * (work + (2 * requests + 2) * in_flight.depth(config))


def nano_alone(config: Config, one: RequestHistory) -> int:
    """Its prefill, chunk by chunk, and its tokens one by one."""
    chunks = -(-(one.prompt + one.max_tokens) // config["max_num_batched_tokens"])
    return int(chunks + one.max_tokens)


def nano_waits(config: Config, first: RequestHistory, started: Sequence[RequestHistory]) -> int:
    """Until all requests that came before have ended."""
    return nano_together(config, sum(nano_alone(config, one) for one in started), len(started))


def nano_together(config: Config, work: int, requests: int) -> int:
    """The eldest gets a token in each decode step. Between two of these the others may have to be
    prefilled again, as many as fit into the pool: two steps in a row exceed the budget together,
    or the slots of one."""
    pool = config["block_size"] * config["num_blocks"]
    full_steps = 2 * -(-pool // config["max_num_batched_tokens"])
    between = full_steps + -(-requests // config["max_num_seqs"]) + 1
    return int((work + 1) * (between + 1))


def llmservingsim_waits(
    config: Config, first: RequestHistory, started: Sequence[RequestHistory]
) -> int | None:
    """First come, first served: until all requests that came before have ended. With chunking off
    a request that came later may take the blocks that it needs, while the budget left would cut
    it."""
    if not config["enable_chunked_prefill"] and config["num_blocks"] is not None:
        return None
    return sum(vllm_alone(config, one) for one in started) + len(started) + 2


def generic_alone(config: Config, one: RequestHistory) -> int:
    """One token a step at worst: how a scheduler cuts a prompt is left to it."""
    return one.prompt + one.max_tokens


def generic_waits(
    config: Config, first: RequestHistory, started: Sequence[RequestHistory]
) -> int | None:
    """First come, first served: until all requests that came before have ended, each of which may
    begin anew once for each of the others, and have every other step only."""
    if config["order"] != "fcfs":
        return None
    ahead = sum(generic_alone(config, one) for one in started)
    return 2 * (len(started) + 1) * ahead + 2 * len(started) + 2


def generic_together(config: Config, work: int, requests: int) -> int:
    """Steps that all requests together may take, at most."""
    return 2 * (requests + 1) * (work + 2 * requests + 2)


SPYRE = Bounds(spyre_alone, spyre_waits, one_after_the_other, door.spyre_can_run, door.spyre_limits)
VLLM = Bounds(vllm_alone, vllm_waits, vllm_together, door.vllm_can_run, door.vllm_limits)
NANO_VLLM = Bounds(nano_alone, nano_waits, nano_together, door.nano_can_run, door.nano_limits)
LLMSERVINGSIM = Bounds(
    vllm_alone,
    llmservingsim_waits,
    one_after_the_other,
    door.llmservingsim_can_run,
    door.llmservingsim_limits,
)
GENERIC = Bounds(
    generic_alone,
    generic_waits,
    generic_together,
    door.generic_can_run,
    door.generic_limits,
)


def bounds_of(system: str) -> Bounds:
    """The bounds of a registered system."""
    found: Bounds = part(system, "bounds")
    return found
