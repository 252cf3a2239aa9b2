"""The cause of a failure as data: sentences, and the values for a picture of it."""

import msgspec


class Part(msgspec.Struct, frozen=True):
    """Consecutive tokens of a request.

    `kind` is "computed", "cached", "never" (counted as cached, but never computed), "missed"
    (computed, but not found), "same" (equal to those of a hit, but after other tokens), "now"
    (computed in the step), "over" (beyond the limit), "pad" (left padding), "empty" (the
    end of a chunk), "limit", "tkv", "gap" (not drawn), or "rest".
    """

    kind: str
    tokens: int


class Bar(msgspec.Struct, frozen=True):
    """The tokens of a request, starting with the first; `note` says how the request ended."""

    request: str
    parts: tuple[Part, ...]
    note: str = ""


class Cell(msgspec.Struct, frozen=True):
    """Consecutive blocks of the pool, from `first` to `last`, in the same state.

    Attributes:
        state: held, shared, free, lost, twice (both free and held), unwritten (read, but never
            written), foreign (read, but with other tokens in it). A state with `perhaps` is
            uncertain, because only the number of such blocks is known.
        owners: the requests that hold the blocks, or the request that held them last.
        holds: the tokens that were written to the blocks, if that was observed.
        count: if positive, the number of blocks in this state; it is not known which they are.
    """

    first: int
    last: int
    state: str
    owners: tuple[str, ...] = ()
    holds: str = ""
    perhaps: bool = False
    count: int = 0


class Curve(msgspec.Struct, frozen=True):
    """The values of a quantity that has a limit.

    Each tuple in `points` contains a step and the value in this step. Each tuple in `projected`
    contains the first and the last step of a projection, the projected value, and the request at
    whose admission it was projected. `coming` is a value that the run has not reached yet.
    """

    name: str
    unit: str
    limit: int
    points: tuple[tuple[int, int], ...]
    projected: tuple[tuple[int, int, int, str], ...] = ()
    coming: int | None = None


class Need(msgspec.Struct, frozen=True):
    """How much of some quantity a request needs to compute its next tokens, and how much of the
    quantity the step left free."""

    what: str
    needs: int
    free: int


class Row(msgspec.Struct, frozen=True):
    """A request and its turns.

    A turn says what happened to the request in one step: the number of tokens that it got, · for
    none, or × for a preemption. It is empty if the request had not arrived yet or had already left.
    """

    request: str
    state: str
    turns: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    is_named: bool = False


class Cause(msgspec.Struct, frozen=True):
    """The first part of a failure's explanation: a headline, sentences, and the values for a
    picture.

    Attributes:
        headline: the fault in a few words and numbers.
        why: sentences; one that begins with "step N:" is about that step.
        first: the step of the first turn in every row.
        columns: what each column represents, either a "step" or a "block" of a table.
    """

    headline: str
    why: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    cells: tuple[Cell, ...] = ()
    curve: Curve | None = None
    rows: tuple[Row, ...] = ()
    first: int = 0
    columns: str = "step"
