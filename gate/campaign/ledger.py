"""The ledger of a campaign: one SQLite file, from which it goes on after whatever ended it.

An item is written together with its result, in one transaction: so nothing is there half, and what
is not there is run again. When and where an item ran, and for how long, is beside its result, and
no part of the ledger's content.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from filelock import FileLock, Timeout

from ...spec.catalogue import CatalogueError, load, select
from ..files.scenario_file import FileError
from .items import Item, canonical, id_of, item_of
from .results import Failure, Result, result_of
from .settings import Settings
from .tables import APPLICATION, SCHEMA, SUM_AGAIN, TABLES


class Done(NamedTuple):
    """A finished item, what it took in seconds of CPU, and where it ran."""

    item: Item
    result: Result
    seconds: float
    worker: str


class LedgerError(FileError):
    """A file that is no ledger, or none that can be used; `str()` is one line."""


class Ledger:
    """An open ledger."""

    def __init__(self, path: Path, base: sqlite3.Connection) -> None:
        self.path = path
        self._base = base

    def campaigns(self) -> list[Settings]:
        """The campaigns whose items it holds; more than one where ledgers were merged."""
        rows = self._base.execute("SELECT content FROM campaigns ORDER BY content")
        return [msgspec.json.decode(content, type=Settings) for (content,) in rows]

    def begin(self, settings: Settings) -> None:
        """A campaign has its items here."""
        with self._base:
            self._base.execute("INSERT OR IGNORE INTO campaigns VALUES (?)", [_text(settings)])

    def result(self, item_id: str) -> Result | None:
        """The result of an item, None where it has none yet."""
        row = self._base.execute("SELECT content FROM results WHERE item = ?", [item_id]).fetchone()
        return None if row is None else result_of(row[0])

    def put(self, done: Sequence[Done]) -> None:
        """Write what is finished, all of it or nothing. An item that has a result keeps it."""
        items = [(id_of(one.item), _text(one.item)) for one in done]
        results = [
            (name, _text(one.result), one.seconds, one.worker)
            for (name, _), one in zip(items, done, strict=True)
        ]
        with self._base:
            self._base.executemany("INSERT OR IGNORE INTO items VALUES (?, ?)", items)
            self._base.executemany(
                "INSERT OR IGNORE INTO results (item, content, seconds, worker) "
                "VALUES (?, ?, ?, ?)",
                results,
            )

    def failures(self) -> Iterator[tuple[Item, Failure]]:
        """Every failure that an item found, with the item, in the order of the items' ids."""
        rows = self._base.execute(
            "SELECT items.content, results.content FROM results JOIN items ON id = item "
            "WHERE json_extract(results.content, '$.failures') IS NOT NULL ORDER BY item"
        )
        for item, result in rows:
            for failure in result_of(result).failures:
                yield item_of(item), failure

    def findings(self) -> dict[bytes, Failure | None]:
        """What came of replaying and shrinking failures: by question (`canonical`), the smallest
        scenario, None where it did not break again."""
        rows = self._base.execute("SELECT question, content FROM findings ORDER BY question")
        found = {
            question.encode(): content and msgspec.json.decode(content, type=Failure)
            for question, content in rows
        }
        for failure in filter(None, found.values()):
            self._check_rule(failure)
        return found

    def _check_rule(self, failure: Failure) -> None:
        """Raise LedgerError unless the rule, which names a file, is in the catalogue."""
        system = failure.scenario.system
        try:
            select(load(system), [failure.rule])
        except CatalogueError as error:
            raise LedgerError(f"{self.path}: a finding of {error}") from None

    def keep_findings(self, findings: Iterable[tuple[bytes, Failure | None]]) -> None:
        """Write findings in the place of all that are there."""
        rows = [(key.decode(), found and _text(found)) for key, found in findings]
        with self._base:
            self._base.execute("DELETE FROM findings")
            self._base.executemany("INSERT INTO findings VALUES (?, ?)", rows)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What SQL reads of the ledger."""
        return self._base.execute(query, values).fetchall()

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that follows from the seeds, in one order: two ledgers that hold the same
        are equal in this, wherever and whenever their items ran."""
        return {
            "campaigns": self.rows("SELECT content FROM campaigns ORDER BY 1"),
            "items": self.rows("SELECT id, content FROM items ORDER BY 1"),
            "results": self.rows("SELECT item, content FROM results ORDER BY 1"),
            "conflicts": self.rows("SELECT item, content FROM conflicts ORDER BY 1, 2"),
            "findings": self.rows("SELECT question, content FROM findings ORDER BY 1"),
        }

    def merge(self, other: "Ledger") -> None:
        """Take over what another ledger holds: their union, whichever comes first.

        Of an item with two results the smaller is kept, by its text, and both are conflicts.
        """
        kept, theirs = self.content(), other.content()
        own = dict(kept["results"])
        conflicts = {
            (item, text)
            for item, content in theirs["results"]
            if own.get(item, content) != content
            for text in (content, own[item])
        }
        rest = other.rows("SELECT item, content, seconds, worker, ended FROM results")
        with self._base:
            write = self._base.executemany
            write("INSERT OR IGNORE INTO campaigns VALUES (?)", theirs["campaigns"])
            write("INSERT OR IGNORE INTO items VALUES (?, ?)", theirs["items"])
            write("INSERT OR IGNORE INTO conflicts VALUES (?, ?)", theirs["conflicts"])
            write("INSERT OR IGNORE INTO conflicts VALUES (?, ?)", sorted(conflicts))
            write(
                "INSERT INTO results VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
                "SET content = excluded.content, seconds = excluded.seconds, "
                "worker = excluded.worker, ended = excluded.ended "
                "WHERE excluded.content < results.content",
                rest,
            )
            write(
                "INSERT INTO findings VALUES (?, ?) ON CONFLICT DO UPDATE "
                "SET content = excluded.content "
                "WHERE coalesce(excluded.content, '~') < coalesce(findings.content, '~')",
                theirs["findings"],
            )
            for statement in SUM_AGAIN if conflicts else ():
                self._base.execute(statement)


@contextmanager
def opened(path: Path, *, write: bool) -> Iterator[Ledger]:
    """The ledger in a file, which is made where there is none and it is to be written to.

    Raises:
        LedgerError: no ledger, one of another schema, in use, or a folder that takes no file.
    """
    if write and not path.exists():
        _make(path)
    with _connected(path, "ro") as base:  # before a lock is put beside what is no ledger
        _check(path, base)
    with (
        _held(path) if write else nullcontext(),
        _connected(path, "rw" if write else "ro") as base,
    ):
        if write:
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = NORMAL")  # with WAL a kill loses nothing written
        yield Ledger(path, base)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the lock of the ledger: no other process writes meanwhile. It is released however this
    process ends."""
    lock = FileLock(path.with_name(path.name + ".lock"), blocking=False)
    try:
        held = lock.acquire()
    except Timeout:
        raise LedgerError(f"{path}: another campaign is writing to it") from None
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written to ({error.strerror})") from None
    with held:
        yield


@contextmanager
def _connected(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    if mode == "ro" and not path.is_file():
        there = "no file" if path.exists() else "there is no such file"
        raise LedgerError(f"{path}: {there}; valid: the ledger of a campaign")
    beside = path.with_name(path.name + "-wal").exists() or os.access(path.parent, os.W_OK)
    if mode == "ro" and not beside:
        mode = "ro&immutable=1"  # SQLite would put files beside it, and cannot
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)) as base:
            yield base
    except sqlite3.Error as error:
        raise LedgerError(f"{path}: {error}") from None
    except UnicodeDecodeError:  # of SQLite's own words about what is damaged
        raise LedgerError(f"{path}: damaged, and no text where it names what is") from None


def _make(path: Path) -> None:
    """A file with all tables, or none.

    Raises:
        LedgerError: it cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(fresh)) as base:
            base.executescript(  # without WAL: what is renamed is all of it
                f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; "
                f"PRAGMA user_version = {SCHEMA}; COMMIT;"
            )
        with _held(path):
            if not path.exists():  # another campaign may have made it meanwhile: its own stays
                fresh.replace(path)
    except (OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LedgerError(f"{path}: cannot be written to ({why})") from None
    finally:
        for part in ("", "-journal"):
            with suppress(OSError):
                fresh.with_name(fresh.name + part).unlink()


def _check(path: Path, base: sqlite3.Connection) -> None:
    """Refuse what is no ledger."""
    try:
        [[application]] = base.execute("PRAGMA application_id").fetchall()
        [[schema]] = base.execute("PRAGMA user_version").fetchall()
    except sqlite3.OperationalError as error:
        raise LedgerError(f"{path}: cannot be read ({error})") from None
    except sqlite3.DatabaseError as error:
        problem = f"{path}: not a ledger ({error}); valid: a new file, or a ledger"
        raise LedgerError(problem) from None
    if application != APPLICATION:
        raise LedgerError(f"{path}: a database, but not a ledger; valid: a new file, or a ledger")
    if schema != SCHEMA:
        raise LedgerError(
            f"{path}: a ledger of schema {schema}, which another version of schedproof made; "
            f"this one reads schema {SCHEMA}; valid: a new file"
        )


def _text(value: Any) -> str:
    return canonical(value).decode()
