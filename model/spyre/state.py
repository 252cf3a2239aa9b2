"""The state of Spyre's scheduler between two steps."""

from typing import Literal

from .. import sequence
from ..members import Record
from ..pool import Pool


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler; its first token is emitted by the last prefill chunk.

    `paused_steps` counts the steps that the request was paused without a break.
    """

    paused_steps: int = 0

    @property
    def prefilled(self) -> bool:
        """Return whether the whole prompt is in the cache, so that the request decodes."""
        return self.computed >= self.prompt

    @property
    def remaining(self) -> int:
        """Return how many decode steps it may still run, by its max_tokens."""
        return self.max_tokens - self.generated


class State(Record, frozen=True):
    """Queues in order, and what the last step left behind.

    `running` includes the one request that prefills, not those that are `paused`. `tkv` is what the
    last forward reported, by which releases admit; `runner_tkv` is the model runner's own copy,
    which an idle step does not reset. `aborted` waits to be reported by the next step.
    `lost_blocks` stay promised to requests that are gone.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    paused: tuple[Sequence, ...] = ()
    last_step_was_prefill: bool = False
    tkv: int = 0
    runner_tkv: int = 0
    pool: Pool = Pool()
    lost_blocks: int = 0
    aborted: tuple[str, ...] = ()

    @property
    def admitted(self) -> tuple[Sequence, ...]:
        """Return every request that holds blocks."""
        return self.running + self.paused

    @property
    def prefilling(self) -> Sequence | None:
        for request in self.running:
            if request.computed < request.prompt:
                return request
        return None

    @property
    def decoding(self) -> tuple[Sequence, ...]:
        """Return the decode batch, in queue order."""
        return tuple([request for request in self.running if request.computed >= request.prompt])


class Decision(Record, frozen=True):
    """The work of this step: the chunk of one request, the decode batch, or nothing.

    An idle step has a member where a prompt was chosen for which there was no room.
    """

    kind: Literal["prefill", "decode", "idle"]
    members: tuple[Sequence, ...] = ()
