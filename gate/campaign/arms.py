"""The kinds of work that a campaign may choose from, each with its items in their order."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from ...properties.search.boundary_cases import LIMIT_OF
from ...solver.spyre.admission_sequences import FORMULA_OF_REVISION
from ...solver.systems import proofs_of, space_of
from ..search.setting import LIMIT
from .items import Exploring, Item, Proving, Sample
from .results import NearMiss
from .running import rules_of
from .settings import Settings

# Runs of an arm's first items, a second or two of each; later ones have up to ten times as many,
# so that what runs for hours, on a thousand cores, is not many small messages.
EXAMPLES = {"small": 60, "short": 60, "tight": 30}
SAME_LENGTH, LONGEST = 4, 10
TRANSITIONS = 10_000
BLOCKS = (64, 16, 32, 128)  # tokens, the published one first
# For SPY-R07: the smallest limits at which two and more requests are in each other's way.
LIMITS = (36, 40, 48, 56)
LIMIT_BLOCK = 4
MAX_REQUESTS = 3
AT_LIMIT = "at "  # and the configuration key of the limit


class Arm(NamedTuple):
    """One kind of work: a scale, a limit to stay near to, a scope, or a rule for Z3."""

    engine: str
    system: str
    revision: str
    part: str


def arms(settings: Settings) -> Iterator[Arm]:
    """Every kind of work of a campaign, in the order in which it is chosen where all is equal."""
    for system, revision in settings.pairs:
        rules = rules_of(system, revision, settings.rules, settings.target)
        if not rules:
            continue
        if "hypothesis" in settings.engines:
            for scale in settings.scales:
                yield Arm("hypothesis", system, revision, scale)
            for key in dict.fromkeys(LIMIT_OF[rule.id] for rule in rules if rule.id in LIMIT_OF):
                yield Arm("hypothesis", system, revision, AT_LIMIT + key)
        if "explore" in settings.engines and (space := space_of(system)) is not None:
            for scope in space.scopes:
                if scope.belongs_to(revision):
                    yield Arm("explore", system, revision, scope.name)
        if "z3" in settings.engines:
            ids = [rule.id for rule in rules]
            for rule in _decided(system, ids):
                yield Arm("z3", system, revision, rule)
            if system == "spyre" and LIMIT in ids and revision in FORMULA_OF_REVISION:
                yield Arm("z3", system, revision, LIMIT)


def item_of(
    settings: Settings,
    arm: Arm,
    number: int,
    seed: int,
    known: tuple[str, ...],
    near: NearMiss | None,
) -> Item | None:
    """The arm's item of this number, from 0; None where it has no more.

    `known`: shapes of failures that are known; `near`: the nearest miss of the arm's limit.
    """
    if arm.engine == "hypothesis":
        sample = Sample(
            system=arm.system,
            revision=arm.revision,
            scale=arm.part,
            seed=seed,
            examples=runs_of(arm, number),
            target=settings.target,
            fixed=settings.scales.get(arm.part, {}),
            known=known,
            rules=settings.rules,
            first=settings.shared and number == 0,
        )
        return beside(sample, arm.part, near, number) if arm.part.startswith(AT_LIMIT) else sample
    if arm.engine == "explore":
        [scope] = [one for one in space_of(arm.system).scopes if one.name == arm.part]
        requests = range(2, scope.requests + 1)
        if number >= len(requests):
            return None
        return Exploring(
            system=arm.system,
            revision=arm.revision,
            scope=arm.part,
            requests=requests[number],
            transitions=TRANSITIONS,
            rules=settings.rules,
        )
    question = Proving(system=arm.system, revision=arm.revision, rule=arm.part, block=LIMIT_BLOCK)
    if arm.part == LIMIT:
        if number >= len(LIMITS):
            return None
        return replace(question, limit=LIMITS[number], requests=MAX_REQUESTS)
    return replace(question, block=BLOCKS[number]) if number < len(BLOCKS) else None


def runs_of(arm: Arm, number: int) -> int:
    """Runs of the arm's sample of this number."""
    return EXAMPLES.get(arm.part, EXAMPLES["small"]) * min(1 + number // SAME_LENGTH, LONGEST)


def beside(sample: Sample, part: str, near: NearMiss | None, number: int) -> Sample | None:
    """The sample in the configuration that came nearest to its limit, or with the limit moved to
    what the run used of it, or one below; None where nothing has come near."""
    if near is None:
        return None
    key = part.removeprefix(AT_LIMIT)
    used = near.config[key] - near.left
    limit = (near.config[key], used, max(used - 1, 1))[number % 3]
    return replace(sample, scale=next(iter(EXAMPLES)), config={**near.config, key: limit})


def _decided(system: str, ids: list[str]) -> list[str]:
    """Rules that lemmas decide; of those that share their lemmas the first."""
    decided = proofs_of(system)
    once = {id(decided[rule]): rule for rule in reversed(ids) if rule in decided}
    return sorted(once.values(), key=ids.index)
