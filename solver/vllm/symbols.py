"""Symbolic tokens, blocks and settings for lemmas about vLLM's scheduler."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, cast

import z3

from ...model.vllm.config import VllmConfig
from ...model.vllm.state import Sequence, State
from ..smt.execution import SymbolicLength, SymbolicRun, UndecidedError
from ..smt.numbers import Numbers, tell_multiples
from ..smt.passed_on import Name


class SymbolicRequest(NamedTuple):
    """An arbitrary request that the check on arrival has accepted.

    Attributes:
        prompt: the number of tokens in its prompt.
        max_tokens: the number of tokens that it may generate.
        generated: the number of tokens that it has generated so far.
    """

    prompt: Any
    max_tokens: Any
    generated: Any

    @property
    def known(self) -> Any:
        return self.prompt + self.generated

    @property
    def longest(self) -> Any:
        """Return the number of tokens that the request computes in its whole life: all except the
        last one that it generates."""
        return self.prompt + self.max_tokens - 1


def block_of(block: int | None) -> Any:
    """Return the size of a block in tokens, or a symbol for it if `block` is None."""
    return z3.Int("block") if block is None else block


def make_numbers(block: Any) -> Numbers:
    numbers = Numbers()
    if not isinstance(block, int):
        numbers.facts.append(block >= 1)
    return numbers


def some(numbers: Numbers, name: str, low: int = 0) -> Any:
    return numbers.fresh(name, low)


def unfinished(numbers: Numbers, more: int = 0) -> SymbolicRequest:
    """Return an arbitrary request that has a token left to generate. With `more`, it may have
    generated up to that many tokens more than max_tokens.
    """
    request = SymbolicRequest(
        some(numbers, "prompt", 1), some(numbers, "max_tokens", 1), some(numbers, "own")
    )
    numbers.facts.append(request.generated <= request.max_tokens - 1 + more)
    return request


def clamp(behind: Any, threshold: Any, budget: Any) -> Any:
    own = capped(behind, threshold)
    return z3.If(own < budget, own, budget)


def capped(behind: Any, threshold: Any) -> Any:
    return z3.If(z3.And(threshold > 0, threshold < behind), threshold, behind)


def blocks(numbers: Numbers, block: Any, tokens: Any) -> Any:
    """Return the number of blocks that `tokens` tokens need (at least one token), like
    `blocks_for`."""
    whole, _ = numbers.split(tokens - 1, block, None)
    return whole + 1


def tell_order(numbers: Numbers, block: Any, *counts: Any) -> None:
    """If the block size is a symbol, give Z3 the lemma `more_blocks_are_one_block_more` as a
    fact."""
    if not isinstance(block, int):
        tell_multiples(numbers, block, *counts)


LIMITS = ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
SWITCHES = ("enable_chunked_prefill", "enable_prefix_caching", "reserve_full_isl")
COUNTS = ("long_prefill_token_threshold", "watermark_blocks")


class Settings:
    """Symbols for the settings that are not features: limits, switches, the policy and the pool."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = {name: some(numbers, name, 1) for name in (*LIMITS, "num_blocks")}
        self.numbers |= {name: some(numbers, name) for name in COUNTS}

    def config(self, run: SymbolicRun, **given: Any) -> Any:
        """Return a configuration with the `given` settings and without any feature. Any other
        setting is decided when the code reads it."""
        return AnyConfig(run, self.numbers, given)


class AnyConfig:
    """A configuration whose settings are decided when the code reads them (see `Settings`)."""

    def __init__(self, run: SymbolicRun, numbers: dict[str, Any], given: dict[str, Any]) -> None:
        self._run, self._numbers, self._given = run, numbers, given

    def __getattr__(self, name: str) -> Any:
        if name in self._given:
            return self._given[name]
        if name == "num_blocks" and self._run.answer(z3.Bool("no bound on the pool")):
            return None
        if name in self._numbers:
            return self._run.number(self._numbers[name])
        if name in SWITCHES:
            return self._run.answer(z3.Bool(name))
        if name == "policy":
            return "priority" if self._run.answer(z3.Bool("by priority")) else "fcfs"
        if name == "watermark":
            raise UndecidedError("reads the watermark as a share of the pool")
        derived = getattr(VllmConfig, name)
        if isinstance(derived, cached_property):
            return derived.func(self)
        return getattr(DEFAULTS, name)


DEFAULTS = VllmConfig()


class Reported:
    """Ids that the code may only visit: one id if `condition` holds, and none otherwise."""

    def __init__(self, run: SymbolicRun, condition: Any, name: str) -> None:
        self._run, self._condition, self._name = run, condition, name

    def __iter__(self) -> Iterator[str]:
        if self._run.answer(self._condition):
            yield self._name

    def __bool__(self) -> bool:
        return self._run.answer(self._condition)


class Held(SymbolicLength):
    """The blocks of a running request, at least one. The code may not look at them."""

    def __bool__(self) -> bool:
        return True


def make_state(
    run: SymbolicRun, requests: Iterable[Sequence], running: int, pool: Any, arrived: Any
) -> State:
    """Return a state in which the first `running` requests run, and in which an abort may have to
    be reported."""
    made = tuple(requests)
    return State(
        waiting=made[running:],
        running=made[:running],
        pool=pool,
        arrived=run.number(arrived),
        aborted=cast(Any, Reported(run, z3.Bool("an abort is reported"), Name("gone"))),
        told=cast(Any, Held(run.number(z3.Int("told")))),
    )
