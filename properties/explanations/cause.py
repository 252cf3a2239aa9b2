"""The cause of a failure as data: sentences, and what a picture of it needs."""

import msgspec


class Part(msgspec.Struct, frozen=True):
    """Tokens in a row of a request. `kind`: computed, cached, never (counted as cached, but never
    computed), missed (computed, but not found), now (computed in the step), rest."""

    kind: str
    tokens: int


class Bar(msgspec.Struct, frozen=True):
    """The tokens of a request, from its first one; `note` says what became of it."""

    request: str
    parts: tuple[Part, ...]
    note: str = ""


class Cell(msgspec.Struct, frozen=True):
    """Blocks `first` to `last` of the pool, which are alike.

    Attributes:
        state: held, shared, free, lost, twice (free, and held), unwritten (read, but never
            written), foreign (read, and holds other tokens); with `perhaps`, one of several
            blocks of which only the number is known.
        owners: who holds it, or held it last.
        holds: the tokens that were written to it, where that was seen.
    """

    first: int
    last: int
    state: str
    owners: tuple[str, ...] = ()
    holds: str = ""
    perhaps: bool = False


class Curve(msgspec.Struct, frozen=True):
    """What has a limit, by step. `projected`: from step, to step, value, and the request whose
    admission projected it; `coming`: a value that is still to be reached."""

    name: str
    unit: str
    limit: int
    points: tuple[tuple[int, int], ...]
    projected: tuple[tuple[int, int, int, str], ...] = ()
    coming: int | None = None


class Need(msgspec.Struct, frozen=True):
    """What a request needs for its next turn, and what the step left."""

    what: str
    needs: int
    free: int


class Row(msgspec.Struct, frozen=True):
    """A request with its turns: the tokens of each step, × where it was preempted, · where it got
    nothing, and nothing where it was not there."""

    request: str
    state: str
    turns: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    is_named: bool = False


class Cause(msgspec.Struct, frozen=True):
    """What is drawn first of a failure.

    Attributes:
        headline: the fault in a few words and numbers.
        why: sentences; one that begins with "step N:" speaks of that step.
        first: the step of the first turn of each row.
    """

    headline: str
    why: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    cells: tuple[Cell, ...] = ()
    curve: Curve | None = None
    rows: tuple[Row, ...] = ()
    first: int = 0
