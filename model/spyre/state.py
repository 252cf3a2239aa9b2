"""The state of Spyre's scheduler between two steps."""

from typing import Literal

from .. import sequence
from ..members import Record
from ..pool import Pool


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler. Its last prefill chunk emits its first token.

    `paused_steps` counts the consecutive steps for which the request has been paused.
    """

    paused_steps: int = 0

    @property
    def prefilled(self) -> bool:
        """Return whether the whole prompt is in the cache, so that the request decodes."""
        return self.computed >= self.prompt

    @property
    def remaining(self) -> int:
        """Return how many decode steps the request may still take, given its max_tokens."""
        return self.max_tokens - self.generated


class State(Record, frozen=True):
    """The scheduler between two steps. Queues are listed from front to back.

    `running` includes the request in its prefill, but not the `paused` requests. `tkv` is the value
    that the last forward pass reported; releases use it for admission. `runner_tkv` is the model
    runner's own copy, which an idle step does not reset. The next step reports the requests in
    `aborted`. `lost_blocks` is the number of blocks that are still promised to requests that no
    longer exist.
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

    An idle decision has a member if a prompt was chosen but there was no room for it.
    """

    kind: Literal["prefill", "decode", "idle"]
    members: tuple[Sequence, ...] = ()
