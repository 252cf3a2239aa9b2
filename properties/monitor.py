"""The judge of one run: asks every rule after every step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.observation import Step
from ..model.scenario import Request
from ..spec.catalogue import Rule
from .ledger import Ledger
from .predicate import Broken, Predicate
from .rules import LOCKSTEP, NEVER_CRASHES, NEVER_HANGS

ABSENT: tuple[tuple[str, ...], ...] = ((), ("prefill",), ("decode",), ("prefill", "decode"))


class Monitor:
    """Follows a run and names the rules that a step breaks, in catalogue order.

    `at_stake` counts, per rule, the steps in which the rule's witness occurred.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        predicates: Mapping[str, Predicate],
        config: Mapping[str, Any],
        at_stake: Counter[str] | None = None,
        revision: str = "",
        system: str = "spyre",
    ) -> None:
        self.ledger = Ledger(config, revision, system)
        self.at_stake = Counter() if at_stake is None else at_stake
        self._rules = [rule.id for rule in rules]
        checks = [(rule.id, *predicates[rule.id]) for rule in rules if rule.id in predicates]
        # Which rules speak of a step, by who has no part in it.
        self._checks = {
            absent: [check[:3] for check in checks if check[3] not in absent] for absent in ABSENT
        }

    def accept(self, request: Request, *, open_ended: bool = False) -> None:
        """The target took a request; `open_ended`: nobody knows yet how much it generates."""
        self.ledger.accept(request, open_ended=open_ended)

    def abort(self, request_id: str, inside: bool) -> None:
        """The target took an abort."""
        self.ledger.abort(request_id, inside)

    def observe(self, step: Step, differences: Sequence[str] | None = None) -> list[Broken]:
        """The rules that this step breaks; `differences` from what the release's model did are
        none where no model is beside the target."""
        ledger, number = self.ledger, self.ledger.step
        broken = []
        for rule, is_broken, is_at_stake in self._checks[self._absent_members(step)]:
            message = is_broken(ledger, step)
            if message is not None:
                broken.append(Broken(rule, number, message))
            if message is not None or is_at_stake(ledger, step):
                self.at_stake[rule] += 1
        if differences is not None and LOCKSTEP in self._rules:
            self.at_stake[LOCKSTEP] += bool(step.scheduled)
            if differences:
                broken.append(Broken(LOCKSTEP, number, "; ".join(differences)))
        for rule in (NEVER_CRASHES, NEVER_HANGS):
            self.at_stake[rule] += bool(ledger.live)
        ledger.observe(step)
        return broken

    def crashed(self, message: str) -> list[Broken]:
        """The scheduler raised instead of stepping."""
        return self._fault(NEVER_CRASHES, message)

    def hung(self, message: str) -> list[Broken]:
        """The scheduler did not answer in time."""
        return self._fault(NEVER_HANGS, message)

    def _absent_members(self, step: Step) -> tuple[str, ...]:
        absent = () if self.ledger.prefill_members(step) else ("prefill",)
        return absent if self.ledger.decode_members(step) else (*absent, "decode")

    def _fault(self, rule: str, message: str) -> list[Broken]:
        self.at_stake[rule] += 1
        return [Broken(rule, self.ledger.step, message)]
