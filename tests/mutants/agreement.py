"""Three engines on the same question: what one proves, no other may refute.

Hypothesis samples, the explorer takes every run of up to so many requests, Z3 decides for any
number. Each row is a rule, a revision and one configuration that all of them are given.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from schedproof.model.scenario import Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay as run_replay
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre.admission_sequences import Setting, to_scenario
from schedproof.solver.spyre.proofs_by_rule import PROOFS, limit_lemmas
from schedproof.solver.spyre.space import EVERY_LENGTH, Scope
from schedproof.solver.spyre.worst_case import fewest
from schedproof.spec.catalogue import Rule, load, select
from schedproof.tests.mutants.checkups.spyre import named

# proven: for any number of requests; holds: in every run of the scope; none found: in a sample;
# refuted: a counterexample that the model does not confirm.
Says = Literal["proven", "holds", "broken", "none found", "inconclusive", "refuted", "-"]
VOLUME = "SPY-R07"
REQUESTS = 3
EXAMPLES = 60
BLOCK, CHUNK, LENGTH = 2, 4, 8
LIMITS = (9, 13)
FORMULAS = (
    *("document_realigned", "document_own_tkv", "document_max_tkv", "0.8.0", "1.10.0"),
    *("2.0.1", "2.1.0", "2.1.2", "common_base", "exact", "rounded"),
)
REVISIONS = ("sound", "documented", "2.1.2", "2.5.2")
# Everything that the door lets in where max_model_len is LENGTH: Z3 asks about no other requests.
WITHIN = tuple(
    (prompt, tokens) for prompt, tokens in EVERY_LENGTH if prompt[0][1] + tokens - 1 <= LENGTH
)


@dataclass(frozen=True)
class Row:
    """The verdict of each engine on a rule in a configuration; "-" where it was not run."""

    rule: str
    revision: str
    config: str
    hypothesis: Says = "-"
    explorer: Says = "-"
    z3: Says = "-"

    @property
    def disagreement(self) -> str | None:
        """What cannot both be true, or None."""
        verdicts = {"hypothesis": self.hypothesis, "explorer": self.explorer, "Z3": self.z3}
        for name, verdict in verdicts.items():
            if verdict == "refuted":
                return f"{name} has a counterexample that a replay does not confirm"
            for other, refuted in verdicts.items():
                if verdict == "broken" and refuted in ("proven", "holds"):
                    word = "is proven" if refuted == "proven" else refuted
                    return f"{name} has a counterexample, {other} says that it {word}"
        return None

    @property
    def line(self) -> str:
        """The row as the runner prints it."""
        engines = f"hypothesis {self.hypothesis}, explorer {self.explorer}, Z3 {self.z3}"
        remark = f" ({self.remark})" if self.remark else ""
        return f"agree    {self.rule:<8} {self.revision}, {self.config}: {engines}{remark}"

    @property
    def fault(self) -> str | None:
        """Which row disagrees, and how; None if it does not."""
        disagreement = self.disagreement
        return disagreement and f"{self.rule}, {self.revision}, {self.config}: {disagreement}"

    @property
    def remark(self) -> str:
        """Why an engine has nothing to say where another has."""
        if self.disagreement is not None:
            return self.disagreement
        verdicts = {self.hypothesis, self.explorer, self.z3}
        if "broken" in verdicts and self.hypothesis == "none found":
            return "a sample need not meet it"
        return ""


def volume_rows(formulas: Sequence[str], limits: Sequence[int] = LIMITS) -> Iterator[Row]:
    """SPY-R07 by every formula: the same requests, the same limit, for all three."""
    [rule] = select(load("spyre"), [VOLUME])
    scope = Scope(
        "volume",
        "everything that Z3 asks about",
        REQUESTS,
        WITHIN,
        tuple(limits),
        config=(("max_num_seqs", 32), ("max_model_len", LENGTH)),
    )
    for formula in formulas:
        explored = _explored("sound", scope, [rule], formula)
        lemmas_of_limit = limit_lemmas(VOLUME, Setting(formula, 0), BLOCK)
        # The step is the same whatever formula it asks, and takes longest.
        arithmetic = [group for group in lemmas_of_limit if "step" not in group.title]
        lemmas = discharge([lemma for group in arithmetic for lemma in group.lemmas])
        proven = all(lemma.status == "proven" for lemma in lemmas)  # whatever the limit
        for limit in limits:
            yield Row(
                rule.id,
                f"sound, {formula}",
                f"limit {limit}",
                _sampled("sound", {**scope.full_config, "max_batch_tkv": limit}, rule, formula),
                explored.get((rule.id, limit), "-"),
                "proven" if proven else _solved(formula, limit),
            )


def decided_rows() -> Iterator[Row]:
    """The rules that Z3 proves for any number of requests: exhaustive runs of `sound` agree."""
    rules = [rule for rule in load("spyre") if rule.checked and rule.id in PROOFS]
    for name in ("uneven", "pool", "cache"):
        scope = replace(named(name), requests=2)
        scope = replace(scope, limits=scope.limits[:: max(len(scope.limits) // 3, 1)][:3])
        revision = "sound"
        explored = _explored(revision, scope, rules)
        for rule in rules:
            says = {explored.get((rule.id, limit), "-") for limit in scope.limits} - {"-"}
            if not says or rule.id in ("SPY-R51", "SPY-P01"):
                continue  # not exercised there; pausing belongs to 2.5.2
            proofs = [lemma.status for lemma in discharge(PROOFS[rule.id].obligations(BLOCK))]
            z3: Says = "proven" if set(proofs) == {"proven"} else "inconclusive"
            explorer: Says = "broken" if "broken" in says else "holds"
            yield Row(rule.id, revision, name, "-", explorer, z3)


def rule_rows(revision: str, limits: Sequence[int] = (12, 20)) -> Iterator[Row]:
    """Every rule of a revision: what Hypothesis finds in the same configuration."""
    rules = [rule for rule in load("spyre") if rule.checked and rule.kind != "decision"]
    scope = replace(named("aborts"), requests=2, limits=tuple(limits), aborts="any")
    explored = _explored(revision, scope, rules)
    for limit in limits:
        broken = _all_sampled(revision, {**scope.full_config, "max_batch_tkv": limit}, rules)
        for rule in rules:
            if (rule.id, limit) in explored:
                seed = broken.get(rule.id)
                inside = seed is not None and within(seed, scope)
                says: Says = "broken" if inside else "none found"
                yield Row(rule.id, revision, f"limit {limit}", says, explored[rule.id, limit])


def _all_sampled(
    revision: str, config: dict[str, object], rules: Sequence[Rule]
) -> dict[str, Scenario]:
    """The rules that Hypothesis finds broken, each with the run that breaks it."""
    examples: dict[str, Scenario] = {}
    for seed in range(len(rules)):
        search = Search(
            SearchOptions(
                *(ModelTarget(), "spyre", revision, rules, "small", frozenset(examples)),
                config=config,
            )
        )
        if not run_search(search, EXAMPLES, seed, 0) or search.failure is None:
            break
        scenario, broken = search.failure
        examples[broken[0].rule] = scenario
    return examples


def _explored(
    revision: str, scope: Scope, rules: Sequence[Rule], formula: str | None = None
) -> dict[tuple[str, int], Says]:
    """Return the verdict of exhaustive exploration on each rule, at each limit where it was
    exercised."""
    run = Exploration(ExploreOptions(revision, scope, formula=formula), rules)
    for _ in run.search.run():
        pass
    explored = run.result()
    says: dict[tuple[str, int], Says] = {
        (rule, limit): "holds" if explored.complete else "inconclusive"
        for rule, limits in explored.exercised.items()
        for limit in limits
    }
    for counterexample in explored.counterexamples:
        for limit in counterexample.limits:
            says[counterexample.rule, limit] = "broken"
    return says


def _sampled(revision: str, config: dict[str, object], rule: Rule, formula: str) -> Says:
    search = Search(
        SearchOptions(ModelTarget(formula), "spyre", revision, [rule], "small", config=config)
    )
    if not run_search(search, EXAMPLES, 0, 0) or search.failure is None:
        return "none found"
    scenario, _ = search.failure
    return "broken" if run_replay(ModelTarget(formula), scenario, [rule]).broken else "inconclusive"


def within(scenario: Scenario, scope: Scope) -> bool:
    """The explorer has this run among its own: as many requests, of its menu."""
    menu = {(sum(n for _, n in prompt), tokens) for prompt, tokens in scope.menu}
    return len(scenario.requests) <= scope.requests and all(
        (request.prompt_len, request.max_tokens) in menu for request in scenario.requests
    )


def _solved(formula: str, limit: int) -> Says:
    setting = Setting(formula, 0, BLOCK, CHUNK, limit, LENGTH, early_eos=True)
    says: Says = "holds"
    for obligation in fewest(setting, REQUESTS):
        if obligation.answer == "sat":
            scenario = to_scenario(
                replace(setting, requests=obligation.requests), list(obligation.arrivals), "sound"
            )
            rules = select(load("spyre"), [VOLUME])
            broken = run_replay(ModelTarget(formula), scenario, rules).broken
            return "broken" if broken else "refuted"
        if obligation.answer == "unknown":
            says = "inconclusive"
    return says
