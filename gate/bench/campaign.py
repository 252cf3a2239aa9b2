"""A campaign with one worker and with two: items a second."""

from collections.abc import Iterator

from .figure import NotMeasured, Plan, Row


def rows(quick: bool) -> Iterator[Row]:
    """None yet.

    Raises:
        NotMeasured: there are no campaigns.
    """
    raise NotMeasured("this version has no campaigns", excused=True)


PLAN = Plan(
    "campaign",
    "A campaign by its workers",
    "the same items with one worker and with two, by the clock",
    rows,
)
