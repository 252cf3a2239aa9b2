"""What is wrong with a ledger that cannot be read: its first row that means nothing."""

import msgspec

from ...model.errors import InputError
from ...model.scenario import check_requests
from ...model.systems import full_config, resolve_revision
from ...spec.catalogue import CatalogueError, load, select
from .items import Item, Shrinking, item_of
from .ledger import Ledger, LedgerError
from .results import Failure, Result, result_of
from .settings import Settings

UNREADABLE = (msgspec.DecodeError, CatalogueError, InputError, ValueError, TypeError)


def check(ledger: Ledger) -> None:
    """Read every row.

    Raises:
        LedgerError: the first that means nothing, with its table and number.
    """
    for table, read in (
        ("campaigns", _campaign),
        ("items", _item),
        ("results", _result),
        ("findings", _finding),
    ):
        rows = ledger.rows(f"SELECT content FROM {table} ORDER BY 1")
        for number, (content,) in enumerate(rows, 1):
            try:
                if content is not None:
                    read(content)
            except UNREADABLE as error:
                raise LedgerError(f"{ledger.path}: table {table}, row {number}: {error}") from None


def _campaign(content: bytes) -> None:
    settings = msgspec.json.decode(content, type=Settings)
    for system, revision in settings.pairs:
        resolve_revision(system, revision)
    if settings.rules:
        select([rule for system, _ in settings.pairs for rule in load(system)], settings.rules)


def _item(content: bytes) -> None:
    item: Item = item_of(content)
    if isinstance(item, Shrinking):
        _failure(item.failure)
    else:
        resolve_revision(item.system, item.revision)


def _result(content: bytes) -> None:
    read: Result = result_of(content)
    for failure in read.failures:
        _failure(failure)


def _finding(content: bytes) -> None:
    _failure(msgspec.json.decode(content, type=Failure))


def _failure(failure: Failure) -> None:
    scenario = failure.scenario
    full_config(
        scenario.system, resolve_revision(scenario.system, scenario.revision), scenario.config
    )
    check_requests(scenario.requests)
    select(load(scenario.system), [failure.rule])
