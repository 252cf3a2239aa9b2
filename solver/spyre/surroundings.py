"""Arbitrary configurations and states around the requests that a lemma is about."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import z3

from ...model.spyre import release_2_1_2, release_2_5_2
from ...model.spyre.config import SpyreConfig
from ...model.spyre.revision import Revision
from ...model.spyre.state import Sequence, State
from ..smt.execution import SymbolicRun, stubs
from .symbolic_state import SymbolicConfig, any_rest

BLOCK, CHUNK_BLOCKS = 64, 8  # tokens and blocks, if the lemmas are about any size
HUGE = 10**9  # a limit that no lemma here reaches


def config_of(block: int, chunk_blocks: int = CHUNK_BLOCKS, **keys: Any) -> SpyreConfig:
    lengths = {"max_model_len": HUGE, "max_batch_tkv": HUGE}
    return SpyreConfig(block_size=block, chunk_size=chunk_blocks * block, **{**lengths, **keys})


def make_request(run: SymbolicRun, name: str, **fields: Any) -> Sequence:
    """Return a request of the model whose given fields are numbers of the run."""
    given: dict[str, Any] = {"prompt": 1, "max_tokens": 1, "output_len": 1, **fields}
    for key, value in given.items():
        given[key] = run.number(value) if z3.is_expr(value) else value
    return Sequence(id=name, **given)


def any_switches(
    run: SymbolicRun, block: int, chunk_blocks: int = CHUNK_BLOCKS, **keys: Any
) -> Any:
    """Return a configuration whose switches and limits may have any value, except those in
    `keys`."""
    names = ("max_num_seqs", "max_model_len", "max_batch_tkv")
    limits = {name: run.number(z3.Int(name)) for name in names} | keys
    return SymbolicConfig(run, config_of(block, chunk_blocks, **limits), z3.Int("num_blocks"))


@contextmanager
def any_constraints(run: SymbolicRun, revision: Revision) -> Iterator[Revision]:
    """Inside the context, let each constraint of a revision answer anything. Yield the revision."""
    asked = count()

    def any_answer(*_: Any) -> bool:
        return run.answer(z3.Bool(f"fits {next(asked)}"))

    with stubs(release_2_1_2, fits_prompt=any_answer), stubs(release_2_5_2, fits_limit=any_answer):
        yield replace(
            revision, volume_check=any_answer, fits_model_length=any_answer, fits_pool=any_answer
        )


def in_company(
    run: SymbolicRun,
    revision: Revision,
    request: Sequence,
    *,
    starts: bool,
    beside: tuple[Sequence, ...] = (),
) -> State:
    """Return a state with a request that waits or prefills. Each request in `beside` (by default,
    there is one) decodes, has left or, if the revision pauses requests, is paused. A further
    request may wait behind the first."""
    tokens = {field: z3.Int(f"{field} beside") for field in ("max_tokens", "output_len")}
    if not beside:
        beside = (make_request(run, "1", computed=1, generated=1, blocks=(1,), **tokens),)
    behind = make_request(run, "2") if run.answer(z3.Bool("another waits")) else None
    decoding, paused = list[Sequence](), list[Sequence]()
    for other in beside:
        if run.answer(z3.Bool(f"{other.id} decodes")):
            decoding.append(other)
        elif "paused" in revision.shows and run.answer(z3.Bool(f"{other.id} is paused")):
            paused.append(other)
    at_front = not starts and bool(decoding) and run.answer(z3.Bool("at the front"))
    prefills = () if starts else (request,)
    return State(
        waiting=(*((request,) if starts else ()), *((behind,) if behind else ())),
        running=(*prefills, *decoding) if at_front else (*decoding, *prefills),
        paused=tuple(paused),
        **any_rest(run),
    )


def same_pool(config: Any, revision: Any, state: State, request: Any) -> Any:
    return state.pool
