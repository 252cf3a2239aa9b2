"""Small numbers to reckon with by hand: block 4, budget 16, states put together from parts."""

from collections.abc import Sequence as Listed
from typing import Any

from schedproof.model.nano_vllm.config import NanoConfig
from schedproof.model.nano_vllm.model import REVISIONS as MODULES
from schedproof.model.nano_vllm.model import NanoModel, make_model
from schedproof.model.nano_vllm.state import Plan, Sequence, State
from schedproof.model.pool import Pool
from schedproof.model.scenario import Request

SMALL = {"block_size": 4, "num_blocks": 16, "max_num_seqs": 4, "max_num_batched_tokens": 16}
REVISIONS = WHOLE, IN_CHUNKS = ("documented", "0.2.0")


def config(**changes: Any) -> NanoConfig:
    """A configuration with room for every request."""
    return NanoConfig(**(SMALL | changes))


def waiting(prompt: int, max_tokens: int = 4, name: str = "new", **changes: Any) -> Sequence:
    """A request that nothing has happened to yet; its tokens are its own."""
    sequence = Sequence(name, prompt, max_tokens, max_tokens, content=((name, prompt),))
    return sequence._replace(**changes)


def decoding(name: str, computed: int, *blocks: int, **changes: Any) -> Sequence:
    """A request with a prompt of `computed` that has emitted its first token of nine."""
    prefilled = waiting(computed, 9, name, computed=computed, generated=1, blocks=blocks)
    return prefilled._replace(**changes)


def pool(size: int, held: int) -> Pool:
    """A pool of which the first `held` blocks are in use."""
    return Pool(size, fresh=held + 1)


def ids(members: Listed[Sequence]) -> list[str]:
    """The names, in order."""
    return [sequence.id for sequence in members]


def decided(state: State, revision: str = WHOLE, **changes: Any) -> Plan:
    """The decision of a revision."""
    return MODULES[revision].schedule(config(**changes), state)


def queue(*prompts: int, **changes: Any) -> State:
    """Nothing but waiting requests a, b, c, ... with prompts of these lengths."""
    members = tuple(waiting(tokens, name="abcdef"[place]) for place, tokens in enumerate(prompts))
    return State(waiting=members, pool=Pool(16))._replace(**changes)


def order(plan: Plan) -> list[tuple[str, int]]:
    """A request that is scheduled with how many tokens, in order."""
    return list(plan.scheduled.items())


class ModelRun:
    """The model at work: requests come, steps are taken."""

    def __init__(self, revision: str = "documented", **config: Any) -> None:
        self.model: NanoModel = make_model(revision, config)
        self.state = self.model.initial()

    def ask(
        self,
        name: str,
        *prompt: tuple[str, int] | int,
        max_tokens: int = 9,
        output_len: int | None = None,
    ) -> None:
        """A request with these segments; a number alone is a prompt in words of its own."""
        content = tuple([(name, part) if isinstance(part, int) else part for part in prompt])
        request = Request(
            id=name, arrival=0, prompt=content, max_tokens=max_tokens, output_len=output_len
        )
        assert self.model.refusal(request) is None
        self.state = self.model.arrive(self.state, request)

    def step(self) -> dict[str, Any]:
        """What the next step shows."""
        self.state, seen = self.model.step(self.state)
        return seen

    def steps(self, count: int) -> list[dict[str, Any]]:
        """What so many steps show."""
        return [self.step() for _ in range(count)]
