"""Targets, the schedulers under test. A target is an object with the methods of `Target`, of which
`control` is optional.

Source: the target protocol. Replies are the protocol's JSON objects, as plain dicts, so that a
target in this process behaves like a target behind a pipe.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from .errors import InputError, ReleaseEnded
from .observation import rename_requests
from .scenario import OF_FEATURES, Request, check_requests
from .systems import Model, full_config, make_model, reference, with_formula

Reply = dict[str, Any]
REQUEST_KEYS = frozenset(
    {"id", "prompt", "max_tokens", "output_len", "priority", "accepted", "encoder_inputs", "stream"}
    | OF_FEATURES.keys()
)


class Target(Protocol):
    """A scheduler under test. Each method returns the protocol's reply."""

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Discard everything and start again."""

    def add(self, request: Mapping[str, Any]) -> Reply:
        """Add a request before the next step."""

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """Abort a request before the next step, or inside it."""

    def control(self, kind: str) -> Reply:
        """Reset or pause the scheduler. `kind` is one of the events that the reply to `start`
        declares."""

    def step(self) -> Reply:
        """Make one scheduling decision and complete it."""

    def stop(self) -> Reply:
        """End the run; `start` may follow."""


def model_name(system: str) -> str:
    """Return the name that a system's reference model reports, in this process or behind a pipe."""
    return f"schedproof model of {system}"


class ModelTarget:
    """A reference model as a target.

    `formula` names a formula of the system that replaces the revision's own. The target then
    reports the formula's name as its version.
    """

    def __init__(self, formula: str | None = None) -> None:
        self._formula = formula
        self._model: Model | None = None
        self._state: Any = None
        self._before: Any = None
        self._known: set[str] = set()
        self._names: dict[str, str] = {}  # for each reused id, the request's name in the model
        self._abort_inside: tuple[str, ...] = ()

    def start(self, system: str, revision: str, config: Mapping[str, Any]) -> Reply:
        """Start again. Refuse a configuration for which there is no model, with the error
        `config`."""
        try:
            model = make_model(system, revision, config)
            if self._formula is not None:
                model = with_formula(system, model, self._formula)
        except InputError as error:
            return {"ok": False, "error": "config", "message": str(error)}
        except (TypeError, ValueError):
            message = f"$.config: {config!r:.60} is not an object"
            return {"ok": False, "error": "config", "message": message}
        self._model = model
        self._state = model.initial()
        self._known, self._names = set(), {}
        self._abort_inside = ()
        controls = {"controls": [*model.controls]} if model.controls else {}
        features = {"features": [*known]} if (known := reference(system).features) else {}
        return {
            "ok": True,
            "name": model_name(system),
            "version": self._formula or revision,
            "observes": list(model.observes),
            "defaults": full_config(system, revision, {}),
            **controls,
            **features,
        }

    def add(self, request: Mapping[str, Any]) -> Reply:
        """Queue a request. Reject an invalid request, and one that can never run, with the error
        `rejected` (ALL-R12)."""
        model = self._model
        if model is None:
            return _not_started("add")
        unknown = sorted(set(request) - REQUEST_KEYS)
        if unknown:
            message = f"unknown key {unknown[0]!r}; valid: {', '.join(sorted(REQUEST_KEYS))}"
            return {"ok": False, "error": "rejected", "message": message}
        sent = dict(request)
        name = sent.pop("stream", None)
        try:
            read = msgspec.convert({"arrival": 0, **sent, "id": name or sent["id"]}, Request)
            check_requests((read,))
        except (msgspec.ValidationError, InputError) as error:
            return {"ok": False, "error": "rejected", "message": str(error)}
        if read.id in self._known:
            message = f"{read.id!r} is already the id of a request"
            return {"ok": False, "error": "rejected", "message": message}
        refusal = model.refusal(read)
        if refusal is not None:
            return {"ok": False, "error": "rejected", "message": refusal}
        self._known.add(read.id)
        if name is not None:
            self._names[sent["id"]] = name
        self._state = model.arrive(self._state, read)
        return {"ok": True}

    def abort(self, id: str, inside: bool = False) -> Reply:  # noqa: A002
        """Abort a request now, or inside the next step. An unknown id has no effect."""
        model = self._model
        if model is None:
            return _not_started("abort")
        id = self._names.get(id, id)  # noqa: A001
        if inside:
            self._abort_inside += (id,)
        else:
            self._state = model.abort(self._state, id)
        return {"ok": True}

    def control(self, kind: str) -> Reply:
        """Perform a control event before the next step. `done` in the reply says whether it was
        possible."""
        model = self._model
        if model is None:
            return _not_started("control")
        if kind not in model.controls:
            valid = ", ".join(model.controls) or "none"
            return {"ok": False, "error": "unsupported", "message": f"{kind!r}; valid: {valid}"}
        self._state, done = model.control(self._state, kind)
        return {"ok": True, "done": done}

    def step(self) -> Reply:
        """Take one step of the model. Report a crash if the modelled release would crash
        (ALL-R01)."""
        model = self._model
        if model is None:
            return _not_started("step")
        self._before = self._state
        try:
            self._state, seen = model.step(self._state, self._abort_inside)
        except ReleaseEnded as end:
            return {"ok": False, "error": "crashed", "message": str(end)}
        self._abort_inside = ()
        if self._names:
            seen = rename_requests(seen, {name: sent for sent, name in self._names.items()})
        return {"ok": True, "step": seen}

    @property
    def at_rest(self) -> bool:
        """Return whether all further steps will be identical until a request arrives."""
        return self._before is not None and bool(self._before == self._state)

    def stop(self) -> Reply:
        self._model = None
        return {"ok": True}


def _not_started(op: str) -> Reply:
    return {"ok": False, "error": "protocol", "message": f"{op} before start; valid: start"}
