"""Workloads under memory pressure: fixed lists of requests, the same on every machine.

Lengths are in tokens, arrivals in steps. Priorities go 0, 1, 2, 0, ... by arrival. The pool of
`ENGINE` is a fraction of what the requests of any workload would fill at once.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...model.pool import Content, blocks_for
from ...model.scenario import Request
from ...model.vllm.config import VllmConfig

ENGINE = VllmConfig(block_size=16, num_blocks=400, max_num_batched_tokens=2048)
PRIORITIES = 3
# (arrival, prompt, max_tokens)
ShapedRequest = tuple[int, Content, int]


class Workload(NamedTuple):
    """Requests in order of arrival; `about` gives their lengths as prompt + output."""

    name: str
    about: str
    requests: tuple[Request, ...]


def workload(name: str, about: str, requested: Iterable[ShapedRequest]) -> Workload:
    """Return a workload of these requests, numbered from 0; priorities do not depend on their
    kind."""
    requests = tuple(
        Request(
            id=f"r{number}",
            arrival=arrival,
            prompt=prompt,
            max_tokens=max_tokens,
            priority=number % PRIORITIES,
        )
        for number, (arrival, prompt, max_tokens) in enumerate(requested)
    )
    return Workload(name, about, requests)


def own(number: int, tokens: int) -> tuple[str, int]:
    """Return a segment of tokens that no other prompt has."""
    return f"r{number}", tokens


def mixed(spacing: int) -> list[ShapedRequest]:
    """Return requests with prompts of 32 to 931 and outputs of 40 to 639 tokens.

    The strides share no factor with the numbers of lengths, so that they visit all lengths in turn.
    """
    return [(spacing * n, (own(n, 32 + 397 * n % 900),), 40 + 211 * n % 600) for n in range(32)]


def chat(number: int, system: int, words: int) -> Content:
    """Return a prompt that begins with the system prompt that all chats share."""
    return ("system", system), own(number, words)


WORKLOADS = (
    workload(
        "long-output",
        "24 x (64 + 700)",
        [(0, (own(n, 64),), 700) for n in range(24)],
    ),
    workload(
        "long-prompt",
        "24 x (1,000 + 100)",
        [(0, (own(n, 1000),), 100) for n in range(24)],
    ),
    workload(
        "system-prompt",
        "32 x (512 shared, 32 + 500)",
        [(0, chat(n, 512, 32), 500) for n in range(32)],
    ),
    workload(
        "half-shared",
        "12 x (1,024 shared, 16 + 400), 12 x (512 + 400), in turn",
        [(0, chat(n, 1024, 16) if n % 2 else (own(n, 512),), 400) for n in range(24)],
    ),
    workload(
        "guests",
        "32 x (512 shared, 64 + 400), 8 x (2,000 + 100), 12 steps apart",
        [
            (12 * n, (own(n, 2000),), 100) if n % 5 == 4 else (12 * n, chat(n, 512, 64), 400)
            for n in range(40)
        ],
    ),
    workload("mixed", "32 x (32 to 931 + 40 to 639), all at once", mixed(0)),
    workload("mixed-arrivals", "the same, 20 steps apart", mixed(20)),
)


def fewest_blocks(workload: Workload) -> int:
    """Return the fewest blocks that let every request of the workload finish."""
    longest = max(request.prompt_len + request.tokens_to_emit - 1 for request in workload.requests)
    return blocks_for(longest, ENGINE.block_size)
