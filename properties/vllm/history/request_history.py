"""The observations of one vLLM request, including its drafts, loads and encoder inputs."""

from dataclasses import dataclass
from typing import Any

from ....model.scenario import Request, Turn
from ...history.request_history import RequestHistory
from .encoder import Input, inputs_of


@dataclass(slots=True)
class VllmRequestHistory(RequestHistory):
    """One accepted request, with lengths in tokens.

    Attributes:
        accepted: the number of correct drafts in each step that verifies drafts. The list is
            repeated as needed.
        drafted: the number of drafts that are proposed for the next step.
        verified: the number of steps in which its drafts were verified.
        slots: the number of tokens for which it was given blocks, or a lower bound on that number;
            `most_slots` includes the lookahead that it may get with its first chunk.
        tokens_in_flight: tokens that are computed but not emitted; `drafts_in_flight` accompany
            them.
        external: how many tokens of its prompt a connector has.
        load_steps: the number of worker reports that a load takes after the step in which the
            request is parked; `load_left` of these have not come yet.
        began_at: its place in `scheduled` when it last started.
        parked_since: the step in which its load began.
        tokens_loading: the tokens of the load that do not count as computed yet.
        load_fails_at: the first token that fails to load.
        deferrals: how often the connector may put off its answer.
        send_steps: the number of worker reports, after its end, until its blocks have been sent;
            `load_left` counts these as well. `send_aborted`: whether they are sent after an abort.
        blocks: the blocks that were last shown for it; kept only if loads and decisions may be in
            flight at the same time.
        begun: for each decision in flight that computes it, oldest first, how many of its tokens
            were computed before that decision.
        inputs: the segments of its prompt that an encoder computes.
        since_reset: how many of its tokens have been computed since the last reset of the prefix
            cache.
        blocked: for how many steps, including the coming one, it cannot run because its grammar is
            not compiled, its next input has not come, or the tool of its session is running.
        arrived_blocked: whether it has a grammar, for which it had to wait. Each turn of a session
            may have its own grammar.
        grammar_begins, grammar_ends: the number of tokens of reasoning after which the grammar
            begins, and the number of tokens after which it has ended. `grammar_drafts`: for each
            number of known tokens, how many drafts fit the grammar; the list is repeated as needed.
        invalid: whether its grammar never compiles.
        turns: the turns of its session that have not begun.
        between_turns: whether it has not been scheduled since a turn ended; then `tokens_loading`
            is the number of tokens that it has computed.
        aside: whether, between two turns, it had to wait for its next input.
        falls_to: how many of its tokens remain computed after a synchronous load that fails in this
            step; None if no load fails. `went_back`: whether it has lost tokens in this way since
            it was admitted.
        rests: in how many steps, including the coming one, it is not scheduled while it runs,
            because the stages of a pipeline are still busy with its last token.
    """

    accepted: tuple[int, ...] = ()
    drafted: int = 0
    verified: int = 0
    slots: int = 0
    most_slots: int = 0
    tokens_in_flight: int = 0
    drafts_in_flight: int = 0
    load_steps: int = 0
    began_at: int = 0
    parked_since: int | None = None
    load_left: int = 0
    blocks: tuple[int, ...] = ()
    load_fails_at: int | None = None
    deferrals: int = 0
    send_steps: int | None = None
    send_aborted: bool = False
    external: int = 0
    tokens_loading: int = 0
    begun: tuple[int, ...] = ()
    inputs: tuple[Input, ...] = ()
    since_reset: int = 0
    blocked: int = 0
    arrived_blocked: bool = False
    grammar_begins: int = 0
    grammar_ends: int | None = None
    grammar_drafts: tuple[int, ...] = ()
    invalid: bool = False
    turns: tuple[Turn, ...] = ()
    between_turns: bool = False
    aside: bool = False
    falls_to: int | None = None
    went_back: bool = False
    rests: int = 0

    @staticmethod
    def own_fields(request: Request) -> dict[str, Any]:
        return {
            "accepted": request.accepted,
            "load_steps": request.load_steps,
            "load_fails_at": request.load_fails_at,
            "deferrals": request.load_deferrals,
            "send_steps": request.send_steps,
            "send_aborted": request.send_aborted,
            "external": min(request.external_tokens, request.prompt_len),
            "inputs": inputs_of(request),
            "blocked": request.grammar_steps or request.tool_steps,
            "arrived_blocked": request.has_grammar,
            "grammar_begins": request.grammar_begins,
            "grammar_ends": request.grammar_ends,
            "grammar_drafts": request.grammar_drafts,
            "invalid": request.grammar_fails,
            "turns": request.turns,
        }

    @property
    def started(self) -> bool:
        return self.computed > 0 or self.went_back

    @property
    def kept_tokens(self) -> int:
        return self.tokens_loading if self.between_turns else self.computed

    @property
    def settled(self) -> int:
        return self.begun[0] if self.begun else self.computed

    @property
    def held_tokens(self) -> int:
        """Return the number of tokens for which the request has blocks: the computed tokens and the
        drafts."""
        return max(self.computed, self.slots)

    @property
    def num_tokens(self) -> int:
        """Return the number of tokens known so far: prompt, output, and tokens in flight with their
        drafts."""
        return self.prompt + self.emitted + self.tokens_in_flight + self.drafts_in_flight

    @property
    def may_change_after_end(self) -> bool:
        """Return whether the request's blocks may still be written, or are being sent."""
        return bool(self.load_left or self.blocks)

    def rewind(self) -> None:
        RequestHistory.rewind(self)
        self.drafted = self.slots = self.most_slots = 0
        self.tokens_in_flight = self.drafts_in_flight = self.tokens_loading = 0
        self.between_turns = self.went_back = False
