"""Several reporters: every request hears everything, and a full disk silences only who writes to
it."""

from schedproof.gate.files.scenario_file import FileError
from schedproof.gate.judging.events import Event, Notice
from schedproof.gate.reports.fan_out import Together


def test_a_reporter_that_cannot_write_is_left_out_and_named() -> None:
    heard: list[tuple[str, Event]] = []

    def full(event: Event) -> None:
        heard.append(("full", event))
        raise FileError("report.xml: cannot be written to (No space left on device)")

    together = Together([full, lambda event: heard.append(("console", event))])
    first, second = Notice("first"), Notice("second")
    for event in (first, second):
        together(event)
    assert heard == [("full", first), ("console", first), ("console", second)]
    assert [str(error) for error in together.failed] == [
        "report.xml: cannot be written to (No space left on device)"
    ]
