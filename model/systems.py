"""The systems that have a model, by the name that scenarios use."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from .errors import InputError
from .llmservingsim.config import REVISIONS as LLMSERVINGSIM_REVISIONS
from .llmservingsim.config import read_config as read_llmservingsim_config
from .llmservingsim.model import make_model as make_llmservingsim_model
from .nano_vllm.config import REVISIONS as NANO_REVISIONS
from .nano_vllm.config import read_config as read_nano_config
from .nano_vllm.model import make_model as make_nano_model
from .scenario import Request
from .spyre.config import REVISIONS as SPYRE_REVISIONS
from .spyre.config import read_config as read_spyre_config
from .spyre.model import make_model as make_spyre_model
from .vllm.config import REVISIONS as VLLM_REVISIONS
from .vllm.config import read_config as read_vllm_config
from .vllm.model import make_model as make_vllm_model


class Model(Protocol):
    """One configuration of one revision of a system. Every method is pure: its states, which
    nobody else looks into, go in and come out."""

    @property
    def observes(self) -> tuple[str, ...]:
        """Fields of the step observation that the model shows."""

    def initial(self) -> Any:
        """The scheduler before anything arrived."""

    def refusal(self, request: Request) -> str | None:
        """Why the request can never run, or None."""

    def arrive(self, state: Any, request: Request) -> Any:
        """The request joins the waiting queue."""

    def abort(self, state: Any, request_id: str) -> Any:
        """The client gives the request up before the next decision."""

    def step(self, state: Any, abort_inside: tuple[str, ...] = ()) -> tuple[Any, dict[str, Any]]:
        """One decision and its completion: the next state and the step observation."""


REVISIONS = {
    "spyre": SPYRE_REVISIONS,
    "vllm": VLLM_REVISIONS,
    "nano_vllm": NANO_REVISIONS,
    "llmservingsim": LLMSERVINGSIM_REVISIONS,
}
READ_CONFIG: dict[str, Callable[[Mapping[str, Any], str], msgspec.Struct]] = {
    "spyre": read_spyre_config,
    "vllm": read_vllm_config,
    "nano_vllm": read_nano_config,
    "llmservingsim": read_llmservingsim_config,
}
MAKE_MODEL: dict[str, Callable[[str, Mapping[str, Any]], Model]] = {
    "spyre": make_spyre_model,
    "vllm": make_vllm_model,
    "nano_vllm": make_nano_model,
    "llmservingsim": make_llmservingsim_model,
}


def check_system(system: str) -> None:
    """Raise InputError unless `system` is known."""
    if system not in REVISIONS:
        raise InputError(
            "$.system", f"{system!r:.60} is not a system; valid: {', '.join(REVISIONS)}"
        )


def resolve_revision(system: str, revision: str | None) -> str:
    """The revision meant: the system's first where none is given.

    Raises:
        InputError: an unknown system or revision.
    """
    check_system(system)
    if revision is None:
        return REVISIONS[system][0]
    if revision not in REVISIONS[system]:
        valid = ", ".join(REVISIONS[system])
        problem = f"{revision!r:.60} is not a revision of {system}; valid: {valid}"
        raise InputError("$.revision", problem)
    return revision


def full_config(system: str, revision: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Every key of the system's configuration, those left out at their defaults.

    Raises:
        InputError: an unknown system, revision or key, or an impossible value.
    """
    resolve_revision(system, revision)
    read: dict[str, Any] = msgspec.to_builtins(READ_CONFIG[system](values, revision))
    return read


def make_model(system: str, revision: str, config: Mapping[str, Any]) -> Model:
    """The reference model of a system's revision.

    Raises:
        InputError: an unknown system, revision or key, an impossible value, or no such model.
    """
    resolve_revision(system, revision)
    return MAKE_MODEL[system](revision, config)
