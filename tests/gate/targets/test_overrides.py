"""Overridden methods of a scheduler class: a signature that the release cannot call is found, and
one that accepts every call of the base is not."""

import functools

import pytest

from schedproof.gate.targets.overrides import overrides


class Interface:
    def update(self, decision, output):
        raise NotImplementedError


class Base(Interface):
    def schedule(self, throttle=False):
        return throttle

    def update(self, decision, output):
        return decision, output

    def finish(self, ids, *, status):
        return ids, status

    @staticmethod
    def size(blocks):
        return blocks

    @property
    def usage(self):
        return 0


def override(**methods):
    mine = type("Mine", (Base,), methods)
    return overrides(mine, Base)


def passing_on(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("schedule", lambda self, throttle=False: 0),
        ("schedule", lambda self, throttle=True, extra=None: 0),
        ("schedule", lambda self, *args, **kwargs: 0),
        ("schedule", lambda *args, **kwargs: 0),
        ("schedule", passing_on(lambda self, throttle=False: 0)),
        ("update", lambda self, decision, output, more=(): 0),
        ("finish", lambda self, ids, **kwargs: 0),
        ("finish", lambda self, ids, status=None: 0),
        ("size", staticmethod(lambda blocks: 0)),
        ("size", lambda self, blocks: 0),
        ("size", classmethod(lambda cls, blocks: 0)),
    ],
)
def test_an_override_that_accepts_every_call_of_the_base_is_no_problem(name, method):
    [found] = override(**{name: method})
    assert (found.fails, found.may_fail) == ("", "")


@pytest.mark.parametrize(
    ("name", "method", "fails"),
    [
        ("schedule", lambda self, extra, more: 0, "missing a required argument: 'extra'"),
        ("schedule", lambda self, *, extra: 0, "missing a required argument: 'extra'"),
        ("schedule", lambda: 0, "too many positional arguments"),
        ("update", lambda self, x: 0, "too many positional arguments"),
        ("finish", lambda self, ids: 0, "got an unexpected keyword argument 'status'"),
        ("size", staticmethod(lambda: 0), "too many positional arguments"),
    ],
)
def test_a_call_that_must_fail_is_named_with_its_reason(name, method, fails):
    [found] = override(**{name: method})
    assert found.fails == fails


@pytest.mark.parametrize(
    ("name", "method", "may_fail"),
    [
        ("schedule", lambda self: 0, "with every argument: too many positional arguments"),
        (
            *("schedule", lambda self, *, throttle=False: 0),
            "with every argument: too many positional arguments",
        ),
        (
            *("update", lambda self, first, second: 0),
            "by keyword: missing a required argument: 'first'",
        ),
        (
            *("schedule", lambda self, *args: 0),
            "by keyword: got an unexpected keyword argument 'throttle'",
        ),
    ],
)
def test_a_call_that_the_release_need_not_make_is_kept_apart(name, method, may_fail):
    [found] = override(**{name: method})
    assert (found.fails, found.may_fail) == ("", f"called {may_fail}")


def test_both_signatures_are_given_with_the_place_of_the_override():
    class Shared(Base):
        def update(self, x: int) -> None:
            """The nearest override counts."""

    class Mine(Shared):
        def own(self):
            """The base has no such method."""

        def __len__(self):
            return 0

        usage = None

    [found] = overrides(Mine, Base)
    assert (found.file, found.method, found.signature) == (__file__, "Shared.update", "(self, x)")
    assert found.line == Shared.update.__code__.co_firstlineno
    assert (found.base, found.expected) == ("Base.update", "(self, decision, output)")
