"""A formula of your own: a function in a Python file, named `FILE.py:FUNCTION`.

    def volume(request, tkv, prompt, block_size):
        base = max(tkv, prompt)
        return -(-(base + request.remaining) // block_size) * block_size

When a newcomer asks to join, the function is called once for the newcomer and once for each
decoding request. It returns the largest tkv, in tokens, that this request can still reach. It may
take any of these arguments, by name:

- `request`: the request to project (`OwnRequest`);
- `tkv`: the batch's tkv that admission uses;
- `prompt`: the number of tokens in the newcomer's prompt;
- `block_size`: the number of tokens in a block.

schedproof executes the file. The function's result must depend only on its arguments, because
proofs and searches call it with symbolic values instead of numbers, and follow every branch.
"""

import inspect
import re
import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..own_code import call_limited, describe_exception

ARGUMENTS = ("request", "tkv", "prompt", "block_size")
VALID = f"valid: FILE.py:FUNCTION, a function of {', '.join(ARGUMENTS)} or some of these"
NAME = re.compile(r"(?P<file>.+\.py):(?P<function>[^:+]*)(?P<slack>\+.*)?")


class OwnRequest(NamedTuple):
    """A request as a user's formula receives it.

    Attributes:
        prompt: the number of tokens in its prompt.
        computed: the number of its tokens that are computed when the newcomer joins; for the
            newcomer, the length of its prompt.
        remaining: the largest number of decode steps that it can still take.
        tkv: its own tkv in the batch before the newcomer joins; for the newcomer, the length of its
            prompt.
        joins: whether it is the newcomer.
    """

    prompt: Any
    computed: Any
    remaining: Any
    tkv: Any
    joins: bool


# (request, tkv, prompt, block size) -> largest tkv that the request can reach
Term = Callable[[OwnRequest, Any, Any, Any], Any]
# Trial calls, which reveal early whether the function can handle its arguments.
TRIALS = [
    (OwnRequest(computed, computed, remaining, computed, joins), tkv, prompt, 64)
    for computed, remaining, tkv, prompt, joins in (
        (1, 0, 1, 1, True),
        (130, 7, 64, 130, True),
        (70, 500, 70, 1, False),
        (70, 1, 200, 600, False),
    )
]


def is_own(name: str) -> bool:
    """Return whether the name has the form of a user's formula, with or without `+TOKENS`."""
    return NAME.fullmatch(name) is not None


@cache
def read_term(name: str) -> Term:
    """Return the function that `FILE.py:FUNCTION` names, after a trial call.

    Raise InputError if the file cannot be run or has no such function, or if the function is not a
    valid formula.
    """
    match = NAME.fullmatch(name)
    assert match is not None, name
    path, word = Path(match["file"]), match["function"]
    if not path.is_file():
        raise InputError("formula", f"{path}: no such file; {VALID}")
    try:
        names = call_limited(runpy.run_path, str(path))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it is the user's code
        raise InputError("formula", f"{path}: {_words(path, error)}") from None
    function = names.get(word)
    if not inspect.isfunction(function):
        functions = [key for key, what in names.items() if inspect.isfunction(what)]
        has = f"it has {', '.join(functions)}" if functions else "it has none"
        raise InputError("formula", f"{path}: no function {word!r}, {has}; {VALID}")
    term = _checked(path, word, function)
    for trial in TRIALS:
        term(*trial)
    _READ.add(name)
    return term


_READ: set[str] = set()


def is_read(name: str) -> bool:
    """Return whether the user has named this formula. A file must not be executed merely because a
    target reports its name."""
    match = NAME.fullmatch(name)
    return match is not None and f"{match['file']}:{match['function']}" in _READ


def _checked(path: Path, word: str, function: Callable[..., Any]) -> Term:
    if inspect.iscoroutinefunction(function):
        raise InputError("formula", f"{path}: {word} is a coroutine; {VALID}")
    taken = inspect.signature(function).parameters.values()
    unknown = [
        parameter
        for parameter in taken
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)
        or (
            parameter.name not in ARGUMENTS
            and parameter.default is parameter.empty
            and parameter.kind != parameter.VAR_KEYWORD
        )
    ]
    if unknown:
        name, kind = unknown[0].name, unknown[0].kind
        how = " only by position" if name in ARGUMENTS and kind == kind.POSITIONAL_ONLY else ""
        raise InputError("formula", f"{path}: {word} takes {name!r}{how}; {VALID}")
    wanted = {parameter.name for parameter in taken}
    everything = any(parameter.kind == parameter.VAR_KEYWORD for parameter in taken)

    def term(*values: Any) -> Any:
        given = dict(zip(ARGUMENTS, values, strict=True))
        kind = type(given["tkv"])  # an int, or a symbolic value in place of one
        try:
            tokens = call_limited(
                function,
                **{name: value for name, value in given.items() if everything or name in wanted},
            )
        except (InputError, KeyboardInterrupt):
            raise
        except BaseException as error:  # it is the user's code
            what = f"{path}: {word} raised {_words(path, error)}"
            if kind is int:
                of = ", ".join(f"{name}={value}" for name, value in given.items())
                raise InputError("formula", f"{what}, for {of}") from None
            raise InputError("formula", f"{what}; {ON_SYMBOLS}") from None
        if isinstance(tokens, bool) or not isinstance(tokens, int | kind):
            raise InputError(
                "formula", f"{path}: {word} returns {tokens!r:.60}; valid: a whole number of tokens"
            )
        return tokens

    return term


ON_SYMBOLS = (
    "Z3 runs it on symbols, which support + - * // %, comparisons, divmod, max, min, abs, "
    "math.ceil and if; valid: these, or --engine hypothesis or explore"
)


def _words(path: Path, error: BaseException) -> str:
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return describe_exception(error) + (f", line {line}" if line else "")
