"""Small numbers to reckon with by hand: block 4, budget 16, no cache, no bound; states put together
from parts, and runs of the models."""

from collections.abc import Mapping
from typing import Any

from schedproof.model.llmservingsim.config import LlmServingSimConfig
from schedproof.model.llmservingsim.model import LlmServingSimModel, make_model
from schedproof.model.llmservingsim.scheduler import Done, add_done
from schedproof.model.llmservingsim.state import Decision, Sequence, State
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request, Segment

SMALL: dict[str, Any] = {
    **{"block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 16},
    **{"enable_prefix_caching": False},
}


def config(**changes: Any) -> LlmServingSimConfig:
    """A configuration with these changes."""
    return LlmServingSimConfig(**(SMALL | changes))


def waiting(prompt: int, max_tokens: int = 4, name: str = "new", **changes: Any) -> Sequence:
    """A request that nothing has happened to yet; its tokens are its own."""
    sequence = Sequence(name, prompt, max_tokens, max_tokens, content=((name, prompt),))
    return sequence._replace(**changes)


def decoding(name: str, computed: int, *blocks: int, **changes: Any) -> Sequence:
    """A request with a prompt of `computed` that has emitted its first token of nine."""
    prefilled = waiting(computed, 9, name, computed=computed, generated=1, blocks=blocks)
    return prefilled._replace(**changes)


def pool(size: int | None, held: int) -> Pool:
    """A pool of which the first `held` blocks are in use."""
    return Pool(size, fresh=held + 1)


class ModelRun:
    """A model in flight, with every step of it."""

    def __init__(self, revision: str, **changes: Any) -> None:
        self.model: LlmServingSimModel = make_model(revision, SMALL | changes)
        self.state: State = self.model.initial()

    def ask(
        self,
        name: str,
        prompt: int | tuple[Segment, ...],
        max_tokens: int = 4,
        output_len: int | None = None,
    ) -> None:
        """A request arrives, with words of its own if a length is given."""
        content = prompt if isinstance(prompt, tuple) else ((name, prompt),)
        request = Request(
            id=name, arrival=0, prompt=content, max_tokens=max_tokens, output_len=output_len
        )
        assert self.model.refusal(request) is None
        self.state = self.model.arrive(self.state, request)

    def step(self, *abort_inside: str) -> dict[str, Any]:
        """One step of the protocol."""
        self.state, seen = self.model.step(self.state, abort_inside)
        return seen

    def steps(self, count: int) -> list[dict[str, int]]:
        """The tokens of so many steps."""
        return [self.step()["scheduled"] for _ in range(count)]

    def schedule(self) -> Mapping[str, int] | None:
        """The tokens of the next batch, which is then in flight, or None."""
        decision: Decision = self.model.revision.schedule(self.model.config, self.state)
        self.state = decision.state
        return None if decision.batch is None else dict(decision.batch.scheduled)

    def done(self, number: int) -> Done:
        """The batch of this number is through."""
        self.state, done = add_done(self.model.revision, self.model.config, self.state, number)
        return done
