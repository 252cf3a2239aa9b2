"""The reference models of the registered systems, by the names that scenarios use."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ..spec.systems import SYSTEMS, part
from .errors import InputError
from .pool import Pool
from .scenario import OF_PARTITION, Request, Scenario

State = TypeVar("State")


@dataclass(frozen=True)
class ReferenceModel(Generic[State]):
    """One configuration of one revision. Every method is pure: it takes and returns states.

    Attributes:
        config: the configuration of its system.
        fields: fields of the step observation that every configuration shows.
        state: the class of the scheduler's state between two steps.
    """

    config: Any
    fields: ClassVar[tuple[str, ...]]
    state: ClassVar[Any]

    def options(self) -> dict[str, bool]:
        """Return the optional fields of the step observation, each with whether this configuration
        shows it."""
        return {}

    @property
    def observes(self) -> tuple[str, ...]:
        """Return the fields of the step observation that this model shows."""
        return self.fields + tuple(field for field, shown in self.options().items() if shown)

    @property
    def controls(self) -> tuple[str, ...]:
        """Return the control events that are possible in this configuration."""
        return ()

    def control(self, state: State, kind: str) -> tuple[State, bool]:
        """Perform a control event before the next decision; return the state and whether it was
        carried out."""
        raise NotImplementedError(kind)

    def initial(self) -> State:
        """Return the state before any request arrives."""
        made: State = self.state(pool=Pool(self.config.num_blocks))
        return made


class Model(Protocol):
    """One configuration of one revision of a system. Every method is pure: it takes and returns
    states, which callers must not inspect."""

    @property
    def observes(self) -> tuple[str, ...]:
        """Return the fields of the step observation that the model shows."""

    @property
    def controls(self) -> tuple[str, ...]:
        """Return the control events that are possible in this configuration."""

    def initial(self) -> Any:
        """Return the state before any request arrives."""

    def refusal(self, request: Request) -> str | None:
        """Return why the request can never run, or None."""

    def arrive(self, state: Any, request: Request) -> Any:
        """Put the request into the waiting queue."""

    def abort(self, state: Any, request_id: str) -> Any:
        """Abort the request before the next decision."""

    def control(self, state: Any, kind: str) -> tuple[Any, bool]:
        """Perform a control event before the next decision; return the state and whether it was
        carried out."""

    def step(self, state: Any, abort_inside: tuple[str, ...] = ()) -> tuple[Any, dict[str, Any]]:
        """Take one decision and complete it; return the next state and the step observation
        (ALL-R07)."""


class Reference(NamedTuple):
    """A system's reference models: functions that read a configuration and build a model.

    Both functions take a revision, and raise InputError for an impossible configuration.
    `with_formula` returns a model that uses the named formula, or None for an unknown name; it is
    None for systems without named formulas. `formulas` has the names of the formulas, and the form
    of a user-defined one.
    """

    read_config: Callable[[Mapping[str, Any], str], msgspec.Struct]
    make_model: Callable[[str, Mapping[str, Any]], Model]
    with_formula: Callable[[Any, str], Model | None] | None = None
    formulas: tuple[str, ...] = ()


def reference(system: str) -> Reference:
    """Return the reference models of a registered system."""
    model: Reference = part(system, "model")
    return model


def revisions_of(system: str) -> tuple[str, ...]:
    """Return the revisions of a registered system, the default first."""
    return SYSTEMS[system].revisions


def check_system(system: str) -> None:
    """Raise InputError unless `system` is known."""
    if system not in SYSTEMS:
        raise InputError("$.system", f"{system!r:.60} is not a system; valid: {', '.join(SYSTEMS)}")


def resolve_revision(system: str, revision: str | None) -> str:
    """Return `revision`, or the system's first one if none is given.

    Raises:
        InputError: an unknown system or revision.
    """
    check_system(system)
    if revision is None:
        return revisions_of(system)[0]
    if revision not in revisions_of(system):
        valid = ", ".join(revisions_of(system))
        problem = f"{revision!r:.60} is not a revision of {system}; valid: {valid}"
        raise InputError("$.revision", problem)
    return revision


def full_config(system: str, revision: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return every key of the system's configuration, with defaults for missing keys.

    Raises:
        InputError: an unknown system, revision or key, or an impossible value.
    """
    resolve_revision(system, revision)
    read: dict[str, Any] = msgspec.to_builtins(reference(system).read_config(values, revision))
    return read


def config_keys(system: str, revision: str) -> tuple[str, ...]:
    """Return every key of the system's configuration, including those that are absent by default.

    Raises:
        InputError: an unknown system or revision.
    """
    resolve_revision(system, revision)
    return reference(system).read_config({}, revision).__struct_fields__


def make_model(system: str, revision: str, config: Mapping[str, Any]) -> Model:
    """Return the reference model of a system's revision.

    Raises:
        InputError: an unknown system, revision or key, an impossible value, or a revision without a
            model.
    """
    resolve_revision(system, revision)
    return reference(system).make_model(revision, config)


def with_formula(system: str, model: Model, formula: str) -> Model:
    """Return the system's model with a named formula instead of its revision's own.

    Raises:
        InputError: the system has no formula of this name.
    """
    change = reference(system).with_formula
    changed = None if change is None else change(model, formula)
    if changed is None:
        raise InputError("$.formula", f"{system} has no formula {formula!r:.60}")
    return changed


def valid_formulas() -> str:
    """Describe the formulas that `knows_formula` accepts."""
    return ", ".join(name for system in SYSTEMS for name in reference(system).formulas)


def knows_formula(formula: str) -> bool:
    for system in SYSTEMS:
        change = reference(system).with_formula
        if change is not None and change(make_model(system, revisions_of(system)[0], {}), formula):
            return True
    return False


def check_features(scenario: Scenario, revision: str, config: Mapping[str, Any]) -> None:
    """Check that a configuration has what a scenario's requests and events need.

    Raises:
        InputError: the configuration lacks an encoder, partitions, grammars, or control events that
            the scenario needs.
    """
    _check_encoder(scenario, config)
    _check_partitions(scenario, config)
    _check_grammars(scenario, config)
    _check_ids(scenario, config)
    _check_events(scenario, revision, config)


def _check_encoder(scenario: Scenario, config: Mapping[str, Any]) -> None:
    """Raise InputError for encoder inputs if the configuration has no encoder."""
    for index, request in enumerate(scenario.requests):
        if request.encoder_inputs and not config.get("max_num_encoder_input_tokens"):
            raise InputError(
                f"$.requests[{index}].encoder_inputs",
                f"{list(request.encoder_inputs)} needs a configuration of vllm with "
                "max_num_encoder_input_tokens and encoder_cache_size",
            )


def _check_partitions(scenario: Scenario, config: Mapping[str, Any]) -> None:
    """Raise InputError for salts and adapters if the configuration has no cache partitions."""
    for index, request in enumerate(scenario.requests):
        for key in OF_PARTITION:
            value = getattr(request, key)
            if value is not None and not config.get("cache_partitions"):
                raise InputError(
                    f"$.requests[{index}].{key}",
                    f"{json.dumps(value)} needs a configuration of vllm with cache_partitions true",
                )


def _check_grammars(scenario: Scenario, config: Mapping[str, Any]) -> None:
    """Raise InputError for grammars if the configuration has no structured outputs."""
    for index, request in enumerate(scenario.requests):
        for key in ("grammar_steps", "grammar_fails"):
            value = getattr(request, key)
            if value and not config.get("structured_outputs"):
                raise InputError(
                    f"$.requests[{index}].{key}",
                    f"{json.dumps(value)} needs a configuration of vllm with structured_outputs "
                    "true",
                )
        if request.grammar_fails and config.get("max_num_encoder_input_tokens"):
            raise InputError(
                f"$.requests[{index}].grammar_fails",
                "not modelled together with an encoder; valid: false, or no encoder_cache_size",
            )


def _check_ids(scenario: Scenario, config: Mapping[str, Any]) -> None:
    """Raise InputError for ids that are used again if the configuration does not allow it."""
    for index, request in enumerate(scenario.requests):
        if request.sent_as is not None and not config.get("reused_ids"):
            raise InputError(
                f"$.requests[{index}].sent_as",
                f"{json.dumps(request.sent_as)} needs a configuration of vllm with reused_ids true",
            )


def _check_events(scenario: Scenario, revision: str, config: Mapping[str, Any]) -> None:
    """Raise InputError for control events that are not modelled in this configuration."""
    if not scenario.events:
        return
    kinds = make_model(scenario.system, revision, config).controls
    for index, event in enumerate(scenario.events):
        if event.kind not in kinds:
            instead = "no events with a kv_connector" if scenario.system == "vllm" else "no events"
            raise InputError(
                f"$.events[{index}].kind",
                f"{json.dumps(event.kind)} is not modelled for {scenario.system} in this "
                f"configuration; valid: {instead}",
            )
