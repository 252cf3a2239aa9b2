"""What the reference models of all systems have in common: the mechanism, never a decision."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from .pool import Pool

State = TypeVar("State")


@dataclass(frozen=True)
class ReferenceModel(Generic[State]):
    """One configuration of one revision. Every method is pure: states go in and come out.

    Attributes:
        config: the configuration of its system.
        fields: fields of the step observation that every configuration shows.
        state: the record of what the scheduler remembers between two steps.
    """

    config: Any
    fields: ClassVar[tuple[str, ...]]
    state: ClassVar[Any]

    def options(self) -> dict[str, bool]:
        """Further fields of the step observation, and whether this configuration shows them."""
        return {}

    @property
    def observes(self) -> tuple[str, ...]:
        """Fields of the step observation that this model shows."""
        return self.fields + tuple(field for field, shown in self.options().items() if shown)

    def initial(self) -> State:
        """The scheduler before anything arrived."""
        made: State = self.state(pool=Pool(self.config.num_blocks))
        return made
