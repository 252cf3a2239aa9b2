"""Print an exploration: a line per scope, the counterexamples, and a verdict per rule."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from ...properties.explanations.pool import spans
from ...solver.exploration.exploration import Counterexample, ExplorationResult, ExploreOptions
from ...solver.systems import space_of
from ...spec.catalogue import Rule
from ..console import BROKEN, CONFORMS, INCONCLUSIVE, output
from ..files.disk import write
from ..files.scenario_file import write_failure
from ..targets.target_spec import model_spec, replay_options
from .explorer import Budget, Ended, Event, Failed, Progress, confirm, explore, parts_of

MARKS = {
    "held": "green",
    "BROKEN": "red",
    "not exercised": "yellow",
    "inconclusive": "yellow",
}


@dataclass
class RuleSoFar:
    """The results for one rule so far: in which configurations it was exercised, and where it was
    broken."""

    exercised: dict[str, set[int]] = field(default_factory=dict)
    broken: dict[str, set[int]] = field(default_factory=dict)
    doubtful: int = 0


class Reporter:
    """Prints events as they happen, and collects what the verdict needs."""

    def __init__(
        self, console: Console, parts: Sequence[ExploreOptions], rules: Sequence[Rule], out: Path
    ) -> None:
        self._console = console
        self._parts = list(parts)
        self._rules = list(rules)
        self._out = out
        self._so_far = {rule.id: RuleSoFar() for rule in rules}
        self._checked: set[str] = set()
        self._ended: list[Ended] = []
        self._unfinished: dict[str, list[str]] = {}
        self._progress: dict[ExploreOptions, Progress] = {}
        self._status = console.status("") if console.is_terminal else None
        first = parts[0]
        system = first.scope.system
        self._limit = space_of(system).limit_name
        self._console.print(
            f"explore {system} {first.revision}, by configuration and {self._limit}"
        )

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            self._progress[event.options] = event
            self._show_progress()
        elif isinstance(event, Failed):
            self.close()
            self._parts.remove(event.options)
            self._leave_out(event.why, event.options)
            self._console.print(f"{_name(event.options)}: {event.why}", markup=False)
        else:
            self.close()
            self._end(event)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()

    def conclude(
        self,
        chosen: bool,
        json_file: Path | None,
        stop_requested: bool = False,
        verbose: bool = False,
    ) -> int:
        """Print the verdicts, write the coverage, and return the exit code. With `chosen`, the
        user selected the rules, and each of them must have been exercised."""
        for part in self._parts:
            self._leave_out("not started", part)
        if stop_requested:
            self._unfinished.clear()
        verdicts = {rule.id: self._verdict(rule) for rule in self._rules}
        self._print_verdicts(verdicts, list_all=chosen or verbose)
        words = [word for word, _ in verdicts.values()]
        counts = ", ".join(f"{words.count(word)} {word}" for word in MARKS if word in words)
        results = [ended.result for ended in self._ended]
        states = sum(sum(result.states_by_limit.values()) for result in results)
        moves = sum(result.transitions for result in results)
        seconds = sum(ended.seconds for ended in self._ended)
        self._console.print(
            f"{counts}; {states:,} states, {moves:,} transitions, {seconds:.0f} s on one core",
            style="bold",
        )
        for why, names in self._unfinished.items():
            self._console.print(f"left out, {why}: {'; '.join(names)}", markup=False)
        if json_file is not None:
            self._write(json_file, verdicts)
        if "BROKEN" in words:
            return BROKEN
        if self._unfinished or "inconclusive" in words or (chosen and "not exercised" in words):
            return INCONCLUSIVE
        return CONFORMS if "held" in words else INCONCLUSIVE

    @property
    def broken(self) -> bool:
        return any(rule.broken for rule in self._so_far.values())

    def _print_verdicts(self, verdicts: dict[str, tuple[str, str]], list_all: bool) -> None:
        together = () if list_all else ("held", "not exercised")
        for rule in self._rules:
            word, where = verdicts[rule.id]
            if word not in together:
                text = f"{rule.id:<8} {escape(rule.title)}{escape(where)}"
                self._console.print(f"{_mark(word)} {text}")
        for word in together:
            names = [rule for rule, (verdict, _) in verdicts.items() if verdict == word]
            text = ", ".join(names)
            if word == "held":
                text = f"{output.plural(len(names), 'rule')} (--verbose lists them)"
            if names:
                self._console.print(f"{_mark(word)} {text}")

    def _leave_out(self, why: str, part: ExploreOptions) -> None:
        self._unfinished.setdefault(why, []).append(_name(part))

    def _show_progress(self) -> None:
        if self._status is None:
            return
        progress = self._progress.values()
        states = sum(part.states for part in progress)
        moves = sum(part.transitions for part in progress)
        waiting = sum(part.open for part in progress)
        names = ", ".join(_name(options) for options in self._progress)
        self._status.update(
            f"{names}: {states:,} states, {moves:,} moves, {waiting:,} states still to expand"
        )
        self._status.start()

    def _end(self, ended: Ended) -> None:
        result = ended.result
        self._parts.remove(result.options)
        self._progress.pop(result.options, None)
        self._ended.append(ended)
        how = f"everything, depth {result.depth}"
        if not result.complete:
            how = f"{ended.why}, {result.open:,} states left open, depth {result.depth}"
            self._leave_out(ended.why, result.options)
        self._console.print(
            f"{_name(result.options)}: {result.options.scope.says}; {_count(result)}; {how}; "
            f"{ended.seconds:.1f} s, {ended.memory_mb} MB",
            markup=False,
        )
        if result.livelocks:
            self._console.print(f"  {result.livelocks} states recur without progress")
        self._checked |= {*result.checked}
        for rule, limits in result.exercised.items():
            if rule in self._so_far:
                self._so_far[rule].exercised.setdefault(_name(result.options), set()).update(limits)
        for counterexample in result.counterexamples:
            self._confirm(counterexample, result.options)

    def _confirm(self, counterexample: Counterexample, options: ExploreOptions) -> None:
        so_far = self._so_far[counterexample.rule]
        broken = confirm(counterexample, self._rules, options.formula)
        so_far.doubtful += len(counterexample.limits) - len(broken)
        if broken and not so_far.broken:
            limit = min(broken)
            scenario, outcome = broken[limit]
            path = write_failure(scenario, self._out, outcome.broken[0])
            [rule] = [rule for rule in self._rules if rule.id == counterexample.rule]
            replay = replay_options(model_spec(options.formula), [counterexample.rule])
            output.print_failure(
                self._console,
                *(rule, scenario, outcome.broken[0], str(path), replay, outcome.session.excerpt),
            )
        if broken:
            so_far.broken.setdefault(_scope(options), set()).update(broken)

    def _verdict(self, rule: Rule) -> tuple[str, str]:
        so_far = self._so_far[rule.id]
        if so_far.broken:
            where = "; ".join(
                f"{scope} at {_limits(limits, self._limit)}"
                for scope, limits in so_far.broken.items()
            )
            return "BROKEN", f": {where}"
        if so_far.doubtful:
            return "inconclusive", ": broken on a path, but not confirmed by a replay"
        if rule.id in self._checked and self._unfinished:
            return "inconclusive", ": not everything was explored"
        exercised = {scope: limits for scope, limits in so_far.exercised.items() if limits}
        if not exercised:
            return "not exercised", f": {rule.witness}"
        pairs = sum(len(limits) for limits in exercised.values())
        return "held", f" (exercised in {output.plural(pairs, 'configuration')})"

    def _write(self, path: Path, verdicts: dict[str, tuple[str, str]]) -> None:
        data = {
            "format": "schedproof/explored@1",
            "parts": [_plain(ended) for ended in self._ended],
            "rules": {rule: {"verdict": word} for rule, (word, _) in verdicts.items()},
            "unfinished": self._unfinished,
        }
        write(path, output.as_json(data))


def _mark(word: str) -> str:
    return f"[{MARKS[word]}]{word:<13}[/]"


def _plain(ended: Ended) -> dict[str, Any]:
    result = ended.result
    options = asdict(result.options)
    options["scope"].pop("menu")
    return {
        **options,
        "states": sum(result.states_by_limit.values()),
        "different": result.states,
        "states_by_limit": {str(limit): n for limit, n in result.states_by_limit.items()},
        "transitions": result.transitions,
        "depth": result.depth,
        "complete": result.complete,
        "why": ended.why,
        "seconds": round(ended.seconds, 2),
        "memory_mb": ended.memory_mb,
    }


def _count(result: ExplorationResult) -> str:
    states = sum(result.states_by_limit.values())
    different = f" ({result.states:,} different)" if states != result.states else ""
    return f"{states:,} states{different}, {result.transitions:,} transitions"


def _name(options: ExploreOptions) -> str:
    scope = options.scope
    limits = _limits(scope.limits, space_of(scope.system).limit_name)
    return f"{_scope(options)}, {scope.requests} requests, {limits}"


def _scope(options: ExploreOptions) -> str:
    return f"{options.revision} {options.scope.name}"


def _limits(limits: Sequence[int] | set[int], name: str = "limit") -> str:
    return f"{name}{'s' * (len(limits) > 1)} {spans(limits, '-')}"


def run_exploration(
    console: Console,
    questions: Sequence[ExploreOptions],
    rules: Sequence[Rule],
    chosen: bool,
    jobs: int,
    budget: Budget,
    out: Path,
    json_file: Path | None,
    until_broken: bool = False,
    verbose: bool = False,
) -> int:
    """Explore, report, and return the exit code. With `until_broken`, stop at the first
    counterexample."""
    parts = [part for options in questions for part in parts_of(options, jobs)]
    reporter = Reporter(console, parts, rules, out)
    try:
        for event in explore(parts, rules, jobs, budget):
            reporter(event)
            if until_broken and reporter.broken:
                break
    finally:
        reporter.close()
    return reporter.conclude(chosen, json_file, until_broken and reporter.broken, verbose)
