"""What a batch has brought about once it is through the pipeline.

Source: continuous-batching page, "What the scheduler hands back".
"""

from typing import NamedTuple

from ..members import find, without
from . import kv_cache
from .config import LlmServingSimConfig
from .revision import Revision
from .state import Sequence, State


class Done(NamedTuple):
    """What `add_done` hands back: the tokens of both throughputs, and the requests that have
    finished.

    `emitted` are the requests that got a token.
    """

    prompt_throughput: int = 0
    decode_throughput: int = 0
    finished: tuple[str, ...] = ()
    emitted: tuple[str, ...] = ()


def add_done(
    revision: Revision, config: LlmServingSimConfig, state: State, number: int
) -> tuple[State, Done]:
    """The batch of this number is through: requests that have caught up emit a token (LSS-R32),
    the finished leave. A number that is not on its way changes nothing (LSS-R22)."""
    batch = next((one for one in state.inflight if one.number == number), None)
    if batch is None:
        return state, Done()
    done = Done()
    for name, tokens in batch.scheduled:
        # A request that has finished, or was aborted, since the batch was built is in neither
        # queue.
        one = find(state.running + state.waiting, name)
        if one is None:
            continue
        if not revision.counts_early:
            one = one._replace(computed=one.computed + tokens)
        prompt = revision.prompt_tokens(one, tokens)
        done = done._replace(prompt_throughput=done.prompt_throughput + prompt)
        if one.num_uncomputed_tokens <= 0:
            one = one._replace(generated=one.generated + 1)
            done = done._replace(  # LSS-R24
                decode_throughput=done.decode_throughput + 1, emitted=(*done.emitted, name)
            )
        state = _with(state, one)
        if one.generated == one.output_len:
            state = leave(config, state, name)
            done = done._replace(finished=(*done.finished, name))
    left = tuple([one for one in state.inflight if one.number != number])
    return state._replace(inflight=left), done


def leave(config: LlmServingSimConfig, state: State, name: str) -> State:
    """The state without a request, whose blocks keep what they hold until they are used again."""
    one = find(state.running + state.waiting, name)
    if one is None:
        return state
    return state._replace(
        waiting=without(state.waiting, name),
        running=without(state.running, name),
        pool=kv_cache.free(config, state.pool, one, state.running),
    )


def _with(state: State, changed: Sequence) -> State:
    return state._replace(
        waiting=tuple([changed if one.id == changed.id else one for one in state.waiting]),
        running=tuple([changed if one.id == changed.id else one for one in state.running]),
    )
