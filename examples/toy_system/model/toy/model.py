"""The reference model: what the document says, as pure functions from state to state.

Name each rule beside the code that keeps it. Predicates must not use anything from here: they
judge this model, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from schedproof.model.scenario import Request
from schedproof.model.systems import Reference

from .config import ToyConfig, read_config


class Member(NamedTuple):
    """A request in a queue; `remaining` counts the tokens that it has still to emit."""

    id: str
    prompt: int
    remaining: int
    reason: str


class Decision(NamedTuple):
    """The decision of a step: the tokens to compute, by request."""

    kind: str
    tokens: dict[str, int]


class ToyState(NamedTuple):
    """The scheduler between two steps; `aborted` are the aborts that the next step reports."""

    waiting: tuple[Member, ...] = ()
    running: tuple[Member, ...] = ()
    aborted: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToyModel:
    """The interface that schedproof drives: `schedproof.model.systems.Model`."""

    config: ToyConfig
    observes: ClassVar[tuple[str, ...]] = ("emitted", "waiting", "running", "finished")
    controls: ClassVar[tuple[str, ...]] = ()  # no operator resets or pauses it

    def initial(self) -> ToyState:
        return ToyState()

    def refusal(self, request: Request) -> str | None:
        """Return None: every request can run."""
        return None

    def arrive(self, state: ToyState, request: Request) -> ToyState:
        reason = "length" if request.tokens_to_emit == request.max_tokens else "eos"
        member = Member(request.id, request.prompt_len, request.tokens_to_emit, reason)
        return state._replace(waiting=(*state.waiting, member))

    def abort(self, state: ToyState, request_id: str) -> ToyState:
        if all(member.id != request_id for member in (*state.waiting, *state.running)):
            return state
        return ToyState(
            tuple(member for member in state.waiting if member.id != request_id),
            tuple(member for member in state.running if member.id != request_id),
            (*state.aborted, request_id),
        )

    def control(self, state: ToyState, kind: str) -> tuple[ToyState, bool]:
        raise NotImplementedError(kind)

    def step(
        self, state: ToyState, abort_inside: tuple[str, ...] = ()
    ) -> tuple[ToyState, dict[str, Any]]:
        """Decide, apply the aborts that come meanwhile, then complete the decision."""
        decision = self.decide(state)
        for name in abort_inside:
            state = self.abort(state, name)
        return self.complete(state, decision)

    def decide(self, state: ToyState) -> Decision:
        """Prefill the first prompt in line if a slot is free; otherwise decode all running
        requests.

        So no step is idle while a request is unfinished (TOY-R03).
        """
        if state.waiting and len(state.running) < self.config.max_num_seqs:  # TOY-R01
            first = state.waiting[0]  # TOY-R02
            return Decision("prefill", {first.id: first.prompt})
        kind = "decode" if state.running else "idle"
        return Decision(kind, {member.id: 1 for member in state.running})

    def complete(self, state: ToyState, decision: Decision) -> tuple[ToyState, dict[str, Any]]:
        """Return the state after the step, and the observation.

        Each scheduled request emits a token, its last one with the reason for its end; an abort is
        reported once (ALL-R03, ALL-R04).
        """
        admitted = tuple(member for member in state.waiting if member.id in decision.tokens)
        waiting = tuple(member for member in state.waiting if member.id not in decision.tokens)
        running, emitted = [], {}
        finished = dict.fromkeys(state.aborted, "aborted")
        for member in (*state.running, *admitted):
            if member.id in decision.tokens:
                emitted[member.id] = 1
                member = member._replace(remaining=member.remaining - 1)
            if member.remaining:
                running.append(member)
            else:
                finished[member.id] = member.reason
        seen = {
            "kind": decision.kind,
            "scheduled": decision.tokens,
            "emitted": emitted,
            "waiting": [member.id for member in waiting],
            "running": [member.id for member in running],
            "finished": finished,
        }
        return ToyState(waiting, tuple(running)), seen


def make_model(revision: str, config: Mapping[str, Any]) -> ToyModel:
    """Return the model of a revision in one configuration."""
    return ToyModel(read_config(config, revision))


REFERENCE = Reference(read_config, make_model)
