"""The reference model of vLLM's scheduler, with the interface that all models share."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import to_builtins
from msgspec.structs import fields

from ..pool import Content, blocks_for
from ..scenario import CONTROLS, Request
from ..systems import Reference, ReferenceModel
from . import (
    blocked,
    cache_events,
    cadence,
    completion,
    control,
    encoder,
    grammars,
    in_flight,
    kv_groups,
    scheduler,
    sessions,
    speculation,
    worker,
)
from .config import VllmConfig, read_config
from .queue import Plan
from .releases import RELEASES
from .revision import DOCUMENTED, Revision
from .state import Grammar, Sequence, State

REVISIONS = {revision.name: revision for revision in (DOCUMENTED, *RELEASES)}
OBSERVES = (
    "kind",
    "scheduled",
    "emitted",
    "waiting",
    "running",
    "prefilling",
    "preempted",
    "finished",
    "computed",
    "blocks",
)
# For each field of a request that needs a feature, the feature's key and the value that turns it
# on.
NEEDED = {
    "encoder_inputs": (
        "max_num_encoder_input_tokens",
        "max_num_encoder_input_tokens and encoder_cache_size",
    ),
    "cache_salt": ("cache_partitions", "cache_partitions true"),
    "lora": ("cache_partitions", "cache_partitions true"),
    "grammar_steps": ("structured_outputs", "structured_outputs true"),
    "grammar_fails": ("structured_outputs", "structured_outputs true"),
    "grammar_begins": ("structured_outputs", "structured_outputs true"),
    "grammar_ends": ("structured_outputs", "structured_outputs true"),
    "grammar_drafts": ("structured_outputs", "structured_outputs true"),
    "turns": ("streaming_inputs", "streaming_inputs true"),
    "sent_as": ("reused_ids", "reused_ids true"),
}
DEFAULTS = {field.name: field.default for field in fields(Request)}


@dataclass(frozen=True)
class VllmModel(ReferenceModel[State]):
    """vLLM in one configuration of one revision."""

    config: VllmConfig
    revision: Revision = DOCUMENTED
    fields: ClassVar = OBSERVES
    state: ClassVar = State

    def options(self) -> dict[str, bool]:
        return {
            "prefix_hit": self.config.enable_prefix_caching,
            "free_blocks": self.config.num_blocks is not None,
            "emitted_at": self.config.depth > 1,
            "parked": self.config.loads or self.config.has_sessions,
            "encoder_inputs": self.config.encodes,
            "encoder_dropped": self.config.encodes,
            "group_blocks": bool(self.config.more_groups),
            "sent": not self.config.has_sessions,
            "cache_events": self.config.publishes_events,
            "masks": self.config.has_grammars,
            "grammars": self.config.has_grammars,
        }

    def refusal(self, request: Request) -> str | None:
        """Return why `request` can never run, or None if it can (V1-R17, ALL-R12).

        Source: target protocol, "Refusals at add".
        """
        config = self.config
        longest = sum(request.whole)
        if longest > config.max_model_len:
            return (
                f"prompt + max_tokens = {longest} tokens exceeds max_model_len "
                f"({config.max_model_len})"
            )
        sentence = f"prompt + max_tokens - 1 = {longest - 1} tokens"
        slots = longest - 1
        if config.drafts:
            slots = speculation.most_slots(config, longest - 1)
            sentence += f", {slots} with drafts,"
        needed = kv_groups.most_blocks_of_all(config, slots)
        if config.num_blocks is not None and needed > config.num_blocks:
            return f"{sentence} needs {needed} blocks, but the pool has {config.num_blocks}"
        if not config.enable_chunked_prefill and longest - 1 > config.max_num_batched_tokens:
            return (
                f"{sentence} exceeds max_num_batched_tokens ({config.max_num_batched_tokens}), "
                "and prompts are not chunked"
            )
        longest_input = max((request.prompt[n][1] for n in request.encoder_inputs), default=0)
        if longest_input > config.longest_input:
            return (
                f"an encoder input of {longest_input} tokens exceeds "
                f"max_num_encoder_input_tokens ({config.encoder_budget}) "
                f"or encoder_cache_size ({config.encoder_room})"
            )
        return None

    def arrive(self, state: State, request: Request) -> State:
        accepted = request.accepted if self.config.drafts else ()
        inputs = encoder.inputs_of(request) if request.encoder_inputs else ()
        newcomer = Sequence.of(request, priority=request.priority, accepted=accepted, inputs=inputs)
        if self.config.lookahead:
            newcomer = newcomer._replace(named_beyond=self.revision.named_beyond(self.config))
        if self.config.cache_partitions is True:
            adapter = request.lora if self.config.max_loras else None
            newcomer = newcomer._replace(content=partition_content(request), adapter=adapter)
        if self.config.loads:
            newcomer = newcomer._replace(
                external=min(request.external_tokens, request.prompt_len),
                load_steps=request.load_steps,
                fails_at=request.load_fails_at,
                deferrals=request.load_deferrals,
                send_steps=request.send_steps,
                send_aborted=request.send_aborted,
            )
        if request.turns:
            newcomer = sessions.of(newcomer, request.turns)
        if self.config.has_grammars and request.has_grammar:
            newcomer = newcomer._replace(
                blocked=request.grammar_steps,
                invalid=request.grammar_fails,
                grammar=Grammar(
                    request.grammar_ends, request.grammar_drafts, request.grammar_begins
                ),
            )
            return blocked.arrive(self.config, state, newcomer, self.revision)
        return scheduler.arrive(self.config, state, newcomer)

    def abort(self, state: State, request_id: str) -> State:
        if self.config.has_sessions:
            return sessions.abort(self.config, state, request_id)
        return scheduler.abort(self.config, state, request_id)

    @property
    def controls(self) -> tuple[str, ...]:
        """Return the control events. With a connector or sessions, return no events, because a
        reset does not free the blocks of parked requests. With an encoder, the engine cannot sleep,
        because sleeping would empty the encoder cache, and this is not modelled."""
        if self.config.loads or self.config.has_sessions:
            return ()
        awake = tuple([kind for kind in CONTROLS if kind not in control.SLEEP])
        return awake if self.config.encodes else CONTROLS

    def control(self, state: State, kind: str) -> tuple[State, bool]:
        """Reset, pause or resume the scheduler. Return the state, and whether the event was carried
        out (V1-R35)."""
        return control.control(self.config, state, kind, self.revision)

    def step(
        self, state: State, abort_inside: tuple[str, ...] = ()
    ) -> tuple[State, dict[str, Any]]:
        """Make one decision and complete it (ALL-R07)."""
        after, seen = self._step(state, abort_inside)
        if self.config.publishes_events:
            return cache_events.publish(self.config, state, after, seen)
        return after, seen

    def _step(self, state: State, abort_inside: tuple[str, ...]) -> tuple[State, dict[str, Any]]:
        if self.config.has_sessions:
            return sessions.step(self.config, state, abort_inside, self.revision)
        if self.config.turn and in_flight.is_decided(state):
            state = in_flight.count_down(state)
        if self.config.holds_grammars:
            state = in_flight.hold_grammars(state)
        if state.pause:
            plan = control.decide(self.config, state, self.revision)
        elif self.config.has_grammars:
            plan = blocked.decide(self.config, state, self.revision)
        else:
            plan = scheduler.schedule(self.config, state, revision=self.revision)
        if self.config.has_grammars and self.config.depth > 2:
            state = state._replace(mask_waits=in_flight.mask_waits(plan))
        reports = self.config.has_grammars and blocked.reports(self.config, state, plan)
        if self.config.has_grammars:
            plan = blocked.count_down(plan)
            if self.config.drafts and self.config.decides_ahead:
                plan = grammars.lose_drafts(plan)
        if self.config.drafts and self.revision.drafts_lapse(self.config):
            plan = speculation.lapse(plan)
        after, seen = completion.carry_out(self.config, state, plan, abort_inside, self.revision)
        seen |= self._fields(after, plan, seen["blocks"])
        if self.config.turn:
            after = in_flight.note_ends(state, after)
        if self.config.holds_prefills:
            after = after._replace(cadence=cadence.after(self.config, state, plan))
        if self.config.has_grammars:
            seen |= grammars.fields(self.config, state, plan, after, seen["emitted"])
        if reports:
            after, seen = blocked.end_refused(after, seen)
        return worker.add_message(self.config, state, plan, after, seen)

    def _fields(self, state: State, plan: Plan, held: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that features add to the observation of a step. `held` has the requests
        that are shown with their blocks."""
        fields: dict[str, Any] = {}
        if self.config.more_groups:
            line = (*state.running, *state.parked, *state.waiting, *state.leaving)
            shown = [sequence for sequence in line if sequence.id in held]
            fields["group_blocks"] = {s.id: [[*table] for table in s.tables] for s in shown}
        if self.config.encodes:
            fields |= encoder.encoder_fields(plan.encoder, plan.running)
        if self.config.loads:
            fields["parked"] = [sequence.id for sequence in state.parked if sequence.blocks]
        return fields


def make_model(revision: str, config: Mapping[str, Any]) -> VllmModel:
    return VllmModel(read_config(config, revision), REVISIONS[revision])


def unsupported(request: Request, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each field of a request that the configuration does not support, with the problem. The
    configuration may be that of another system."""
    for field, (key, value) in NEEDED.items():
        given = getattr(request, field)
        if given != DEFAULTS[field] and not config.get(key):
            shown = json.dumps(to_builtins(given))
            yield field, f"{shown} needs a vllm configuration with {value}"
    several = config.get("async_scheduling") or config.get("pipeline_parallel_size", 1) > 1
    if request.load_fails_at is not None and config.get("synchronous_loads") and several:
        problem = "not modelled with synchronous_loads and several decisions in flight; valid: null"
        yield "load_fails_at", f"{request.load_fails_at} is {problem}"
    if config.get("streaming_inputs"):
        for field in ("grammar_steps", "grammar_fails"):
            if given := getattr(request, field):
                problem = f"not modelled with streaming_inputs; valid: {DEFAULTS[field]}"
                yield field, f"{json.dumps(given)} is {problem}".replace("False", "false")
    if any(turn.grammar_ends for turn in request.turns) and not config.get("structured_outputs"):
        yield "turns", "grammar_ends needs a vllm configuration with structured_outputs true"
    if request.grammar_fails and config.get("max_num_encoder_input_tokens"):
        problem = "not modelled together with an encoder; valid: false, or no encoder_cache_size"
        yield "grammar_fails", problem


def most_blocks(request: Request, config: Mapping[str, Any]) -> int:
    """Return the largest number of blocks that a request can have at once. Each group needs blocks
    for the request's tokens and for the drafts of one step."""
    tokens = sum(request.whole) + config.get("num_speculative_tokens", 0)
    groups: list[dict[str, int]] = config.get("kv_groups") or [{}]
    size = config["block_size"]
    return sum(blocks_for(tokens, group.get("block_size", size)) for group in groups)


REFERENCE = Reference(
    *(read_config, make_model),
    unsupported=unsupported,
    valid_events="no events with a kv_connector or streaming_inputs",
    most_blocks=most_blocks,
)


def partition_content(request: Request) -> Content:
    """Return the segments of a prompt, with the partition of the prefix cache in the name of the
    first one (V1-R40).

    Marking the first segment is enough, because a block's name consists of all tokens up to its
    end.

    Source: release 0.33.0: generate_block_hash_extra_keys.
    """
    if request.cache_salt is None and request.lora is None:
        return request.prompt
    (name, length), *others = request.prompt
    return ((f"{name} of adapter {request.lora!r}, salt {request.cache_salt!r}", length), *others)
