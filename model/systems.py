"""The reference models of the registered systems, by the names that scenarios use."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from ..spec.systems import SYSTEMS, part
from .errors import InputError
from .pool import Pool, blocks_for
from .scenario import Request, Scenario

State = TypeVar("State")
# 128 requests of 131,072 tokens in blocks of 16; with this many blocks, the model and the rules
# need 2 GB.
MOST_BLOCKS = 2**20


@dataclass(frozen=True)
class ReferenceModel(Generic[State]):
    """One configuration of one revision. Every method is pure: it takes and returns states.

    Attributes:
        config: the configuration of its system.
        fields: the fields of the step observation that every configuration shows.
        state: the class of the scheduler's state between two steps.
    """

    config: Any
    fields: ClassVar[tuple[str, ...]]
    state: ClassVar[Any]

    def options(self) -> dict[str, bool]:
        """Map each optional field of the step to whether this configuration shows it."""
        return {}

    @property
    def observes(self) -> tuple[str, ...]:
        return self.fields + tuple(field for field, shown in self.options().items() if shown)

    @property
    def controls(self) -> tuple[str, ...]:
        return ()

    def control(self, state: State, kind: str) -> tuple[State, bool]:
        raise NotImplementedError(kind)

    def initial(self) -> State:
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
        """Return why the request can never run, or None if it can (ALL-R12)."""

    def arrive(self, state: Any, request: Request) -> Any:
        """Put the request into the waiting queue."""

    def abort(self, state: Any, request_id: str) -> Any:
        """Abort the request before the next decision."""

    def control(self, state: Any, kind: str) -> tuple[Any, bool]:
        """Perform a control event before the next decision. Return whether it was carried out."""

    def step(self, state: Any, abort_inside: tuple[str, ...] = ()) -> tuple[Any, dict[str, Any]]:
        """Make one decision and complete it. Return the next state, and the step in the target
        protocol's form (ALL-R07).

        The requests in `abort_inside` are aborted between the decision and its completion, so their
        tokens are not emitted.
        """


def blocks_of_tokens(request: Request, config: Mapping[str, Any]) -> int:
    """Return the number of blocks for the prompt and all generated tokens of a request."""
    return blocks_for(request.prompt_len + request.max_tokens, config["block_size"])


class Reference(NamedTuple):
    """A system's reference models.

    Attributes:
        read_config: reads a configuration for a revision; missing keys have defaults. Raises
            InputError for an unknown key, a wrong type, or values that do not fit together.
        make_model: builds a revision's model. Raises InputError as `read_config` does.
        with_formula: returns a model that uses the named formula, or None for an unknown name. The
            attribute is None for systems without named formulas.
        formulas: the names of the formulas, and the form of a user's own.
        unsupported: yields each field of a request that this configuration does not support, with
            the problem. The request may be from any system.
        valid_events: says in which configurations the system has control events.
        most_blocks: returns the largest number of blocks that a request can hold at once if it runs
            to its end.
        features: the keys of optional features. A gate uses only those that the target declares.
    """

    read_config: Callable[[Mapping[str, Any], str], msgspec.Struct]
    make_model: Callable[[str, Mapping[str, Any]], Model]
    with_formula: Callable[[Any, str], Model | None] | None = None
    formulas: tuple[str, ...] = ()
    unsupported: Callable[[Request, Mapping[str, Any]], Iterator[tuple[str, str]]] | None = None
    valid_events: str = "no events"
    most_blocks: Callable[[Request, Mapping[str, Any]], int] = blocks_of_tokens
    features: tuple[str, ...] = ()


def reference(system: str) -> Reference:
    model: Reference = part(system, "model")
    return model


def revisions_of(system: str) -> tuple[str, ...]:
    """Return the revisions of a registered system, the default first."""
    return SYSTEMS[system].revisions


def check_system(system: str) -> None:
    if system not in SYSTEMS:
        raise InputError("$.system", f"{system!r:.60} is not a system; valid: {', '.join(SYSTEMS)}")


def resolve_revision(system: str, revision: str | None) -> str:
    """Return `revision`, or the system's first one if none is given.

    Raise InputError for an unknown system or revision.
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

    Raise InputError for an unknown system, revision or key, or an impossible value.
    """
    resolve_revision(system, revision)
    read: dict[str, Any] = msgspec.to_builtins(reference(system).read_config(values, revision))
    return read


def config_keys(system: str, revision: str) -> tuple[str, ...]:
    """Return every key of the system's configuration, including those that are absent by default.

    Raise InputError for an unknown system or revision.
    """
    resolve_revision(system, revision)
    return reference(system).read_config({}, revision).__struct_fields__


def make_model(system: str, revision: str, config: Mapping[str, Any]) -> Model:
    """Return the reference model of a system's revision.

    Raise InputError for an unknown system, revision or key, for an impossible value, and for a
    revision without a model.
    """
    resolve_revision(system, revision)
    return reference(system).make_model(revision, config)


def with_formula(system: str, model: Model, formula: str) -> Model:
    """Return the system's model with a named formula instead of its revision's own.

    Raise InputError if the system has no formula of this name.
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


def check_size(
    system: str, revision: str, config: Mapping[str, Any], requests: Sequence[Request]
) -> None:
    """Check that a run uses at most `MOST_BLOCKS` blocks at once. Models and rules need a few
    kilobytes for each block.

    Raise InputError if one request, or those that may run together, would use more blocks.
    """
    if "block_size" not in config:
        return
    most_blocks = reference(system).most_blocks
    held = {index: most_blocks(request, config) for index, request in enumerate(requests)}
    pool = config.get("num_blocks") or sum(held.values())
    if min(pool, sum(held.values())) <= MOST_BLOCKS:
        return
    model = make_model(system, revision, config)
    fit = [index for index in held if model.refusal(requests[index]) is None]
    together = nlargest(config.get("max_num_seqs") or len(fit), fit, key=lambda index: held[index])
    blocks = min(pool, sum(held[index] for index in together))
    if blocks > MOST_BLOCKS:
        largest = requests[together[0]]
        raise InputError(
            f"$.requests[{together[0]}]",
            f"{largest.prompt_len + largest.max_tokens:,} tokens: the requests that may run "
            f"together ({len(together):,}) hold {blocks:,} blocks; valid: at most "
            f"{MOST_BLOCKS:,} (you can set $.config.num_blocks)",
        )


def check_features(scenario: Scenario, revision: str, config: Mapping[str, Any]) -> None:
    """Check that a configuration supports what a scenario's requests and events need.

    Raise InputError if a field of a request, or a control event, is not modelled in this
    configuration.
    """
    checks = [check for system in SYSTEMS if (check := reference(system).unsupported)]
    for index, request in enumerate(scenario.requests):
        for check in checks:
            for field, problem in check(request, config):
                raise InputError(f"$.requests[{index}].{field}", problem)
    if not scenario.events:
        return
    kinds = make_model(scenario.system, revision, config).controls
    for index, event in enumerate(scenario.events):
        if event.kind not in kinds:
            raise InputError(
                f"$.events[{index}].kind",
                f"{json.dumps(event.kind)} is not modelled for {scenario.system} in this "
                f"configuration; valid: {reference(scenario.system).valid_events}",
            )
