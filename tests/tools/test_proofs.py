"""The page on the volumetric check lists the lemmas and configurations that the proofs have."""

import re

from schedproof.solver.spyre.proofs_by_rule import limit_lemmas
from schedproof.tools.pages import table_in
from schedproof.tools.proofs import ASKED, JOIN, LIMIT, PAGE, TOOL


def rows(table):
    for line in table_in(PAGE, f"{TOOL}: {table}").splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def test_every_lemma_is_listed_once_with_its_sentence_and_no_other():
    listed = {cells[0].strip("`"): cells[1] for cells in rows("lemmas")}
    asked = {
        one.name: one.sentence
        for row in ASKED
        for rule in (JOIN, LIMIT)
        for group in limit_lemmas(rule, row.setting, 64)
        for one in group.lemmas
    }
    assert listed == asked
    assert len([*rows("lemmas")]) == len(listed)


def test_two_lemmas_of_one_name_say_the_same():
    said: dict[str, set[str]] = {}
    for row in ASKED:
        for group in limit_lemmas(JOIN, row.setting, 64):
            for one in group.lemmas:
                said.setdefault(one.name, set()).add(one.sentence)
    assert all(len(sentences) == 1 for sentences in said.values())


def test_no_lemma_for_any_number_of_requests_names_a_number():
    for row in ASKED:
        for group in limit_lemmas(JOIN, row.setting, 64):
            if group.title == "any number of requests":
                assert not [one.name for one in group.lemmas if re.search(r"\d", one.name)]


def test_every_configuration_is_listed_with_an_answer_for_each_rule():
    listed = [*rows("configurations")]
    assert [cells[:2] for cells in listed] == [[one.admission, one.configuration] for one in ASKED]
    for one, (_, _, join, limit) in zip(ASKED, listed, strict=True):
        assert (join == "not asked") == bool(one.pausing)
        for answer in {join, limit} - {"not asked"}:
            assert re.match(r"proven \(|`\w+` fails: a run of \d requests \(", answer), answer
