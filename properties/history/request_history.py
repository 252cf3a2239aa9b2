"""What a client has observed of one request so far."""

from dataclasses import dataclass

from ...model.scenario import Request, Segment
from ..vllm.history.encoder import Input, inputs_of


@dataclass(slots=True)
class RequestHistory:
    """One accepted request. `computed` and `emitted` are sums over the steps seen, in tokens.

    `computed` includes what the prefix cache had at admission, `prefix_hit`; both begin anew when
    the request is preempted, which `preemptions` counts: it had then generated `regenerated`
    tokens and computed `lost` of them all. `output_len` is None where only its end will tell how
    much it generates. `content` are the segments of its prompt. `arrival`
    numbers the requests in the order of their coming; a lower `priority` is more important.
    `paused_steps` counts the steps paused without a break. It began, after a preemption anew, in
    step `began`, and was over by step `over`. One that is `beyond` a limit by itself may be ended
    at any time. Of its drafts, `accepted[n]` are right in the n-th of `verified` steps with drafts,
    and `drafted` are proposed for the next. It was given blocks for `slots` tokens, at least.
    `promised` tokens are on their way: computed, and not emitted; `hoped` drafts are on their way
    with them. A connector has `external` tokens of its prompt. A load takes `load_steps`
    reports of the worker beyond that of the step since which it is parked, of which `load_left` are
    to come; it `brings` so many tokens, until they are counted as computed; from token
    `load_fails_at` on it fails, and so many `deferrals` it may be put off. With
    `send_steps` its blocks are sent when it has ended, and `load_left` counts for that. `blocks`
    are those that it was seen to hold last, where loads and decisions meet. An encoder computes its
    `inputs`.
    """

    id: str
    prompt: int
    max_tokens: int
    output_len: int | None
    content: tuple[Segment, ...] = ()
    computed: int = 0
    emitted: int = 0
    prefix_hit: int = 0
    prefill_steps: int = 0
    paused_steps: int = 0
    ended: str | None = None
    regenerated: int = 0
    lost: int = 0
    preemptions: int = 0
    arrival: int = 0
    priority: int = 0
    beyond: bool = False
    began: int = -1
    over: int | None = None
    accepted: tuple[int, ...] = ()
    drafted: int = 0
    verified: int = 0
    slots: int = 0
    promised: int = 0
    hoped: int = 0
    load_steps: int = 0
    parked_since: int | None = None
    load_left: int = 0
    blocks: tuple[int, ...] = ()
    load_fails_at: int | None = None
    deferrals: int = 0
    send_steps: int | None = None
    external: int = 0
    brings: int = 0
    inputs: tuple[Input, ...] = ()

    @classmethod
    def of(cls, request: Request, arrival: int, open_ended: bool) -> "RequestHistory":
        """A request that has just been accepted; `open_ended`: how much it generates is not known
        yet."""
        return cls(
            request.id,
            request.prompt_len,
            request.max_tokens,
            None if open_ended else request.tokens_to_emit,
            request.prompt,
            arrival=arrival,
            priority=request.priority,
            accepted=request.accepted,
            load_steps=request.load_steps,
            load_fails_at=request.load_fails_at,
            deferrals=request.load_deferrals,
            send_steps=request.send_steps,
            external=min(request.external_tokens, request.prompt_len),
            inputs=inputs_of(request),
        )

    @property
    def started(self) -> bool:
        """Some of its prompt is computed."""
        return self.computed > 0

    @property
    def prefilled(self) -> bool:
        """Its whole prompt is computed; after a preemption, what it had generated too."""
        return self.computed >= self.prompt + self.regenerated

    @property
    def max_computed(self) -> int:
        """Tokens that were ever computed of it."""
        return max(self.computed, self.lost)

    @property
    def held_tokens(self) -> int:
        """Tokens that it has blocks for: those computed, and those given to drafts."""
        return max(self.computed, self.slots)

    @property
    def tokens_left(self) -> int:
        """Tokens that it has still to generate; 0 where it is not known."""
        return 0 if self.output_len is None else self.output_len - self.emitted

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt, what was generated, and what is on its way, drafts
        included."""
        return self.prompt + self.emitted + self.promised + self.hoped

    def __copy__(self) -> "RequestHistory":
        """A copy that goes on by itself: runs that branch copy every account in every step."""
        return RequestHistory(
            self.id,
            self.prompt,
            self.max_tokens,
            self.output_len,
            self.content,
            self.computed,
            self.emitted,
            self.prefix_hit,
            self.prefill_steps,
            self.paused_steps,
            self.ended,
            self.regenerated,
            self.lost,
            self.preemptions,
            self.arrival,
            self.priority,
            self.beyond,
            self.began,
            self.over,
            self.accepted,
            self.drafted,
            self.verified,
            self.slots,
            self.promised,
            self.hoped,
            self.load_steps,
            self.parked_since,
            self.load_left,
            self.blocks,
            self.load_fails_at,
            self.deferrals,
            self.send_steps,
            self.external,
            self.brings,
            self.inputs,
        )
