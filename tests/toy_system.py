"""A fifth system for the tests of registration: first come, first served, one prompt a step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
from hypothesis import strategies as st

from schedproof.gate.targets.scales import GateScales
from schedproof.model.config import convert
from schedproof.model.systems import Reference
from schedproof.properties.history.bounds import Bounds
from schedproof.properties.rules.predicate import Predicate
from schedproof.solver.exploration.scope import Scope, lengths
from schedproof.solver.exploration.unreduced import PlainModels
from schedproof.solver.systems import SystemSpace
from schedproof.spec.systems import System

REVISIONS = ("documented", "one too many")


class Shape(NamedTuple):
    prompt: int
    max_tokens: int
    output_len: int | None


class ToyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    max_num_seqs: int = 2
    prefix_caching: bool = False


class Member(NamedTuple):
    id: str
    prompt: int
    left: int
    reason: str


class ToyState(NamedTuple):
    waiting: tuple[Member, ...] = ()
    running: tuple[Member, ...] = ()
    aborted: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToyModel:
    config: ToyConfig
    revision: str
    observes: ClassVar[tuple[str, ...]] = ("emitted", "waiting", "running", "finished")

    def initial(self) -> ToyState:
        return ToyState()

    def refusal(self, request: Any) -> str | None:
        return None

    def arrive(self, state: ToyState, request: Any) -> ToyState:
        tokens = request.tokens_to_emit
        reason = "length" if tokens == request.max_tokens else "eos"
        new = Member(request.id, request.prompt_len, tokens, reason)
        return state._replace(waiting=(*state.waiting, new))

    def abort(self, state: ToyState, request_id: str) -> ToyState:
        known = any(one.id == request_id for one in (*state.waiting, *state.running))
        return ToyState(
            tuple(one for one in state.waiting if one.id != request_id),
            tuple(one for one in state.running if one.id != request_id),
            (*state.aborted, request_id) if known else state.aborted,
        )

    def step(self, state: ToyState, abort_inside: tuple[str, ...] = ()) -> Any:
        slots = self.config.max_num_seqs + (self.revision == "one too many")
        admits = state.waiting and len(state.running) < slots  # TOY-R01, TOY-R02
        members = state.waiting[:1] if admits else state.running
        scheduled = {one.id: one.prompt if admits else 1 for one in members}
        for name in abort_inside:
            state = self.abort(state, name)
        members = tuple(one for one in members if one.id not in state.aborted)
        moved = {one.id: one._replace(left=one.left - 1) for one in members}
        waiting = tuple(one for one in state.waiting if one.id not in moved)
        running = tuple(moved.get(one.id, one) for one in state.running)
        running += tuple(one for name, one in moved.items() if admits)
        ended = {one.id: one.reason for one in running if not one.left}
        after = ToyState(waiting, tuple(one for one in running if one.left))
        kind = ("prefill" if admits else "decode") if scheduled else "idle"
        seen = {"kind": kind, "scheduled": scheduled, "emitted": dict.fromkeys(moved, 1)}
        seen |= {"waiting": [one.id for one in after.waiting]}
        seen |= {"running": [one.id for one in after.running]}
        seen |= {"finished": {**ended, **dict.fromkeys(state.aborted, "aborted")}}
        return after, seen


def read_config(values: Any, revision: str) -> ToyConfig:
    return convert(values, ToyConfig)


def make_model(revision: str, config: Any) -> ToyModel:
    return ToyModel(read_config(config, revision), revision)


PREDICATES = {
    "TOY-R01": Predicate(
        lambda history, step: (
            f"{len(step.running or ())} run"
            if len(step.running or ()) > history.config["max_num_seqs"]
            else None
        ),
        lambda history, step: len(step.running or ()) >= history.config["max_num_seqs"],
    ),
    "TOY-R02": Predicate(
        lambda history, step: (
            "two prompts in a step" if len(history.prefill_members(step)) > 1 else None
        ),
        lambda history, step: len(history.unstarted()) > 1,
        "prefill",
    ),
    "TOY-R03": Predicate(
        lambda history, step: (
            "a step for nothing" if step.kind == "idle" and history.live else None
        ),
        lambda history, step: bool(history.live),
    ),
}


def shapes(config: Any, *_: Any) -> st.SearchStrategy[Shape]:
    sizes = st.integers(1, 4)
    return st.builds(Shape, sizes, sizes, st.none())


class Generators:
    LATE_STEPS = 6

    configs = staticmethod(
        lambda scale, revision: st.builds(
            lambda slots: {"max_num_seqs": slots, "prefix_caching": False}, st.integers(1, 3)
        )
    )
    shapes = long_prompts = beside_the_batch = beside_a_prefill = staticmethod(shapes)
    contents = staticmethod(lambda config, earlier, name, length: st.just(((name, length),)))
    caches = staticmethod(lambda config: False)
    steps_to_border = staticmethod(lambda config, history: 1)

    @staticmethod
    def fitted(config: Any, content: Any, shape: Shape | None) -> Shape:
        prompt = sum(length for _, length in content)
        return Shape(prompt, shape.max_tokens if shape else 2, None)


@dataclass(frozen=True)
class ToyScope(Scope):
    system: ClassVar[str] = "toy"
    smallest: ClassVar[dict[str, Any]] = {}


SCOPES = (ToyScope("pairs", "two requests", 2, tuple(lengths((1, 2), (1, 2))), (1, 2)),)
SPACE = SystemSpace(
    SCOPES,
    SCOPES,
    "max_num_seqs",
    "slot",
    lambda revision, config, limits, formula: PlainModels(
        "toy", "max_num_seqs", revision, config, limits
    ),
)
RULE = """
[[rule]]
id = "{}"
title = "{}"
says = "{}"
source = "the tests"
kind = "safety"
revisions = ["*"]
needs = ["running"]
witness = "{}"
engines = ["hypothesis", "explore"]
"""
ROWS = (
    ("TOY-R01", "slots", "At most max_num_seqs requests run.", "All slots are taken."),
    ("TOY-R02", "one prompt", "A step prefills one prompt.", "Two requests wait."),
    ("TOY-R03", "no idle step", "No step is idle while requests are unfinished.", "One is there."),
)


def alone(config: Any, one: Any) -> int:
    """Steps that a request takes at most by itself."""
    return int(1 + one.max_tokens)


def toy_system(folder: Path) -> System:
    """The descriptor; its catalogue is written into the folder."""
    catalogue = folder / "toy.toml"
    catalogue.write_text("".join(RULE.format(*row) for row in ROWS), encoding="utf-8")
    return System(
        name="toy",
        title="Toy",
        revisions=REVISIONS,
        catalogue=catalogue,
        model=Reference(read_config, make_model),
        bounds=Bounds(alone, lambda *_: None, lambda config, work, requests: 2 * work + requests),
        predicates=PREDICATES,
        generators=Generators,
        scales=GateScales({"small": {}, "short": {}, "tight": {}}, {}, (), "max_num_seqs"),
        space=SPACE,
    )
