"""Random runs of a checkout beside a description of its scheduler, compared step by step.

A description is written from a document and from the code, clause by clause, and shares no code
with the models. A test compares SCHEDPROOF_EPISODES runs.
"""

import os
import random
from collections.abc import Iterator
from itertools import count
from typing import Any, Protocol

import msgspec

from schedproof.model.observation import Step
from schedproof.model.pool import prefix
from schedproof.properties.checking.lockstep import differences

EPISODES = int(os.environ.get("SCHEDPROOF_EPISODES", "150"))
Prompt = tuple[tuple[str, int], ...]


class CrashError(Exception):
    """The code raises an error in this step; the text says why."""


class Description(Protocol):
    """What a scheduler is expected to decide."""

    def add(self, name: str, prompt: Prompt, max_tokens: int) -> None: ...

    def step(self) -> dict[str, Any]:
        """Return the expected fields of the next step; raise CrashError if it fails."""
        ...

    @property
    def is_empty(self) -> bool: ...


def run_beside(
    target: Any, description: Description, prompts: Iterator[Prompt], longest: int, seed: int
) -> tuple[int, str]:
    """Send a few requests of at most `longest` generated tokens to both, at random times.

    Return the number of steps and, if an error ended the run, the reason for it. A request that the
    target refuses is left out.
    """
    rng = random.Random(seed)
    left, steps = rng.randint(2, 9), 0
    for steps in range(1, 300):
        while left and rng.random() < 0.4:
            name, prompt, tokens = f"r{left}", next(prompts), rng.randint(1, longest)
            left -= 1
            asked = {"id": name, "prompt": [list(part) for part in prompt], "max_tokens": tokens}
            if target.add(asked)["ok"]:
                description.add(name, prompt, tokens)
        reason = ""
        try:
            expected = description.step()
        except CrashError as crash:
            reason = str(crash)
        reply = target.step()
        assert reply["ok"] == (not reason), (reply.get("message"), reason)
        if reason:
            return steps, reason
        seen = msgspec.convert(reply["step"], Step)
        unequal = differences(seen, msgspec.convert({"kind": seen.kind, **expected}, Step))
        assert not unequal, f"step {steps}: {unequal}"
        if not left and description.is_empty:
            break
    return steps, ""


def random_prompts(rng: random.Random, block: int) -> Iterator[Prompt]:
    """Yield prompts of up to a few blocks; many of them begin like an earlier one."""
    earlier: list[Prompt] = []
    for number in count():
        own = f"p{number}"
        prompt: Prompt = ((rng.choice(("s", own)), rng.randint(1, 5 * block)),)
        if earlier and rng.random() < 0.6:
            base = rng.choice(earlier)
            prompt = prefix(base, rng.randint(1, sum(length for _, length in base)))
            if rng.random() < 0.5:
                prompt += ((rng.choice(("s", own)), block * rng.randint(1, 2)),)
        earlier.append(prompt)
        yield prompt
