"""`--certificate`: lemmas for another solver, its proofs, and no foreign file is overwritten."""

import json

import pytest
import z3

from schedproof.gate.search import proofs
from schedproof.gate.search.proofs import print_certificate, writing
from schedproof.solver.smt.obligation import (
    UNITS,
    Certified,
    Discharged,
    Obligation,
    ask_cvc5,
    decide,
    discharge,
    in_smt_lib,
    values,
)
from schedproof.solver.spyre import formula_lemmas, reservation_lemmas
from schedproof.solver.spyre.admission_sequences import Setting
from schedproof.solver.spyre.proofs_by_rule import PROOFS, limit_lemmas

pytest.importorskip("cvc5", reason="the extra `solvers` is not installed")
X = z3.Int("x")
LEMMA = Obligation("is_below", "X is below.", lambda: [X > 3, X < 3], lambda: [X > 3, X < 5])


def test_a_lemma_is_written_with_its_guard_and_a_proof(tmp_path):
    [found] = discharge([LEMMA], writing(tmp_path))
    assert found.certified == Certified("unsat", "sat", 0)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("is_below.smt2", "is_below.guard.smt2", "is_below.alethe")
    }
    for name, answer in (("is_below", z3.unsat), ("is_below.guard", z3.sat)):
        solver = z3.Solver()
        solver.from_file(str(tmp_path / f"{name}.smt2"))
        assert solver.check() == answer
        assert (tmp_path / f"{name}.smt2").read_text().endswith("(check-sat)\n")
    assert "(cl)" in (tmp_path / "is_below.alethe").read_text()


@pytest.mark.parametrize(
    ("facts", "logic"),
    [
        ([X > 3, 2 * X < 5], "QF_LIA"),
        ([X * (X + 1) > 3], "QF_NIA"),
        ([z3.Function("f", z3.IntSort(), z3.IntSort())(X) > 3], "QF_UFLIA"),
    ],
)
def test_a_lemma_is_written_in_the_smallest_logic_that_has_it(facts, logic):
    assert in_smt_lib(facts).startswith(f"(set-logic {logic})\n")


def test_cvc5_decides_what_is_linear():
    [covers] = [
        lemma
        for lemma in formula_lemmas.obligations("common_base", 64)
        if lemma.name == "covers_decoding"
    ]
    for facts, answer in ((covers.claim(), "unsat"), (covers.guard(), "sat")):
        assert ask_cvc5(in_smt_lib(facts), 30) == (answer, "")


@pytest.mark.slow
def test_the_arithmetic_of_the_sound_formula_and_of_promises_has_proofs_without_holes(tmp_path):
    lemmas = formula_lemmas.obligations("common_base", 64) + reservation_lemmas.obligations(64)
    for found in discharge(lemmas, writing(tmp_path)):
        assert (found.status, found.certified) == ("proven", Certified("unsat", "sat", 0)), found


# Numbers of requests; the lemmas on one number run the same steps.
PARTS = (("32",), ("5",), ("4",), ("3", "2"), ("1", "0"), ())


@pytest.mark.slow
@pytest.mark.parametrize("sizes", PARTS, ids=lambda sizes: " and ".join(sizes) or "the others")
def test_every_lemma_of_a_revision_is_decided_alike_by_both_solvers(sizes):
    others = {size for part in PARTS for size in part}
    lemmas = [
        lemma
        for group in limit_lemmas("SPY-R07", Setting("common_base", 0), 64)
        for lemma in group.lemmas
        for size in [lemma.name.rpartition("_")[2]]
        if (size in sizes if sizes else size not in others)
    ]
    assert lemmas
    for lemma in lemmas:
        claim, guard = lemma.claim(), lemma.guard()
        assert decide(claim, units=UNITS)[0] == "unsat", lemma.name
        _, solution = decide(guard, units=UNITS)
        assert solution is not None, lemma.name
        assert decided_by_cvc5(claim, guard + values(solution)) == ["unsat", "sat"], lemma.name


def decided_by_cvc5(*facts):
    return [ask_cvc5(in_smt_lib(of), 300)[0] for of in facts]


def test_the_second_solver_does_not_confirm_a_value_that_is_no_solution():
    _, solution = decide([X > 3, X < 5])
    assert len(values(solution)) == 1
    assert decided_by_cvc5([X > 3, X < 5, *values(solution)]) == ["sat"]
    assert decided_by_cvc5([X > 4, X < 5, *values(solution)]) == ["unsat"]
    assert values(None) == []


def listed(*found):
    return [
        Discharged(f"lemma_{n}", "A.", "proven", 0.0, "Z3", (), file)
        for n, file in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("second", "code", "words"),
    [
        (
            Certified("unsat", "sat", 0),
            0,
            "cvc5 agrees on 1 of 1 lemmas and their guards; 1 proofs",
        ),
        (Certified("unknown", "sat", None), 0, "cvc5 gives up on lemma_0: only Z3 decides these"),
        (Certified("sat", "sat", None), 3, "the solvers disagree on lemma_0"),
        (Certified("unsat", "unsat", 2), 3, "the solvers disagree on lemma_0"),
    ],
)
def test_what_the_second_solver_says_is_told_and_listed(tmp_path, second, code, words):
    said: list[str] = []
    assert print_certificate(said.append, listed(second), tmp_path) == code
    assert words in "\n".join(said)
    [only] = json.loads((tmp_path / "certificate.json").read_text())
    assert (only["lemma"], only["cvc5"]) == ("lemma_0", second.claim)


def test_a_folder_with_files_is_left_as_it_is(run, tmp_path):
    foreign = tmp_path / "own.smt2"
    foreign.write_text("mine", encoding="utf-8")
    for folder, problem in ((tmp_path, "is not empty"), (foreign, "File exists")):
        result = run("search", "SPY-R50", "--prove", "--certificate", str(folder))
        assert (result.code, result.out) == (2, ""), result
        assert "--certificate: " in result.err
        assert problem in result.err
        assert "valid: a new or empty folder" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["own.smt2"]
    assert foreign.read_text(encoding="utf-8") == "mine"


def test_nothing_is_certified_that_is_not_proven(run, tmp_path, monkeypatch):
    folder = tmp_path / "new"
    result = run("search", "SPY-R50", "--certificate", str(folder))
    assert result.code == 2
    assert "valid only together with --prove" in result.err
    assert not folder.exists()
    monkeypatch.setattr(proofs.importlib.util, "find_spec", lambda _: None)
    result = run("search", "SPY-R50", "--prove", "--certificate", str(folder))
    assert result.code == 2
    assert "pip install 'schedproof[solvers]'" in result.err


def test_a_proof_says_where_its_certificate_is(run, tmp_path, monkeypatch):
    few = PROOFS["SPY-R50"]._replace(obligations=lambda block: [LEMMA])
    monkeypatch.setitem(PROOFS, "SPY-R50", few)
    monkeypatch.setattr(proofs, "run_in_process", lambda seconds, work, *args: work(*args))
    result = run("search", "SPY-R50", "--prove", "--certificate", str(tmp_path / "a" / "b"))
    assert result.code == 0, result
    assert result.out.splitlines()[-1].startswith(
        f"certificate: {tmp_path / 'a' / 'b'}: cvc5 agrees on 1 "
    )
