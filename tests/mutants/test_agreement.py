"""Engines on the same question: what counts as disagreement, and that a fault in any of them, the
predicate, the encoding or the reduction, is one."""

from itertools import product
from typing import get_args
from unittest import mock

import pytest

from schedproof.model.scenario import Request, Scenario
from schedproof.properties.rules.registry import predicates_of
from schedproof.properties.spyre import predicates as spyre
from schedproof.solver.exploration.scheduler_space import SchedulerSpace
from schedproof.solver.exploration.undecided import OWN
from schedproof.solver.spyre import formula_lemmas, symbolic_admission
from schedproof.solver.spyre.space import SCOPES, Scope
from schedproof.solver.spyre.symbolic_admission import formula_named
from schedproof.tests.mutants import agreement
from schedproof.tests.mutants.agreement import WITHIN, Row, Says, volume_rows, within

SAYS = get_args(Says)
EXPLORED = [word for word in SAYS if word not in ("proven", "none found")]
SOLVED = [word for word in SAYS if word != "none found"]


def row(hypothesis="-", explorer="-", z3="-"):
    return Row("SPY-R07", "sound", "limit 9", hypothesis, explorer, z3)


@pytest.mark.parametrize(("first", "other"), [*product(SAYS, SAYS)])
def test_a_counterexample_disagrees_with_a_proof_and_with_nothing_else(first, other):
    apart = {("broken", "proven"), ("broken", "holds")}
    expected = (first, other) in apart or (other, first) in apart or "refuted" in (first, other)
    for names in (("explorer", "z3"), ("hypothesis", "z3"), ("hypothesis", "explorer")):
        compared = row(**dict(zip(names, (first, other), strict=True)))
        assert (compared.disagreement is not None) == expected
        if expected:
            assert compared.remark == compared.disagreement
            assert "has a counterexample" in compared.remark


def test_who_disagrees_is_named():
    reported = row("none found", "holds", "broken").disagreement
    assert reported == "Z3 has a counterexample, explorer says that it holds"
    reported = row("broken", "broken", "proven").disagreement
    assert reported == "hypothesis has a counterexample, Z3 says that it is proven"


@pytest.mark.parametrize(("explorer", "z3"), [*product(EXPLORED, SOLVED)])
def test_a_sample_that_finds_nothing_is_remarked_on_where_others_find_something(explorer, z3):
    compared = row("none found", explorer, z3)
    if compared.disagreement is None:
        missed = "broken" in (explorer, z3)
        assert compared.remark == ("a sample need not meet it" if missed else "")


def test_a_question_that_one_engine_alone_was_asked_needs_no_remark():
    alone = [says for says in SAYS if says != "refuted"]
    assert [row(explorer=says).remark for says in alone] == [""] * len(alone)


def test_a_counterexample_that_a_replay_does_not_confirm_is_a_fault_by_itself():
    reported = row(z3="refuted").disagreement
    assert reported == "Z3 has a counterexample that a replay does not confirm"


def scenario(*requests):
    return Scenario(
        system="spyre",
        revision="sound",
        config={},
        requests=[
            Request(id=f"r{number}", arrival=0, prompt=(("own", prompt),), max_tokens=tokens)
            for number, (prompt, tokens) in enumerate(requests)
        ],
    )


def test_a_run_is_within_a_scope_if_it_has_no_more_requests_and_all_of_the_menu():
    scope = Scope("two", "", 2, ((((OWN, 3),), 2), (((OWN, 5),), 1)))
    inside = [(), ((3, 2),), ((3, 2), (5, 1)), ((3, 2), (3, 2))]
    outside = [((3, 2),) * 3, ((3, 1),), ((5, 2),), ((3, 2), (4, 2))]
    assert [within(scenario(*run), scope) for run in inside] == [True] * len(inside)
    assert [within(scenario(*run), scope) for run in outside] == [False] * len(outside)


def test_the_explorer_is_given_every_request_that_z3_asks_about():
    inside = {(prompt[0][1], tokens) for prompt, tokens in WITHIN}
    most = max(tokens for _, tokens in inside)
    assert inside == {
        (prompt, tokens)
        for prompt in range(1, agreement.LENGTH + 1)
        for tokens in range(1, most + 1)
        if prompt + tokens - 1 <= agreement.LENGTH
    }


@pytest.fixture
def two_requests(monkeypatch):
    """The fewest that break the limit by any formula that is asked about here."""
    monkeypatch.setattr(agreement, "REQUESTS", 2)


def rows(formula):
    return [*volume_rows([formula], [9])]


def verdicts(formula):
    [result] = rows(formula)
    return result.explorer, result.z3, result.disagreement is not None


@pytest.mark.slow
@pytest.mark.usefixtures("two_requests")
def test_without_a_fault_the_engines_agree():
    assert verdicts("2.1.0") == ("broken", "broken", False)
    assert verdicts("2.1.2") == ("holds", "proven", False)


@pytest.mark.slow
@pytest.mark.usefixtures("two_requests")
def test_a_predicate_that_never_breaks_is_a_disagreement():
    """The explorer and Hypothesis judge by it, Z3 does not."""
    predicate = predicates_of("spyre")["SPY-R07"]
    blind = predicate._replace(broken=lambda *_: None)
    with mock.patch.dict(spyre.PREDICATES, {"SPY-R07": blind}):
        [result] = rows("document_own_tkv")
    assert (result.hypothesis, result.explorer, result.z3) == ("none found", "holds", "refuted")
    assert result.disagreement == "Z3 has a counterexample that a replay does not confirm"


@pytest.mark.slow
@pytest.mark.usefixtures("two_requests")
def test_a_predicate_that_breaks_too_early_is_a_disagreement():
    predicate = predicates_of("spyre")["SPY-R07"]

    def strict(history, step):
        return "any decode step" if step.kind == "decode" else None

    with mock.patch.dict(spyre.PREDICATES, {"SPY-R07": predicate._replace(broken=strict)}):
        [result] = rows("2.1.2")
    assert (result.explorer, result.z3) == ("broken", "proven")
    assert result.disagreement is not None


@pytest.mark.slow
@pytest.mark.usefixtures("two_requests")
@pytest.mark.parametrize(
    ("formula", "encoded", "expected"),
    [
        ("2.1.0", "2.1.2", ("broken", "holds", True)),
        ("2.1.2", "2.1.0", ("holds", "refuted", True)),
    ],
    ids=["excludes what is", "finds what is none"],
)
def test_an_encoding_of_another_formula_is_a_disagreement(formula, encoded, expected):
    wrong, lemmas = formula_named(encoded), formula_lemmas.obligations
    with (
        mock.patch.object(symbolic_admission, "formula_named", return_value=wrong),
        mock.patch.object(formula_lemmas, "obligations", lambda _, block: lemmas(encoded, block)),
    ):
        assert verdicts(formula) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("two_requests")
def test_a_reduction_that_leaves_choices_out_is_a_disagreement():
    choices = SchedulerSpace._choices

    def first_only(*args):
        return list(choices(*args))[:1]

    with mock.patch.object(SchedulerSpace, "_choices", first_only):
        [result] = rows("2.1.0")
    assert (result.explorer, result.z3) == ("holds", "broken")
    assert result.disagreement is not None


@pytest.mark.slow
@pytest.mark.usefixtures("two_requests")
def test_a_rule_at_stake_nowhere_is_no_crash():
    """A witness that never occurs is a fault of the suite, not of the run."""
    predicate = predicates_of("spyre")["SPY-R07"]
    asleep = predicate._replace(exercised=lambda *_: False)
    with mock.patch.dict(spyre.PREDICATES, {"SPY-R07": asleep}):
        [result] = rows("document_own_tkv")
    assert result.explorer in ("-", "inconclusive", "broken")


def test_the_scopes_that_are_compared_exist():
    names = {scope.name for scope in SCOPES}
    assert {"uneven", "pool", "cache", "aborts"} <= names
