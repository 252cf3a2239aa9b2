"""Which rules --rule and --exclude mean."""

import pytest

from schedproof.gate.judging.rule_choice import lockstep_revision, rules_to_judge
from schedproof.gate.judging.verdict import RuleVerdict, exit_code
from schedproof.gate.library.judging import gate_options
from schedproof.gate.targets.target_spec import MODEL, parse_target
from schedproof.model.errors import InputError
from schedproof.model.scenario import Expectation, Request, Scenario
from schedproof.spec.catalogue import CatalogueError

MINE = parse_target("mine:Target")


def ids(*words, exclude=(), target=MINE):
    rules = rules_to_judge("vllm", words or None, "documented", target, None, exclude)  # type: ignore[arg-type]
    return [rule.id for rule in rules]


def test_a_pattern_means_each_checked_rule_that_it_matches():
    chosen = ids("ALL-*")
    assert chosen[0] == "ALL-R01"
    assert {rule[:4] for rule in chosen} == {"ALL-"}
    assert "ALL-R07" in chosen
    assert ids("V1-R0?", "V1-R05") == ids("V1-R0?")


def test_a_pattern_leaves_out_what_cannot_be_asked_of_the_target():
    assert "ALL-R07" not in ids("ALL-*", target=MODEL)
    with pytest.raises(InputError, match="ALL-R07 compares a target with the model"):
        ids("ALL-R07", target=MODEL)


def test_what_is_excluded_is_not_judged():
    assert "V1-R09" in ids()
    assert "V1-R09" not in ids(exclude=("V1-R09",))
    assert not {*ids(exclude=("V1*",))} & {*ids("V1*")}
    assert ids("V1-R0?", exclude=("V1-R09",)) == [
        rule for rule in ids("V1-R0?") if rule != "V1-R09"
    ]


@pytest.mark.parametrize(
    ("words", "exclude", "says"),
    [
        (("V1-R09",), ("V1-R09",), "--exclude: V1-R09 is also named by --rule"),
        (
            (),
            ("ALL-R01",),
            "--exclude: ALL-R01: cannot be excluded, because a crash or a hang ends the run",
        ),
        ((), ("ALL-R0*",), "--exclude: ALL-R01"),
        ((), (",",), "--exclude: ',' names no rule"),
        ((",",), (), "--rule: ',' names no rule"),
    ],
)
def test_what_contradicts_itself_is_refused(words, exclude, says):
    with pytest.raises(InputError) as error:
        ids(*words, exclude=exclude)
    assert says in str(error.value)


def test_a_named_rule_that_is_broken_by_design_is_refused_with_the_option_that_says_so():
    with pytest.raises(
        InputError, match="--deviations: V1-R09 is excluded by design, but --rule names it"
    ):
        gate_options(
            parse_target("model"), system="vllm", rules=["V1-R09"], by_design={"V1-R09": "ours"}
        )


@pytest.mark.parametrize("word", ["V2-*", "V1-R999"])
def test_a_word_that_means_no_rule_is_refused(word):
    for asked in ({"words": (word,)}, {"exclude": (word,)}):
        with pytest.raises(CatalogueError, match="no rule"):
            ids(*asked.get("words", ()), exclude=asked.get("exclude", ()))


def test_a_rule_named_in_full_must_have_been_exercised_and_an_excluded_one_not():
    rules = (
        RuleVerdict("A", "held"),
        RuleVerdict("B", "not_exercised"),
        RuleVerdict("C", "excluded"),
    )
    assert exit_code(rules, (), False) == 0
    assert exit_code(rules, ("A",), False) == 0
    assert exit_code(rules, ("B",), False) == 3
    assert exit_code(rules[1:], (), False) == 3  # nothing was judged


@pytest.mark.parametrize(
    ("target", "expect", "words", "asked", "beside"),
    [
        ("vllm==0.33.0", ("ALL-R10",), None, None, "none"),
        ("vllm==0.33.0", ("ALL-R10",), ["ALL-*"], None, None),
        ("vllm==0.33.0", ("ALL-R10",), None, "documented", "documented"),
        ("vllm==0.33.0", ("ALL-R07",), None, None, None),
        ("vllm==0.33.0", None, None, None, None),
        ("model", ("ALL-R10",), None, None, None),
    ],
)
def test_a_scenario_that_expects_another_rule_to_break_is_compared_where_it_is_asked_for(
    target, expect, words, asked, beside
):
    scenario = Scenario(
        system="vllm",
        revision="documented",
        requests=(Request(id="r0", arrival=0, prompt=(("r0", 1),), max_tokens=1),),
        expect=expect and Expectation(violates=expect),
    )
    said: list[str] = []
    assert lockstep_revision(scenario, words, parse_target(target), asked, said.append) == beside
    assert said == (
        ["not compared with a model: the scenario expects ALL-R10 to be broken"]
        if beside == "none"
        else []
    )
