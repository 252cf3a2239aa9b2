"""Turn the options of `schedproof campaign` into settings, and check them against an existing
ledger.
"""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.systems import check_system, resolve_revision, revisions_of
from ...spec.catalogue import load, selected
from ...spec.systems import SYSTEMS
from ..console.option_checks import option
from ..processes.executors import our_code
from ..targets.factory import opened
from ..targets.probe import ProbeRequest, probe
from ..targets.scales import ANY, scales_of
from ..targets.target_spec import parse_target
from .items import Kind, Settings
from .running import rules_of

Pair = tuple[str, str]  # a system and its revision


class CampaignOptions(NamedTuple):
    """The options of the command. None means that an option was not given, so the value in the
    ledger applies."""

    seed: int | None = None
    systems: tuple[str, ...] | None = None
    revisions: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    target: str | None = None

    def settings(self, path: Path, begun: Settings | None) -> Settings:
        """Return the settings of the campaign in the ledger at `path`, or of a new one. Raise
        InputError if an option is invalid or contradicts the ledger."""
        if begun is not None:
            self._check_same(path, begun)
            return begun
        target = self.target or "model"
        pairs = self._pairs(target)
        rules = check_rules(self.rules or (), pairs)
        if target != "model" and len(pairs) != 1:
            problem = f"{target} is one target, so it needs one system and one revision"
            raise InputError("--system and --revision", f"{problem}; valid: at most one of each")
        return Settings(
            seed=self.seed or 0,
            pairs=pairs,
            rules=rules,
            target=target,
            kinds=kinds_of(target, pairs, rules),
            code=our_code(),
        )

    def _pairs(self, target: str) -> tuple[Pair, ...]:
        systems, revisions = self.systems or (), self.revisions or ()
        if target != "model":
            spec = parse_target(target)
            systems = systems or (spec.default_system,)
            with option("--system"):
                first = resolve_revision(systems[0], None)
            revisions = revisions or (spec.default_revision() or first,)
        return pairs_of(systems, revisions)

    def _check_same(self, path: Path, begun: Settings) -> None:
        if begun.code != our_code():
            problem = f"{path} was started by another version of schedproof, Hypothesis or Z3"
            raise InputError("--ledger", f"{problem}; valid: another file")
        if self.target is None and begun.target != "model":
            # Running a target executes code. So the user must name the target; a ledger alone must
            # not decide that.
            problem = f"{path} was started with {begun.target}; valid: name that target again"
            raise InputError("--target", problem)
        pairs = None
        if self.systems is not None or self.revisions is not None:
            pairs = self._pairs(begun.target)
        for name, given, kept in (
            ("--seed", self.seed, begun.seed),
            ("--system and --revision", pairs, begun.pairs),
            ("--rule", self.rules and check_rules(self.rules, begun.pairs), begun.rules),
            ("--target", self.target, begun.target),
        ):
            if given is not None and given != kept:
                problem = f"{_words(given)}; {path} was started with {_words(kept)}"
                raise InputError(name, f"{problem}; valid: the same, or another --ledger")


def pairs_of(systems: Sequence[str], revisions: Sequence[str]) -> tuple[Pair, ...]:
    """Return the selected pairs of a system and a revision. An empty sequence selects all."""
    for name in systems:
        with option("--system"):
            check_system(name)
    chosen = [name for name in SYSTEMS if name in systems or not systems]
    pairs = [(system, revision) for system in chosen for revision in revisions_of(system)]
    for name in revisions:
        if name not in {revision for _, revision in pairs}:
            valid = ", ".join(dict.fromkeys(revision for _, revision in pairs))
            problem = f"{name!r} is not a revision of {', '.join(chosen)}; valid: {valid}"
            raise InputError("--revision", problem)
    return tuple(pair for pair in pairs if pair[1] in revisions or not revisions)


def check_rules(rules: Sequence[str], pairs: Sequence[Pair]) -> tuple[str, ...]:
    catalogue = {rule.id: rule for system, _ in pairs for rule in load(system)}
    ids = selected([*catalogue.values()], rules)
    for rule in (catalogue[name] for name in ids):
        if not rule.checked:
            reason = rule.unchecked or rule.planned
            raise InputError("--rule", f"{rule.id} has no predicate: {reason}")
    return tuple(ids)


def kinds_of(target: str, pairs: Sequence[Pair], rules: tuple[str, ...]) -> tuple[Kind, ...]:
    """Return every scale and configuration that the target accepts, alternating between the
    systems."""
    kinds: dict[Pair, list[Kind]] = {}
    refused: ConfigRefused | None = None
    with opened(parse_target(target)) as open_target:
        for system, revision in pairs:
            judged_by = rules_of(system, revision, rules, target)
            own = [known for known in scales_of(system).configurations if known.changes]
            for configuration in (ANY, *own) if judged_by else ():
                changes = configuration.changes
                subject = ProbeRequest(open_target.target, system, revision, judged_by, changes)
                try:
                    probed = probe(subject)
                except ConfigRefused as error:
                    refused = refused or error
                    continue
                for scale in probed.scales:
                    fixed = {**probed.fixed[scale]}
                    kind = Kind(
                        system=system,
                        revision=revision,
                        scale=scale,
                        fixed=fixed,
                        avoid=tuple(sorted(probed.refused_kinds)),
                    )
                    kinds.setdefault((system, revision), []).append(kind)
    if not kinds and refused is not None:
        raise refused
    return tuple(kind for turn in zip_longest(*kinds.values()) for kind in turn if kind)


def _words(value: object) -> str:
    if isinstance(value, tuple):
        words = [" ".join(part) if isinstance(part, tuple) else str(part) for part in value]
        return ", ".join(words) or "all"
    return str(value)
