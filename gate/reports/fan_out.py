"""Several reporters as one: a file that cannot be written stops its own report, and no other."""

from collections.abc import Sequence

from ..files.scenario_file import FileError
from ..judging.events import Event, Report


class Together:
    """Passes every event to every reporter, in their order.

    Attributes:
        failed: what became of the reporters that could not write, an error each.
    """

    def __init__(self, reporters: Sequence[Report]) -> None:
        self._reporters = list(reporters)
        self.failed: list[FileError] = []

    def __call__(self, event: Event) -> None:
        """Pass one event on."""
        for reporter in tuple(self._reporters):
            try:
                reporter(event)
            except FileError as error:
                self._reporters.remove(reporter)
                self.failed.append(error)
