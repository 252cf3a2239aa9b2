"""The cost of a chunk size: a long prompt that arrives beside a batch of decoding requests.

Source: chunked-prefill chapter, "Slicing the long prefill" and "What is unsolved". The study counts
the steps and tokens of the model; the reader sets the cost of a step.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from ...model.scenario import Request
from ...model.vllm.config import VllmConfig
from ...model.vllm.model import VllmModel
from ...model.vllm.state import State

Knob = Literal["budget", "threshold"]
KNOBS: tuple[Knob, ...] = get_args(Knob)
SHORT = 16  # tokens of every prompt but the long one


class Load(NamedTuple):
    """A prompt of `prompt` tokens beside `decoding` requests that decode."""

    prompt: int
    decoding: int


class Point(NamedTuple):
    """One setting of one knob, in tokens, and how the long prompt fares under it.

    `chunk` is the prompt's largest share of a step. `steps` counts the steps until its first token,
    including the step that emits it. `longest` and `tokens` are the work of the longest and of all
    these steps, including decodes. `waits` counts the steps until the first token of a short prompt
    that arrives one step later.
    """

    knob: Knob
    setting: int
    chunk: int
    steps: int
    longest: int
    tokens: int
    waits: int


class StepCost(NamedTuple):
    """The duration of a step: `fixed`, plus `per_token` for each token that it computes."""

    fixed: float
    per_token: float


class Priced(NamedTuple):
    """A point in units of the cost; `itl` is the longest gap between two tokens of a decode.

    A point is `dominated` if another one has a TTFT and a longest gap that are no longer, and at
    least one of them shorter.
    """

    point: Point
    ttft: float
    itl: float
    mean_itl: float
    dominated: bool


def possible(load: Load, knob: Knob, setting: int) -> bool:
    """Return whether the knob can have this setting.

    If the decodes use up the whole budget, no other prompt can ever begin.
    """
    return knob == "threshold" or setting >= load.decoding + 2


def measure(load: Load, knob: Knob, setting: int) -> Point:
    """Run the long prompt beside the decodes, with a possible setting."""
    model = VllmModel(configured(load, knob, setting))
    decoding = settled(model, load)
    long = request("long", load.prompt, load)
    shares = [
        (step["scheduled"].get(long.id, 0), sum(step["scheduled"].values()))
        for step in until_first_token(model, decoding, long)
    ]
    begun, _ = model.step(model.arrive(decoding, long))
    behind = request("behind", SHORT, load)
    return Point(
        knob,
        setting,
        chunk=max(own for own, _ in shares),
        steps=len(shares),
        longest=max(all_tokens for _, all_tokens in shares),
        tokens=sum(all_tokens for _, all_tokens in shares),
        waits=sum(1 for _ in until_first_token(model, begun, behind)),
    )


def configured(load: Load, knob: Knob, setting: int) -> VllmConfig:
    """Return a configuration in which only this knob limits the prompt.

    The threshold is measured with a budget that is never used up. The pool and the prefix cache
    play no part: there is a block for each request, and no two prompts are alike.
    """
    ample = load.prompt + SHORT * (load.decoding + 2)
    longest = max(load.prompt + outlasting(load), setting)
    return VllmConfig(
        block_size=longest,
        max_num_seqs=load.decoding + 2,
        max_model_len=longest,
        max_num_batched_tokens=setting if knob == "budget" else ample,
        long_prefill_token_threshold=setting if knob == "threshold" else 0,
        enable_prefix_caching=False,
    )


def request(name: str, prompt: int, load: Load) -> Request:
    """Return a request that is still generating when the measurement is over."""
    return Request(id=name, arrival=0, prompt=((name, prompt),), max_tokens=outlasting(load))


def outlasting(load: Load) -> int:
    """Return more steps than the workload can take: in each, a prompt advances by at least one
    token."""
    return load.prompt + SHORT * (load.decoding + 2)


def settled(model: VllmModel, load: Load) -> State:
    """Return the state in which all short prompts are computed and decode."""
    state = model.initial()
    for number in range(load.decoding):
        state = model.arrive(state, request(f"d{number}", SHORT, load))
    while state.waiting or not all(sequence.decodes for sequence in state.running):
        state, _ = model.step(state)
    return state


def until_first_token(
    model: VllmModel, state: State, newcomer: Request
) -> Iterator[dict[str, Any]]:
    """Yield the steps from the arrival of a request to its first token."""
    state = model.arrive(state, newcomer)
    emitted = False
    while not emitted:
        state, seen = model.step(state)
        emitted = newcomer.id in seen["emitted"]
        yield seen


def priced(points: Iterable[Point], cost: StepCost) -> list[Priced]:
    """Return the points by ascending chunk, each with its price and whether another one
    dominates it."""
    ordered = sorted(points, key=lambda point: (point.chunk, point.setting))
    prices = [
        (
            cost.fixed * point.steps + cost.per_token * point.tokens,
            cost.fixed + cost.per_token * point.longest,
        )
        for point in ordered
    ]
    return [
        Priced(
            point,
            *price,
            mean_itl=price[0] / point.steps,
            dominated=any(
                other != price and other[0] <= price[0] and other[1] <= price[1] for other in prices
            ),
        )
        for point, price in zip(ordered, prices, strict=True)
    ]


def even_chunk(prompt: int, chunk: int) -> int:
    """Return the smallest chunk that computes the prompt in no more steps: that of even slices."""
    return -(-prompt // -(-prompt // chunk))


def even_chunks(prompt: int) -> int:
    """Return how many chunk sizes slice the prompt evenly, so that no smaller size takes as few
    steps.

    Only these can be on the frontier, whatever a step and a token cost.
    """
    return sum(even_chunk(prompt, chunk) == chunk for chunk in range(1, prompt + 1))
