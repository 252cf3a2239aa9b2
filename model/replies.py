"""Read a target's replies, and raise a descriptive fault for a wrong one."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from .faults import AdapterFault, ConfigRefused, TargetCrashed
from .observation import FIELDS, NULLABLE, REQUIRED, Step
from .scenario import CONTROLS

DEFAULTS = "defaults"
CHOICES = "config_keys"
START_UP = "start_up"
DECLARED = "controls"
FEATURES = "features"


class StartUp(msgspec.Struct, frozen=True):
    """The target's answer to the question whether its server would start with this configuration.

    `starts` is None if the target does not know. `why` names the check that the configuration
    passed. If the check failed, or if there was none, `why` gives the reason.
    """

    starts: bool | None
    why: str

    def __str__(self) -> str:
        if self.starts is None:
            return f"not checked, {self.why}"
        return f"yes, by {self.why}" if self.starts else f"no, {self.why}"


class Started(NamedTuple):
    """A target's description of itself, in its reply to `start`.

    Attributes:
        observes: the step fields that it shows.
        defaults: the values that it uses for absent configuration keys.
        choices: the possible values of a generic scheduler's own keys.
        start_up: whether its server would start with this configuration.
        controls: the control events that it accepts.
        features: the keys of the optional features that it supports.
    """

    name: str
    version: str
    observes: frozenset[str]
    defaults: Mapping[str, Any] = {}
    choices: Mapping[str, tuple[Any, ...]] = {}
    start_up: StartUp | None = None
    controls: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()

    @property
    def shows(self) -> frozenset[str]:
        """Return everything that a rule may need: the step fields, and `DEFAULTS` if reported."""
        return self.observes | {DEFAULTS} if self.defaults else self.observes


def read_started(reply: Any) -> Started:
    """Read the reply to `start`.

    Raises:
        ConfigRefused: the target cannot run with the configuration.
        TargetCrashed, AdapterFault: as for `read_ok`.
    """
    refused = isinstance(reply, Mapping) and reply.get("ok") is False
    if refused and reply.get("error") == "config":
        raise ConfigRefused(_text(reply.get("message")))
    read_ok("start", reply)
    name, version, observes = (reply.get(key) for key in ("name", "version", "observes"))
    if not isinstance(name, str) or not isinstance(version, str):
        raise AdapterFault(
            "start", f"name {name!r} and version {version!r}; valid: two strings", ""
        )
    if not isinstance(observes, list | tuple) or not all(isinstance(f, str) for f in observes):
        raise AdapterFault(
            "start", f"observes is {_text(observes)}; valid: a list of field names", ""
        )
    defaults = reply.get(DEFAULTS, {})
    if not isinstance(defaults, Mapping):
        raise AdapterFault("start", f"defaults is {_text(defaults)}; valid: an object", "")
    shown = (frozenset(observes) & FIELDS) | REQUIRED
    choices = _choices(reply.get(CHOICES, {}))
    start_up, controls = _start_up(reply.get(START_UP)), _controls(reply.get(DECLARED, []))
    features = reply.get(FEATURES, [])
    if not isinstance(features, list | tuple) or not all(isinstance(key, str) for key in features):
        raise AdapterFault("start", f"{FEATURES} is {_text(features)}; valid: a list of keys", "")
    return Started(name, version, shown, defaults, choices, start_up, controls, frozenset(features))


def _controls(declared: Any) -> frozenset[str]:
    words = declared if isinstance(declared, list | tuple) else [None]
    if unknown := [word for word in words if word not in CONTROLS]:
        given = _text(unknown[0] if unknown[0] is not None else declared)
        why = f"{DECLARED} has {given}; valid: a list of {', '.join(CONTROLS)}"
        raise AdapterFault("start", why, "")
    return frozenset(words)


def _start_up(reply: Any) -> StartUp | None:
    if reply is None:
        return None
    try:
        return msgspec.convert(reply, StartUp)
    except msgspec.ValidationError as error:
        raise AdapterFault("start", f"{START_UP} is {_text(reply)}: {error}", "") from None


def _choices(declared: Any) -> dict[str, tuple[Any, ...]]:
    valid = "valid: an object that gives each key a list of values"
    if not isinstance(declared, Mapping):
        raise AdapterFault("start", f"{CHOICES} is {_text(declared)}; {valid}", "")
    for key, values in declared.items():
        if not isinstance(key, str) or not isinstance(values, list | tuple) or not values:
            raise AdapterFault("start", f"{CHOICES} has {key!r}: {_text(values)}; {valid}", "")
    return {key: tuple(values) for key, values in declared.items()}


def read_ok(op: str, reply: Any) -> str | None:
    """Return None if the reply is `ok`. If the target refuses the operation, which is not a fault,
    return its error.

    Raises:
        TargetCrashed: the reply says that the scheduler raised an exception.
        AdapterFault: the reply is anything else.
    """
    if not isinstance(reply, Mapping):
        raise AdapterFault(op, f"the reply is {_text(reply)}; valid: an object with ok", "")
    if reply.get("ok") is True:
        return None
    if reply.get("ok") is not False:
        raise AdapterFault(op, f"ok is {_text(reply.get('ok'))}; valid: true or false", "")
    error = reply.get("error")
    if error == "crashed":
        raise TargetCrashed(
            op, _text(reply.get("message")), _text(reply.get("traceback", ""), 10**6)
        )
    if error == "protocol":
        raise AdapterFault(op, _text(reply.get("message")), "")
    if (op, error) in (("add", "rejected"), ("abort", "unsupported")):
        return _text(reply.get("message"))
    raise AdapterFault(
        op, f"error {error!r} ({_text(reply.get('message'))}) is not valid in this reply", ""
    )


def read_control(reply: Any) -> bool:
    """Return whether the control event was carried out.

    Raises:
        TargetCrashed: the scheduler raised an exception.
        AdapterFault: the reply does not say whether the event was carried out.
    """
    read_ok("control", reply)
    done = reply.get("done")
    if not isinstance(done, bool):
        raise AdapterFault("control", f"done is {_text(done)}; valid: true or false", "")
    return done


def read_step(reply: Any, observes: frozenset[str]) -> Step:
    """Return the observation in the reply to `step`. It must contain every promised field
    (ALL-R13).

    Raises:
        TargetCrashed: the scheduler raised an exception.
        AdapterFault: a field is missing or has the wrong type, or the kind contradicts `scheduled`.
    """
    read_ok("step", reply)
    seen = reply.get("step")
    if not isinstance(seen, Mapping):
        raise AdapterFault("step", f"step is {_text(seen)}; valid: the step observation", "")
    if missing := _missing(seen, observes):
        why = "which every step has" if missing[0] in REQUIRED else "although observes lists it"
        raise AdapterFault("step", f"the step lacks the field {missing[0]}, {why}", "")
    try:
        step = msgspec.convert(seen, Step)
    except msgspec.ValidationError as error:
        raise AdapterFault("step", f"{error}", "") from None
    idle = step.kind == "idle"
    if idle != (not step.scheduled):
        raise AdapterFault(
            "step", f"kind {step.kind} with {len(step.scheduled)} requests scheduled", ""
        )
    return step


def _missing(seen: Mapping[str, Any], observes: frozenset[str]) -> list[str]:
    if observes <= seen.keys() and None not in seen.values():
        return []  # the usual case, and cheap to check
    missing = [name for name in observes - NULLABLE if seen.get(name) is None]
    return sorted(missing, key=lambda name: (name not in REQUIRED, name))


def _text(value: Any, length: int = 200) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= length else text[: length - 1] + "…"
