"""A database of Hypothesis examples that several campaigns share: a folder, or Redis.

What broke anywhere is tried first everywhere. Hypothesis tells tests apart by their code, which is
the same for every system here: the keys say which system it was.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from ...model.errors import InputError

REDIS = "redis://"


class Shelf(ExampleDatabase):
    """The part of a database that is about one kind of run."""

    def __init__(self, whole: ExampleDatabase, name: str) -> None:
        super().__init__()
        self._whole = whole
        self._name = name.encode() + b"."

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """The examples of this kind."""
        return self._whole.fetch(self._name + key)

    def save(self, key: bytes, value: bytes) -> None:
        """One more."""
        self._whole.save(self._name + key, value)

    def delete(self, key: bytes, value: bytes) -> None:
        """One that fails no more."""
        self._whole.delete(self._name + key, value)


@cache
def database_of(place: str) -> ExampleDatabase:
    """The database at a place: a folder, or `redis://HOST:PORT/DB`.

    Raises:
        InputError: the place cannot be used, or Redis is not installed.
    """
    if place.startswith(REDIS):
        return _redis(place)
    folder = Path(place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("--database", f"{place}: {error.strerror}") from None
    return DirectoryBasedExampleDatabase(folder)


def _redis(place: str) -> ExampleDatabase:
    try:
        import redis
        from hypothesis.extra.redis import RedisExampleDatabase
    except ImportError:
        problem = "redis is not installed; pip install redis"
        raise InputError("--database", problem) from None
    try:
        server = redis.Redis.from_url(place, socket_connect_timeout=5)
        server.ping()
    except (redis.RedisError, ValueError) as error:
        raise InputError("--database", f"{place}: {error}") from None
    return RedisExampleDatabase(server)
