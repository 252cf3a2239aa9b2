"""The closed form says what the model does: compared with every run at small scale."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import z3

from schedproof.model.scenario import Request, Scenario
from schedproof.model.spyre import volumetric
from schedproof.model.spyre.model import SpyreModel
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.smt.numbers import value_in
from schedproof.solver.smt.obligation import decide
from schedproof.solver.spyre import symbolic_admission
from schedproof.solver.spyre.admission_sequences import (
    Setting,
    largest_harmless,
    solution,
    to_scenario,
)
from schedproof.solver.spyre.admission_sequences import violation as encoded
from schedproof.solver.spyre.symbolic_admission import CHECKS
from schedproof.spec.catalogue import load, select

LIMIT_RULE = select(load("spyre"), ["SPY-R07"])
SMALL = {"block": 2, "chunk": 2, "max_model_len": 6}
UNSOUND = [name for name in volumetric.FORMULAS if name not in ("2.1.2", "common_base")]


def small(formula, limit):
    return Setting(formula, 2, limit=limit, **SMALL)


def breaks(formula, scenario):
    return bool(replay(ModelTarget(formula), scenario, LIMIT_RULE).broken)


@cache
def some_run_breaks(formula, limit):
    """Two requests of every size, the second arriving at every step."""
    longest = SMALL["max_model_len"]
    sizes = [
        (prompt, tokens)
        for prompt, tokens in product(range(1, longest), range(2, longest + 1))
        if prompt + tokens - 1 <= min(longest, limit)
    ]
    config = {"block_size": 2, "chunk_size": 2, "max_model_len": longest, "max_batch_tkv": limit}
    for first, second, arrival in product(sizes, sizes, range(longest)):
        requests = tuple(
            Request(id=name, arrival=step, prompt=((name, prompt),), max_tokens=tokens)
            for name, step, (prompt, tokens) in (("a", 0, first), ("b", arrival, second))
        )
        scenario = Scenario(system="spyre", revision="sound", config=config, requests=requests)
        if breaks(formula, scenario):
            return True
    return False


def solve(setting):
    problem = encoded(setting)
    solver = z3.Solver()
    solver.add(problem.facts)
    answer = solver.check()
    assert answer != z3.unknown
    return problem, solver.model() if answer == z3.sat else None


@pytest.mark.slow
@pytest.mark.parametrize("limit", [6, 8])
@pytest.mark.parametrize("formula", [*volumetric.FORMULAS, *CHECKS, "2.1.0+1"])
def test_there_is_a_solution_exactly_if_some_run_breaks_the_limit(formula, limit):
    _, model = solve(small(formula, limit))
    assert (model is not None) == some_run_breaks(formula, limit)


@pytest.mark.parametrize("formula", UNSOUND)
def test_a_solution_is_a_run_that_breaks_the_limit_by_as_much(formula):
    setting = Setting(formula, 2, block=2, chunk=2, limit=8, max_model_len=8)
    problem, model = solve(setting)
    scenario = to_scenario(setting, solution(problem, model), "sound")
    outcome = replay(ModelTarget(formula), scenario, LIMIT_RULE)
    batch, tkv = (value_in(model, number) for number in problem.overrun)
    assert f"{batch} requests x tkv" in outcome.broken[0].message
    assert batch * tkv > setting.limit


@pytest.mark.parametrize("formula", ["common_base", "2.1.2"])
@pytest.mark.parametrize("early_eos", [False, True])
def test_the_sound_formulas_have_no_solution_for_three(formula, early_eos):
    setting = Setting(formula, 3, block=2, chunk=2, limit=14, max_model_len=8, early_eos=early_eos)
    assert solve(setting)[1] is None


def test_early_eos_lets_requests_end_before_their_time():
    setting = Setting("2.0.1", 2, block=2, chunk=2, limit=8, max_model_len=8, early_eos=True)
    problem = encoded(setting)
    solver = z3.Solver()
    solver.add(*problem.facts, problem.arrivals[0].decodes < problem.arrivals[0].max_tokens - 1)
    assert solver.check() == z3.sat
    arrivals = solution(problem, solver.model())
    scenario = to_scenario(setting, arrivals, "sound")
    assert scenario.requests[0].tokens_to_emit < scenario.requests[0].max_tokens
    assert breaks("2.0.1", scenario)


def test_a_fault_planted_in_a_formula_disagrees_with_the_runs(monkeypatch):
    whole = symbolic_admission.formula_named("common_base")

    def too_small(numbers, lengths, *met):
        own, others, _ = whole(numbers, lengths, *met)
        return symbolic_admission.Projected(own - lengths.block, others)

    monkeypatch.setattr(symbolic_admission, "formula_named", lambda _: too_small)
    _, model = solve(small("common_base", 8))
    assert (model is not None) != some_run_breaks("common_base", 8)


def pushed_on(larger, tkv, base, prompt, member, block):
    """Rounds up how far the prompt is beyond the batch, which is below zero if it is shorter."""
    return tkv + volumetric.round_up(prompt - tkv, block) + member.remaining + block


def branching(larger, tkv, base, prompt, member, block):
    """Written as a release would write it."""
    whole, rest = divmod(max(tkv, prompt), block)
    if rest > 0 and member.remaining >= 2:
        whole += 1
    return -(-(whole * block + member.remaining) // block) * block - abs(min(rest - 1, 0))


@pytest.mark.parametrize("limit", [6, 8])
@pytest.mark.parametrize("member", [pushed_on, branching])
def test_a_formula_may_use_numbers_below_zero_and_branch(member, limit, monkeypatch):
    planted = replace(volumetric.common_base, member=member)
    monkeypatch.setitem(volumetric.FORMULAS, member.__name__, planted)
    _, model = solve(small(member.__name__, limit))
    assert (model is not None) == some_run_breaks(member.__name__, limit)


@pytest.mark.slow
def test_a_dividend_below_zero_hides_no_run_at_production_scale(monkeypatch):
    planted = replace(volumetric.common_base, member=pushed_on)
    monkeypatch.setitem(volumetric.FORMULAS, "pushed_on", planted)
    problem = encoded(Setting("pushed_on", 5))
    known = [(20_000, 12_000)] * 4 + [(64, 11_500)]
    facts = [
        z3.And(arrival.prompt == prompt, arrival.max_tokens == tokens)
        for arrival, (prompt, tokens) in zip(problem.arrivals, known, strict=True)
    ]
    answer, model = decide([*problem.facts, *facts])
    assert answer == "sat"
    batch, tkv = (value_in(model, number) for number in problem.overrun)
    assert batch * tkv > 131_072


def test_every_request_that_the_model_lets_in_is_searched():
    """The releases let in less, and no run of theirs goes beyond this limit."""
    asked = Setting("document_realigned", 2, 4, 8, 6, max_model_len=6, revision="documented")
    problem, model = solve(asked)
    assert model is not None
    assert breaks(None, to_scenario(asked, solution(problem, model), "documented"))
    assert solve(replace(asked, release_door=True))[1] is None


def test_the_door_is_the_one_of_the_model(monkeypatch):
    whole = SpyreModel.refusal

    def narrower(self, request):
        """Read from the symbols as from a request."""
        return "too long" if request.prompt_len > 1 else whole(self, request)

    monkeypatch.setattr(SpyreModel, "refusal", narrower)
    problem = encoded(small("2.1.0", 8), beyond=0)
    longest = problem.arrivals[0].prompt
    assert decide([*problem.facts, longest > 1])[0] == "unsat"
    assert decide([*problem.facts, longest == 1])[0] == "sat"


def test_what_is_asked_to_be_exceeded_by_more_is_exceeded_by_more():
    setting = Setting("document_realigned", 2, block=2, chunk=2, limit=8, max_model_len=8)
    over = []
    for above in (0, 3, 8):
        problem = encoded(setting, beyond=setting.limit + above)
        solver = z3.Solver()
        solver.add(problem.facts)
        if solver.check() == z3.sat:
            batch, tkv = (value_in(solver.model(), number) for number in problem.overrun)
            over.append(batch * tkv > setting.limit + above)
    assert over == [True, True]


@pytest.mark.parametrize(
    ("length", "limit", "harmless"), [(32_768, 131_072, 4), (4_096, 131_072, 32), (7, 8, 1)]
)
def test_so_many_requests_fit_whoever_admits_them(length, limit, harmless):
    block = 64 if length > 64 else 2
    setting = Setting("2.1.0", 2, block=block, chunk=8 * block, max_model_len=length, limit=limit)
    assert largest_harmless(setting) == harmless
    assert largest_harmless(replace(setting, limit=2 * limit)) >= 2 * harmless
