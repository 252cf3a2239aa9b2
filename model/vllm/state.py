"""The state of vLLM's scheduler between two steps."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from .. import sequence
from ..members import Record
from ..pool import Content, Pool, prefix
from ..scenario import Segment, Turn

EOS: Segment = ("end of sequence", 1)  # the last token of an answer that stops early


class Coming(NamedTuple):
    """A token in flight. `place` is its position in the request's output, from 0. `drafts` is the
    number of drafts computed before it, and `proposed` how many of these the drafter proposed."""

    place: int
    drafts: int = 0
    proposed: int = 0


class Grammar(NamedTuple):
    """The grammar of a request's output. It begins after `begins` tokens of reasoning, and has
    ended after `ends` tokens. `drafts[n]` is the number of drafts that fit after n known tokens;
    the list repeats as needed, and if it is empty, all drafts fit."""

    ends: int | None = None
    drafts: tuple[int, ...] = ()
    begins: int = 0


class Input(NamedTuple):
    """A segment of a prompt that an encoder computes first: the position of its first token, and
    its index among the prompt's segments."""

    segment: Segment
    start: int
    place: int


# A decision in flight: for each request, the token that it will yield, or None.
Flight = Mapping[str, Coming | None]


class Sequence(sequence.Sequence, frozen=True):
    """A request inside the scheduler.

    Attributes:
        priority, arrival: its priority (lower numbers are more important), and its place in the
            order of arrival.
        drafted: the number of drafts that are proposed but not computed.
        accepted, verified: when drafts are computed for the n-th time, `accepted[n]` of them are
            correct; after its last entry, `accepted` is repeated. `verified` counts how often
            drafts were computed so far.
        promised, hoped: the number of tokens in flight that will certainly arrive, and the number
            of drafts in flight.
        named_beyond: how many tokens after each of its blocks belong to the block's name.
        aside: whether it waits for something other than blocks, so that others may overtake it.
        external, load_steps: how many tokens of its prompt a connector has, and how many steps it
            takes to load them.
        loading, was_loaded: the steps left of the load, and whether the request was ever loaded (a
            load is never repeated).
        fails_at, arrives: the first token at which the load fails, and the number of tokens that
            count as computed once the load has finished.
        deferrals: how many more times the connector will answer that it does not know yet.
        written_by, send_steps: after its end, the number of decisions in flight that still write to
            its blocks, and the number of steps after the next one for which the blocks are sent.
        send_aborted: whether its blocks are sent even if it is aborted.
        inputs, needs: the inputs that an encoder computes, and those whose outputs are kept for the
            request.
        tables: its blocks in each group of the KV cache after the first; the null block stands for
            one that was given back.
        full: in each of these groups, how many of its blocks can be found, or were passed over.
        junction: the number of its tokens that full attention had cached when it started. It is 0
            unless another group lacked some of these tokens.
        inside: during its admission, the number of hit tokens in the last block of its hit, if the
            hit ends inside that block.
        tails: the groups in which it has left a state inside a block. It must copy the state before
            it overwrites it.
        adapter: the LoRA adapter that it needs, if the number of adapters is limited.
        begun: how many of its tokens were computed before each decision in flight that computes it,
            the oldest first; only with several groups and decisions in flight.
        blocked: the number of steps left until its grammar is compiled.
        grammar, unfit: the grammar of its output, if any, and the number of proposed drafts that do
            not fit it.
        invalid, refused: whether its grammar cannot be compiled, and whether the scheduler knows
            this.
        turns: the turns of its session that have not begun.
        held: whether this step holds its prefill back.
        rests: for how many more steps, including the coming one, it runs without being scheduled,
            because the stages of a pipeline are still busy with its last token.
        awaits: for how many more steps its session waits for the next input; None if it is not
            waiting.
    """

    priority: int = 0
    arrival: int = 0
    accepted: tuple[int, ...] = ()
    drafted: int = 0
    verified: int = 0
    promised: int = 0
    hoped: int = 0
    named_beyond: int = 0
    aside: bool = False
    external: int = 0
    load_steps: int = 0
    loading: int | None = None
    was_loaded: bool = False
    fails_at: int | None = None
    arrives: int = 0
    deferrals: int = 0
    send_steps: int | None = None
    send_aborted: bool = False
    written_by: int = 0
    inputs: tuple[Input, ...] = ()
    needs: tuple[int, ...] = ()
    tables: tuple[tuple[int, ...], ...] = ()
    full: tuple[int, ...] = ()
    junction: int = 0
    inside: int = 0
    tails: tuple[int, ...] = ()
    adapter: str | None = None
    begun: tuple[int, ...] = ()
    blocked: int = 0
    grammar: Grammar | None = None
    unfit: int = 0
    invalid: bool = False
    refused: bool = False
    turns: tuple[Turn, ...] = ()
    awaits: int | None = None
    held: bool = False
    rests: int = 0

    def name(self, number: int, block_size: int) -> Content:
        end = (number + 1) * block_size + self.named_beyond
        if end == self.prompt + self.output_len and self.output_len < self.max_tokens:
            return (*prefix(self.known, end - 1), EOS)
        return prefix(self.known, end)

    def rewound(self) -> Self:
        return super().rewound()._replace(tables=(), full=(), begun=(), tails=(), unfit=0)

    @property
    def settled(self) -> int:
        """Return how many of the request's tokens were computed by decisions that have
        completed."""
        return self.begun[0] if self.begun else self.computed

    @property
    def num_uncomputed_tokens(self) -> int:
        """Return the number of tokens to compute. Tokens in flight count, because they will be
        known when the step is computed."""
        return self.prompt + self.generated + self.promised + self.hoped - self.computed

    @property
    def decodes(self) -> bool:
        return self.generated + self.promised > 0 and self.num_uncomputed_tokens == 1


class Cadence(NamedTuple):
    """Which steps may compute prompts, if there is a `prefill_schedule_interval`.

    Attributes:
        left: how many more steps may hold prefills back, counting only steps that compute
            something.
        crowded: whether the last step that could admit requests left some waiting. Requests in
            `aside`, which could not run, do not count.
        prefilling: the running requests that still had known tokens to compute after their last
            step.
        holds: whether the current step holds prefills back.
    """

    left: int = 0
    crowded: bool = False
    prefilling: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    holds: bool = False


class State(Record, frozen=True):
    """The scheduler between two steps. Every queue is listed from front to back.

    Attributes:
        arrived: the number of requests so far.
        aborted: aborted requests, which the next step reports.
        in_flight: the decisions that the worker still computes, the oldest first.
        early: the number of consecutive steps in which the oldest decision completed before the
            pipeline was full.
        completes_next: whether a decision completes in the next step, if a recording says so.
        parked: waiting requests whose blocks a connector fills, and sessions between two turns.
        leaving: requests that have ended while a load or a decision in flight was still writing to
            their blocks.
        outputs: encoder outputs that are kept, in the order of their last use.
        pause: "pause_new" or "pause_all" while an operator holds the scheduler back.
        told: the requests that the worker knows.
        cadence: which steps hold prefills back, after the first step with an interval.
        published: the blocks that routers know, by content, as in `Pool.cached`; None before the
            first event.
        ended: whether a request has ended in the last step, if running requests must rest.
        mask_waits: whether a mask of the newest decision depends on a token in flight.
    """

    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    pool: Pool = Pool()
    arrived: int = 0
    aborted: tuple[str, ...] = ()
    in_flight: tuple[Flight, ...] = ()
    early: int = 0
    completes_next: bool | None = None
    parked: tuple[Sequence, ...] = ()
    leaving: tuple[Sequence, ...] = ()
    outputs: Content = ()
    pause: str | None = None
    told: tuple[str, ...] = ()
    cadence: Cadence | None = None
    published: Mapping[Content, tuple[int, ...]] | None = None
    ended: bool = False
    mask_waits: bool = False

    @property
    def holders(self) -> tuple[Sequence, ...]:
        """Return the requests that may hold blocks."""
        return (*self.running, *self.parked, *self.leaving)
