"""A rule that is not evaluated would have answered as before, and reads only what it declares."""

from collections.abc import Mapping
from typing import Any

import pytest

from schedproof.model.observation import Step
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking import monitor, session
from schedproof.properties.history.features import features_of
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.predicate import PHASES, Predicate
from schedproof.properties.rules.questions import Check, Questions
from schedproof.properties.rules.registry import predicates_of
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

from .reading import Reads, Recorded, recording


class Checking(Questions):
    """Evaluates every rule, and notes in `wrong` what its declaration does not allow."""

    predicates: Mapping[str, Predicate]
    reads: Reads
    wrong: set[str]

    def of(self, history: Any, step: Any) -> list[Check]:
        asked = {rule for rule, *_ in super().of(history, step)}
        self.occurred = {rule: rule in self._occurring for rule in self._choice.unasked}
        self._choice = self._choices.of(self._absent, None)
        return [
            (rule, self.watched(rule, broken, asked), self.watched(rule, exercised, asked))
            for rule, broken, exercised in self._choice.asked
        ]

    def watched(self, rule: str, function: Any, asked: set[str]) -> Any:
        """Return the function of a rule, which then notes what it reads and may not."""
        declared, members = self.predicates[rule].reads, self.predicates[rule].members
        if declared is None:
            return function
        allowed = {*declared, *(("scheduled", PHASES) if members != "any" else ())}

        def call(history: Any, step: Any) -> Any:
            history.answers.clear()
            self.reads.clear()
            answer = function(Recorded(history, self.reads), Recorded(step, self.reads))
            history.answers.clear()
            if extra := self.reads - allowed:
                self.wrong.add(f"{rule} reads {', '.join(sorted(extra))}")
            if rule not in asked and answer not in (None, self.occurred[rule]):
                self.wrong.add(f"{rule} is not evaluated, and would answer {answer}")
            return answer

        return call


@pytest.fixture
def found_wrong(monkeypatch):
    """Run a short search of a system's model; return what is wrong with its declarations."""

    def run(system: str, revision: str, predicates: Mapping[str, Predicate]) -> set[str]:
        with recording(features_of(system)) as reads:
            values = {"predicates": predicates, "reads": reads, "wrong": set[str]()}
            bound = type("Bound", (Checking,), values)
            monkeypatch.setattr(monitor, "Questions", bound)
            monkeypatch.setattr(session, "predicates_of", lambda _: predicates)
            options = SearchOptions(ModelTarget(), system, revision, load(system), "small")
            run_search(Search(options), 2, 0, 0)
        return bound.wrong

    return run


@pytest.mark.parametrize("system", [*SYSTEMS])
def test_rules_read_only_what_they_declare(found_wrong, system):
    assert not found_wrong(system, SYSTEMS[system].revisions[-1], predicates_of(system))


def test_a_rule_that_reads_more_than_it_declares_is_noticed(found_wrong):
    rules = predicates_of("spyre")
    narrow = {
        "SPY-R13": rules["SPY-R13"]._replace(reads=(PHASES, "scheduled")),
        "SPY-R26": rules["SPY-R26"]._replace(reads=("left_pad_blocks", "tkv")),
    }
    found = found_wrong("spyre", "2.1.2", {**rules, **narrow})
    assert found >= {"SPY-R13 reads kind", "SPY-R26 reads kind, progress"}


def test_a_step_that_changes_nothing_asks_no_rule_that_declares_what_it_reads():
    rules = [(rule, check) for rule, check in predicates_of("vllm").items()]
    book = RunHistory(full_config("vllm", "documented", {}), "documented", "vllm")
    questions = Questions(rules)
    seen = Step(kind="idle", scheduled={})
    counts = []
    for _ in range(3):
        counts.append(len(questions.of(book, seen)))
        questions.answered([], broken=False)
    declared = sum(check.reads is not None for _, check in rules)
    members = sum(check.members != "any" and check.reads is None for _, check in rules)
    assert counts[0] == len(rules) - members
    assert counts[2] == counts[0] - declared
