"""What the options ask for, and whether a ledger that is there was begun with the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...model.errors import InputError
from ...model.systems import resolve_revision
from ..console.option_checks import option
from ..targets.factory import opened
from ..targets.probe import ProbeRequest, probe
from ..targets.target_spec import parse_target
from .examples import database_of
from .executors import code
from .running import rules_of
from .settings import SCALES, Pair, Settings, check_engines, check_rules, pairs_of


class CampaignOptions(NamedTuple):
    """The options; None where one was not given, which means what the ledger has."""

    seed: int | None
    systems: tuple[str, ...] | None
    revisions: tuple[str, ...] | None
    rules: tuple[str, ...] | None
    engines: tuple[str, ...] | None
    target: str | None
    database: str | None

    def settings(self, path: Path, there: Sequence[Settings]) -> Settings:
        """The settings of the campaign in the ledger at `path`, or of a new one.

        Raises:
            InputError: an option that means nothing, or contradicts the ledger.
            UnknownTargetError, ReleaseError: no such target.
        """
        if self.database is not None:
            database_of(self.database)
        if len(there) > 1:
            same = [one for one in there if one.seed == self.seed]
            if len(same) != 1:
                seeds = ", ".join(str(one.seed) for one in there)
                problem = f"{path} holds {len(there)} campaigns, of seeds {seeds}; valid: one"
                raise InputError("--seed", problem)
            there = same
        if not there:
            return self._new()
        [begun] = there
        self._check_same(path, begun)
        return begun

    def _new(self) -> Settings:
        target = self.target or "model"
        pairs = self._pairs(target)
        engines = check_engines(self.engines or (), target)
        rules = check_rules(self.rules or (), pairs)
        if target != "model" and len(pairs) != 1:
            problem = f"{target} is a scheduler of one system, held to one revision"
            raise InputError("--system and --revision", f"{problem}; valid: one of each")
        return Settings(
            seed=self.seed or 0,
            pairs=pairs,
            rules=rules,
            engines=engines,
            target=target,
            scales=scales_of(target, pairs[0]),
            shared=self.database is not None,
            code=code(),
        )

    def _pairs(self, target: str) -> tuple[Pair, ...]:
        """What --system and --revision mean for the target."""
        systems, revisions = self.systems or (), self.revisions or ()
        if target != "model":
            spec = parse_target(target)
            systems = systems or (spec.default_system,)
            with option("--system"):
                first = resolve_revision(systems[0], None)
            revisions = revisions or (spec.default_revision() or first,)
        return pairs_of(systems, revisions)

    def _check_same(self, path: Path, begun: Settings) -> None:
        """Raise InputError where an option is not what the campaign was begun with."""
        if begun.code != code():
            problem = f"{path} was begun by another version of schedproof, Hypothesis or Z3"
            raise InputError("--ledger", f"{problem}; valid: another file")
        if self.target is None and begun.target != "model":
            # A file must not decide what is run here.
            problem = f"{path} was begun with {begun.target}; valid: the same, given again"
            raise InputError("--target", problem)
        pairs = None
        if self.systems is not None or self.revisions is not None:
            pairs = self._pairs(begun.target)
        for name, given, kept in (
            ("--seed", self.seed, begun.seed),
            ("--system and --revision", pairs, begun.pairs),
            ("--rule", self.rules, begun.rules),
            ("--engine", self.engines and check_engines(self.engines, begun.target), begun.engines),
            ("--target", self.target, begun.target),
            ("--database", None if self.database is None else True, begun.shared),
        ):
            if given is not None and given != kept:
                problem = f"{_shown(given)}; {path} was begun with {_shown(kept)}"
                raise InputError(name, f"{problem}; valid: the same, or another --ledger")


def scales_of(target: str, pair: Pair) -> dict[str, dict[str, Any]]:
    """The scales that a target takes, with the keys of the configuration that have one value
    there. The model takes all.

    Raises:
        UnknownTargetError, ReleaseError, ConfigRefused, TargetFault: there is no such target, or
            it takes none.
    """
    if target == "model":
        return {scale: {} for scale in SCALES}
    system, revision = pair
    with opened(parse_target(target)) as there:
        rules = rules_of(system, revision, (), target)
        capabilities = probe(ProbeRequest(there.target, system, revision, rules))
    return {scale: dict(capabilities.fixed[scale]) for scale in capabilities.scales}


def _shown(value: object) -> str:
    """A value in a few words."""
    if isinstance(value, tuple):
        words = [" ".join(one) if isinstance(one, tuple) else str(one) for one in value]
        return ", ".join(words) or "all"
    return str(value)
