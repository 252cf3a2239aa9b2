"""Every tool begins with the question that it answers, and says how to run it."""

import ast
import io
import re
import sys
from itertools import product
from typing import Any

import pytest

from schedproof.gate.traces.judge import TraceJudge, TraceRun
from schedproof.gate.traces.trace_file import Source, read_trace
from schedproof.model.spyre import documented
from schedproof.solver.spyre.proofs_by_rule import limit_lemmas
from schedproof.tools import answers
from schedproof.tools.follow import files_naming, places_naming
from schedproof.tools.hidden_fields import accusations
from schedproof.tools.house import ROOT, sources
from schedproof.tools.long_trace import CONFIGS, make
from schedproof.tools.mutation import proof_score, small_runs, times
from schedproof.tools.pages import table_in
from schedproof.tools.proofs import ASKED, JOIN, LEMMAS, LIMIT, PAGE, TOOL

# Programs that a tool starts.
PARTS = {
    "tools/hostile/bad_target.py",
    "tools/hostile/installer.py",
    "tools/mutation/pytest_server.py",
    "tools/__main__.py",
}
TOOLS = {
    name: path
    for path in sources("tools")
    if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    if (name := path.relative_to(ROOT).as_posix()) not in PARTS
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_says_which_question_it_answers_and_how_to_run_it(name):
    doc = ast.get_docstring(ast.parse(TOOLS[name].read_text(encoding="utf-8"))) or ""
    question, _, rest = doc.partition("\n\n")
    assert question.endswith("?")
    assert "make tool NAME=" in rest or "`make " in rest


@pytest.mark.slow
def test_a_gate_whose_target_hides_what_it_emits_ends_without_an_accusation():
    # It seems to have emitted more than was asked for: the search drew from -4 + 4 steps.
    assert accusations(216) == []


def test_a_rule_is_named_from_its_sentence_to_its_proof():
    found = files_naming("SPY-R07")
    assert "spec/spyre.toml" in found["sentence"]
    assert found["model"]
    assert found["predicate"]
    assert found["proof"]


def test_each_place_of_a_rule_is_given_with_what_stands_there():
    def inside(path):
        return {what for _, what in places_naming("SPY-R32", ROOT / path)}

    assert inside("model/spyre/documented.py") == {"must_interleave"}
    assert "not_interleaved" in inside("properties/spyre/predicates/priority.py")
    faults = inside("tests/mutants/spyre.toml")
    assert faults == {
        "prefill steps are not interleaved with decode steps",
        "prefills without a break after the 64th chunk of a prompt",
    }


def test_an_id_that_begins_like_another_is_another():
    assert not any(files_naming("SPY-R0").values())


REVISIONS = {"spyre": "sound"}


@pytest.mark.parametrize("system", sorted(CONFIGS))
def test_the_trace_holds_and_requests_come_and_go(system):
    file = io.BytesIO()
    make(system, REVISIONS.get(system, "documented"), 240, file)
    runs: list[TraceRun] = []
    lines = io.BufferedReader(io.BytesIO(file.getvalue()))  # type: ignore[arg-type]
    judge = TraceJudge("t", [], True, lambda run: None, runs.append, lambda words: None)
    judge.follow(read_trace(Source("t", lines, lambda: 0, None)))
    [only] = runs
    assert (only.steps, only.broken) == (240, [])
    assert only.monitor.history.arrived == 10
    assert len(only.monitor.history.live) < 5
    assert only.explainer is not None
    assert only.explainer.matches[0].departed is None


def test_what_was_not_found_is_later_than_whatever_was():
    trials = [{"gate": times.Took(True, second, 10 * second)} for second in range(1, 20)]
    trials.append({"gate": times.Took(False, 0.5, 7)})
    [row] = times.rows("all", trials)
    assert row == "| all | gate | 20 | 19 (95.0%) | 10.000 s | 19.000 s | 105 |"
    [row] = times.rows("all", [*trials, *trials[-1:]])
    assert row.split(" | ")[4:6] == ["11.000 s", "> 0.500 s"]


def test_where_most_are_not_found_no_steps_are_told():
    [row] = times.rows("all", [{"plain": times.Took(False, 9.0, 3)}])
    assert row == "| all | plain | 1 | 0 (0.0%) | > 9.000 s | > 9.000 s | not found |"


def rows(table):
    page = LEMMAS if table == "lemmas" else PAGE
    for line in table_in(page, f"{TOOL}: {table}").splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def test_every_lemma_is_listed_once_with_its_sentence_and_no_other():
    listed = {cells[0].strip("`"): cells[1] for cells in rows("lemmas")}
    asked = {
        lemma.name: lemma.sentence
        for row in ASKED
        for rule in (JOIN, LIMIT)
        for group in limit_lemmas(rule, row.setting, 64)
        for lemma in group.lemmas
    }
    assert listed == asked
    assert len([*rows("lemmas")]) == len(listed)


def test_two_lemmas_of_one_name_say_the_same():
    said: dict[str, set[str]] = {}
    for row in ASKED:
        for group in limit_lemmas(JOIN, row.setting, 64):
            for lemma in group.lemmas:
                said.setdefault(lemma.name, set()).add(lemma.sentence)
    assert all(len(sentences) == 1 for sentences in said.values())


def test_no_lemma_for_any_number_of_requests_names_a_number():
    for row in ASKED:
        for group in limit_lemmas(JOIN, row.setting, 64):
            if group.title == "any number of requests":
                assert not [lemma.name for lemma in group.lemmas if re.search(r"\d", lemma.name)]


def test_every_configuration_is_listed_with_an_answer_for_each_rule():
    listed = [*rows("configurations")]
    assert [cells[:2] for cells in listed] == [
        [asked.admission, asked.configuration] for asked in ASKED
    ]
    for asked, (_, _, join, limit) in zip(ASKED, listed, strict=True):
        assert (join == "does not apply") == bool(asked.pausing)
        for answer in {join, limit} - {"does not apply"}:
            assert re.match(r"proven|`\w+` fails: a run of \d requests \(", answer), answer


@pytest.mark.parametrize("system", answers.TABLES)
def test_the_page_says_of_each_proof_which_code_it_is_about_and_what_it_assumes(system):
    made = "\n".join(answers.TABLES[system]())
    assert table_in(answers.PAGE, f"{answers.TOOL}: {system}") == made


def test_the_score_of_proofs_measures_a_decode_step_by_arithmetic_of_its_own():
    for lengths, block in product(([1], [2, 3], [5, 4, 1], [6, 6, 3, 2]), (1, 2, 3)):
        tkv = documented.max_tkv(lengths, block)
        assert small_runs.volume(lengths, block) == len(lengths) * tkv
    seen = {"kind": "decode", "scheduled": {"a": 1, "b": 1}}
    assert small_runs.decoded(seen, {"a": 3, "b": 1}, {"a": 1, "b": 2}) == [4, 3]
    assert small_runs.decoded({**seen, "kind": "prefill"}, {}, {}) == []


def test_the_score_of_proofs_counts_by_what_a_change_does():
    found = {
        "a": {"does": "overruns", "proof": "red (covers_newcomer)"},
        "b": {"does": "the same", "proof": "green"},
        "c": {"does": "the same", "proof": "open (150 s are over)"},
        "d": {"does": "crashes (KeyError)"},
    }
    lines = list(proof_score.table(found))[2:]
    assert lines[0] == "| overruns | 1 | 1 | 0 | 0 |"
    assert lines[1] == "| the same | 2 | 0 | 1 | 1 |"
    assert lines[4] == "| crashes | 1 | 0 | 0 | 0 |"
    assert proof_score.score(found.values()) == (
        "1 of 1 sampled overrunning changes red; 1 of 2 sampled harmless ones green"
    )


def test_the_score_of_proofs_knows_whether_a_changed_function_was_called():
    text = "class A:\n    def f(self):\n        return 2\n"
    [(path, marked)] = proof_score.Change(
        "", proof_score.SOUND[0], {"a.py": text}, "A.f"
    ).marked.items()
    names: dict[str, Any] = {}
    exec(marked, names)
    sys.__dict__.pop(proof_score.CALLED, None)
    assert (path, names["A"]().f(), sys.__dict__.pop(proof_score.CALLED)) == ("a.py", 2, 1)


def test_the_score_of_proofs_takes_no_answer_in_time_for_neither_colour(tmp_path):
    out = tmp_path / "out.json"
    assert proof_score.read(out) == {"does": "hangs"}
    out.write_text('{"does": "overruns"}', encoding="utf-8")
    assert proof_score.colour(proof_score.read(out)) == "open"
