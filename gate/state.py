"""What a gate is about, and what came out of it so far."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..model.faults import TargetFault
from ..model.scenario import Scenario
from ..model.target import Target
from ..spec.catalogue import Rule
from . import verdict
from .deviations import Deviations
from .events import Report
from .profiles import PROFILES, Profile


@dataclass
class Gate:
    """One gate: what is judged, by which rules, how hard, and what came out so far.

    `understudy` decides as the target does, and faster, where a model of its release is known:
    failures are shrunk on it, and confirmed on the target. `replay_options` are those with which
    the `replay` command sees what the gate saw.
    """

    target: Target
    target_spec: str
    system: str
    revision: str
    rules: Sequence[Rule]
    chosen: bool
    profile_name: str
    seed: int
    max_failures: int
    out: Path
    report: Report
    stderr: Callable[[], str] = lambda: ""
    replay_options: str = ""
    at_stake: Counter[str] = field(default_factory=Counter)
    engines: list[verdict.EngineRun] = field(default_factory=list)
    findings: list[verdict.Finding] = field(default_factory=list)
    unconfirmed: set[str] = field(default_factory=set)
    corpus: Sequence[Scenario] = ()
    deviations: Deviations = field(default_factory=Deviations)
    understudy: Target | None = None
    interrupted: bool = False
    fault: TargetFault | None = None

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the rules that are judged."""
        return frozenset(rule.id for rule in self.rules)

    @property
    def profile(self) -> Profile:
        """The budgets."""
        return PROFILES[self.profile_name]
