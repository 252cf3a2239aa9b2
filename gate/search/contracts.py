"""`schedproof check contracts`: check the contracts of the models' arithmetic with CrossHair.

CrossHair runs a contract with symbolic arguments, path by path, and asks Z3 at every branch.
"Confirmed" means that every path ran to its end, which proves the contract for all allowed
arguments. Only models are checked in this way, never a target. A counterexample counts only if the
contract also fails on it with plain numbers, in a separate process without CrossHair.
"""

import ast
import inspect
import re
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from ...model.errors import InputError
from ...solver.systems import MAX_MEMBERS, Contract, contracts
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..console.option_checks import check_choice
from ..judging.profiles import set_hypothesis_home
from ..processes.work_process import Unanswered, run_in_process

# For each profile, how many examples Hypothesis tries per contract, with its crosshair backend.
PROFILES = {"ci": 0, "nightly": 50}
START_UP = 20.0  # seconds that a new process may take to import CrossHair on a busy machine


class Claim(NamedTuple):
    """An engine's answer about a contract. If `holds` is set, the engine explored every path and
    found no counterexample. Otherwise, `why` is the counterexample, or the reason why there is no
    answer."""

    holds: bool
    why: str = ""
    arguments: dict[str, Any] | None = None


class Answer(NamedTuple):
    """The answer for a contract: "holds", or "refuted" or "inconclusive" with a reason."""

    status: str
    why: str


Engine = Callable[[str, float], Iterator[Claim]]


def run_contracts(console: Console, only: list[str], profile: str, time_limit: float) -> int:
    """Check the contracts, print a line for each, and return the exit code."""
    chosen = _chosen(only)
    check_choice("--profile", profile, PROFILES)
    _require("crosshair", "CrossHair", "crosshair-tool hypothesis-crosshair")
    if PROFILES[profile]:
        _require(
            "hypothesis_crosshair_provider",
            "its Hypothesis backend",
            "crosshair-tool hypothesis-crosshair",
        )
    output.say(console, f"{len(chosen)} contracts, by CrossHair, {time_limit:g} s each")
    with output.busy(console, "asking"):
        statuses = _ask_all(console, chosen, by_crosshair, time_limit, "confirmed")
    if PROFILES[profile]:
        output.say(console, f"Hypothesis, backend crosshair, {PROFILES[profile]} examples each")
        statuses += _ask_all(console, chosen, by_hypothesis, time_limit, "held")
    for status, hint, code in (
        ("refuted", "", BROKEN),
        ("inconclusive", ", none refuted; a longer --time-limit may decide", INCONCLUSIVE),
    ):
        if status in statuses:
            output.say(
                console, f"{status}: {statuses.count(status)} of {len(statuses)} answers{hint}"
            )
            return code
    output.say(console, f"confirmed: {len(chosen)} contracts")
    return CONFORMS


def by_crosshair(name: str, seconds: float) -> Iterator[Claim]:
    from crosshair.core_and_libs import MessageType, analyze_function, run_checkables
    from crosshair.options import AnalysisOptionSet
    from crosshair.register_contract import REGISTERED_CONTRACTS, register_contract

    contract = contracts()[name]

    def allowed(**arguments: Any) -> bool:
        return contract.applies(**arguments)

    def true(__return__: bool) -> bool:
        return __return__

    # CrossHair passes the arguments that the precondition's signature names.
    allowed.__signature__ = inspect.signature(contract.holds)  # type: ignore[attr-defined]
    REGISTERED_CONTRACTS.pop(contract.holds, None)  # it may be registered for other sizes
    register_contract(contract.holds, pre=allowed, post=true, skip_body=False)
    # Check only registered contracts, because CrossHair would take docstrings for contracts.
    options = AnalysisOptionSet(analysis_kind=[], per_condition_timeout=seconds)
    messages = run_checkables(analyze_function(contract.holds, options))
    other = [message for message in messages if message.state is not MessageType.CONFIRMED]
    if other:
        why = f"CrossHair: {other[0].message}"
        yield Claim(False, why, called_with(contract, other[0].message))
    else:
        yield Claim(bool(messages), "CrossHair analysed nothing")


def by_hypothesis(name: str, seconds: float) -> Iterator[Claim]:
    """Check a contract with Hypothesis, on CrossHair's examples, and yield the claim."""
    contract = contracts()[name]
    tried: dict[str, Any] = {}
    set_hypothesis_home()

    @settings(
        backend="crosshair",
        max_examples=PROFILES["nightly"],
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.fixed_dictionaries(_strategies(contract)))
    def holds(arguments: dict[str, Any]) -> None:
        assume(contract.applies(**arguments))
        tried.update(arguments)
        if not contract.holds(**arguments):  # no `assert`, which `python -O` leaves out
            raise AssertionError("it does not hold")

    try:
        holds()
    except Exception as error:
        # Hypothesis repeats a failure with plain numbers, so the last arguments are plain.
        yield Claim(False, f"Hypothesis: {type(error).__name__}: {error}", tried or None)
    else:
        yield Claim(bool(tried), "Hypothesis tried nothing")


def called_with(contract: Contract, message: str) -> dict[str, Any] | None:
    """Return the arguments in CrossHair's message "... when calling NAME(1, [2]) ...", or None."""
    called = re.search(rf"when calling ({contract.holds.__name__}\(.*?\))(?: \(which |$)", message)
    try:
        call: Any = ast.parse(called[1] if called else "", mode="eval").body
        values = [ast.literal_eval(value) for value in call.args]
        named = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
        return dict(inspect.signature(contract.holds).bind(*values, **named).arguments)
    except (SyntaxError, TypeError, ValueError):
        return None


def confirm_claim(contract: Contract, claim: Claim) -> Answer:
    """Turn an engine's claim about a contract into an answer. A counterexample refutes the contract
    only if the contract also fails on it with plain numbers."""
    if claim.holds:
        return Answer("holds", "")
    if claim.arguments is None or not _allowed(contract, claim.arguments):
        return Answer("inconclusive", claim.why)
    shown = ", ".join(f"{name} {claim.arguments[name]}" for name in contract.arguments())
    try:
        if contract.holds(**claim.arguments):
            return Answer("inconclusive", f"it holds with plain numbers; {claim.why}")
    except Exception as error:
        return Answer("refuted", f"{contract.about}, {shown}: {type(error).__name__}: {error}")
    return Answer("refuted", f"{contract.about}, {shown}")


def _allowed(contract: Contract, arguments: dict[str, Any]) -> bool:
    numbers = [
        number
        for value in arguments.values()
        for number in (value if type(value) is list else [value])
    ]
    return all(type(number) is int for number in numbers) and contract.applies(**arguments)


def _ask_all(
    console: Console, chosen: list[Contract], engine: Engine, time_limit: float, holds: str
) -> list[str]:
    statuses = []
    for contract in chosen:
        began = time.monotonic()
        try:
            # The engine's own limit counts CPU time, and the engine may exceed it. So kill the
            # engine after twice as much wall-clock time.
            [claim] = run_in_process(2 * time_limit + START_UP, engine, contract.name, time_limit)
            answer = confirm_claim(contract, claim)
        except Unanswered as why:
            answer = Answer("inconclusive", str(why))
        spent = time.monotonic() - began
        status = holds if answer.status == "holds" else answer.status
        output.say(console, f"{status:12} {contract.name:28} {spent:5.1f} s  {contract.statement}")
        if answer.why:
            output.say(console, f"    {output.one_line(answer.why)}")
        statuses.append(answer.status)
    return statuses


def _chosen(only: list[str]) -> list[Contract]:
    for word in only:
        if not any(word in (name, name.partition("/")[0]) for name in contracts()):
            valid = ", ".join(dict.fromkeys(name.partition("/")[0] for name in contracts()))
            raise InputError("--only", f"no contract {word!r}; valid: {valid}")
    return [
        contract
        for name, contract in contracts().items()
        if not only or name in only or name.partition("/")[0] in only
    ]


def _require(module: str, what: str, package: str) -> None:
    if find_spec(module) is None:
        raise InputError(
            "check contracts", f"{what} is not installed; install it with: pip install {package}"
        )


def _strategies(contract: Contract) -> dict[str, st.SearchStrategy[Any]]:
    lists = st.lists(st.integers(min_value=1), min_size=1, max_size=MAX_MEMBERS)
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for name, kind in contract.arguments().items():
        least, most = getattr(contract.sizes, name, (0, None))
        strategies[name] = st.integers(least, most) if kind is int else lists
    return strategies
