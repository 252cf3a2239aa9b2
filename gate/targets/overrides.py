"""Compare the methods that a scheduler class overrides with those of the release's class.

Standard library only: this file runs inside the environment of a release under test.
"""

import inspect
from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Any, NamedTuple

OTHER = ("called with every argument", "called by keyword")  # the optional calls
BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Override(NamedTuple):
    """A method of the release's class that the user's class overrides.

    Attributes:
        file, line: where the override is defined.
        method, signature: the override's qualified name, and its signature without annotations.
        base, expected: the same for the method of the release.
        fails: why the override rejects a call with only the arguments that the release's method
            requires, or "".
        may_fail: another call that the release's method accepts and the override rejects, with the
            reason; or "".
    """

    file: str
    line: int
    method: str
    signature: str
    base: str
    expected: str
    fails: str
    may_fail: str


def overrides(cls: type, own: type) -> list[Override]:
    """Return the methods of `own` that `cls` or a class between the two overrides. Special methods
    are left out: if `__init__` does not fit, the scheduler does not start, and the error says why.
    """
    mine = cls.__mro__[: cls.__mro__.index(own)]
    names = dict.fromkeys(name for part in mine for name in vars(part))
    found = [_override(name, mine, own.__mro__[:-1]) for name in names if name[:2] != "__"]
    return [override for override in found if override is not None]


def _override(name: str, mine: tuple[type, ...], theirs: tuple[type, ...]) -> Override | None:
    definer = next(part for part in mine if name in vars(part))
    base = next((part for part in theirs if name in vars(part)), None)
    if base is None:
        return None
    method, replaced = vars(definer)[name], vars(base)[name]
    function, expected = _function(method), _function(replaced)
    if function is None or expected is None:
        return None
    found = inspect.signature(function)
    calls = _calls(inspect.signature(expected), isinstance(replaced, staticmethod))
    bound = () if isinstance(method, staticmethod) else (None,)
    problems = [_refusal(found, (*bound, *args), kwargs) for args, kwargs in calls]
    code = inspect.unwrap(function).__code__
    return Override(
        code.co_filename,
        code.co_firstlineno,
        f"{definer.__name__}.{name}",
        _without_annotations(found),
        f"{base.__name__}.{name}",
        _without_annotations(inspect.signature(expected)),
        problems[0],
        next((f"{how}: {why}" for how, why in zip(OTHER, problems[1:], strict=True) if why), ""),
    )


def _function(value: Any) -> Any:
    """Return the function of a class attribute, or None if the attribute is not a method."""
    value = getattr(value, "__func__", value)
    return value if inspect.isfunction(value) else None


def _calls(expected: Signature, static: bool) -> Iterator[tuple[list[None], dict[str, None]]]:
    """Yield calls that a method with this signature accepts: one with only the required arguments,
    then some with all arguments, by position and by keyword."""
    parts = [*expected.parameters.values()][not static :]
    by_position = [part for part in parts if part.kind in BY_POSITION]
    by_keyword = [part for part in parts if part.kind is Parameter.KEYWORD_ONLY]
    required = [part for part in by_position if part.default is Parameter.empty]
    switches = {part.name: None for part in by_keyword}
    yield (
        [None] * len(required),
        {part.name: None for part in by_keyword if part.default is Parameter.empty},
    )
    yield [None] * len(by_position), switches
    named = [part for part in by_position if part.kind is not Parameter.POSITIONAL_ONLY]
    rest = len(by_position) - len(named)
    yield [None] * rest, {part.name: None for part in named} | switches


def _refusal(found: Signature, args: tuple[None, ...], kwargs: dict[str, None]) -> str:
    try:
        found.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _without_annotations(signature: Signature) -> str:
    plain = [part.replace(annotation=Parameter.empty) for part in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=Signature.empty))
