"""What Spyre's scheduler remembers between two steps."""

from typing import NamedTuple

from .pool import Pool


class Sequence(NamedTuple):
    """A request inside the scheduler. Lengths in tokens.

    `computed` tokens have their KV in the cache; `generated` tokens were emitted, the first by the
    last prefill chunk; `blocks` are the block numbers held.
    """

    id: str
    prompt: int
    max_tokens: int
    output_len: int
    computed: int = 0
    generated: int = 0
    blocks: tuple[int, ...] = ()

    @property
    def prefilled(self) -> bool:
        """The whole prompt is in the cache: the request decodes."""
        return self.computed >= self.prompt

    @property
    def remaining(self) -> int:
        """Decode steps that it may still run, by what the scheduler was told."""
        return self.max_tokens - self.generated


class State(NamedTuple):
    """Queues in order, and what the last step left behind.

    `running` includes the one request that prefills. `tkv` is what admission goes by in releases
    that do so (`Revision.stale_tkv`); `runner_tkv` is the model runner's own copy, which an idle
    step does not reset. `aborted` waits to be reported by the next step.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    last_step_was_prefill: bool = False
    tkv: int = 0
    runner_tkv: int = 0
    pool: Pool = Pool()
    aborted: tuple[str, ...] = ()

    @property
    def prefilling(self) -> Sequence | None:
        """The request between its first and its last chunk, if there is one."""
        return next((one for one in self.running if not one.prefilled), None)

    @property
    def decoding(self) -> tuple[Sequence, ...]:
        """The decode batch, in queue order."""
        return tuple(one for one in self.running if one.prefilled)
