"""The built-in systems. Each part is imported on first use."""

from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any

from .spec.systems import System, register

# A preempted request loses its computed tokens, and a paused one computes nothing.
PREEMPTS, PAUSES = ("preempted",), ("paused",)
SPYRE = ("sound", "documented", "2.1.2", "2.5.2")
VLLM = ("documented", "0.25", "0.30", "0.31", "0.33")


PROPERTIES = "schedproof.properties"
# These are not part of a state: drafts, the block that a load fills, failed loads, blocks being
# sent, and the content of blocks of requests that have ended. A small scope has no operator, no
# grammars, sessions, adapters or layers of other kinds.
NOT_IN_STATES_OF_VLLM = frozenset(
    {
        "V1CP-R30",
        "V1CP-R35",
        "V1CP-R36",
        "V1CP-R40",
        "V1-R23",
        "V1-R25",
        "V1-R26",
        "V1-R28",
        "V1-R92",
    }
    | {"V1-R35", "V1-R36", "V1-R37", "V1-R38", "V1-R39", "V1-R40"}
    | {"V1-R41", "V1-R42", "V1-R43", "V1-R44", "V1-R45", "V1-R46", "V1-R47", "V1-R48"}
    | {"V1-R50", "V1-R56", "V1-R59", "V1-R60", "V1-R61", "V1-R62", "V1-R63", "V1-R64", "V1-R65"}
    | {"V1-R66", "V1-R67", "V1-R68", "V1-R69", "V1-R86", "V1-R93", "V1-R94", "V1-R96"}
    | {"V1-R87", "V1-R88", "V1-R90", "V1-R91", "V1-R95", "V1-R97", "V1-R98", "V1-R99"}
)


def _system(
    name: str,
    title: str,
    *revisions: str,
    proven: bool = False,
    contracts: bool = False,
    questions: bool = False,
    explored: bool = True,
    has_releases: bool = False,
    schedulers: tuple[str, ...],
    decides_as: Mapping[str, str] = MappingProxyType({}),
    followed_by: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    **parts: Any,
) -> System:
    """Return a system whose parts are in the usual places for built-in systems.

    Args:
        proven: whether some of its rules have proofs.
        contracts: whether its arithmetic has contracts.
        questions: whether it answers some questions of `search` itself.
        explored: whether it has small scopes.
        has_releases: whether its releases are on a package index.
    """
    targets = f"schedproof.gate.targets.{name}"
    return System(
        name=name,
        title=title,
        revisions=revisions,
        catalogue=resources.files("schedproof.spec") / f"{name}.toml",
        model=f"schedproof.model.{name}.model:REFERENCE",
        bounds=f"{PROPERTIES}.{name}.bounds:BOUNDS",
        predicates=f"{PROPERTIES}.{name}.predicates:PREDICATES",
        generators=f"{PROPERTIES}.{name}.strategies",
        scales=f"{targets}.{'releases' if schedulers else 'scales'}:SCALES",
        releases=f"{targets}.releases:RELEASES" if has_releases else None,
        checkout=f"{targets}.releases:CHECKOUT" if schedulers else None,
        space=f"schedproof.solver.{name}.space:SPACE" if explored else None,
        proofs=f"schedproof.solver.{name}.proofs_by_rule:PROOFS" if proven else None,
        contracts=f"schedproof.solver.{name}.contracts:CONTRACTS" if contracts else None,
        questions=f"schedproof.gate.search.{name}.volumetric:QUESTIONS" if questions else None,
        schedulers=schedulers,
        decides_as=decides_as,
        followed_by=followed_by,
        **parts,
    )


def register_builtin() -> None:
    register(
        _system(
            *("spyre", "Spyre", *SPYRE),
            proven=True,
            contracts=True,
            questions=True,
            has_releases=True,
            schedulers=("sendnn-inference", "vllm-spyre"),
            # These releases were compared step by step with the model of another release.
            decides_as={name: name for name in SPYRE}
            | {"2.1.1": "2.1.2", "2.4.0": "2.5.2", "2.6.3": "2.5.2"},
            followed_by={"2.5.2": PAUSES},
            features=f"{PROPERTIES}.spyre.history:FEATURES",
            explain=f"{PROPERTIES}.spyre.explanations:explain",
            projections=f"{PROPERTIES}.spyre.explanations:projections",
            pads=True,
            runs_only=frozenset({"SPY-R63"}),
            builds_on="vllm",
        )
    )
    register(
        _system(
            *("vllm", "vLLM V1", *VLLM),
            proven=True,
            has_releases=True,
            schedulers=("vllm",),
            decides_as={name: name for name in VLLM} | {"0.33.0": "0.33"},
            followed_by=dict.fromkeys(VLLM, PREEMPTS),
            features=f"{PROPERTIES}.vllm.history.features:FEATURES",
            request_features=f"{PROPERTIES}.vllm.request_features",
            facts=f"{PROPERTIES}.vllm.explanations:facts",
            neutral="schedproof.model.vllm.config:NEUTRAL",
            runs_only=NOT_IN_STATES_OF_VLLM,
        )
    )
    register(
        _system(
            *("nano_vllm", "nano-vLLM", "documented", "0.2.0"),
            schedulers=("nano-vllm",),
            features=f"{PROPERTIES}.nano_vllm.history:FEATURES",
            followed_by={"documented": PREEMPTS, "0.2.0": PREEMPTS},
            runs_only=frozenset({"NAN-R48"}),
        )
    )
    register(
        _system(
            *("llmservingsim", "LLMServingSim", "documented", "head"),
            schedulers=("llmservingsim",),
            decides_as={"after 1.1.0": "head"},
            followed_by={"head": PREEMPTS},
            # A small scope has no main loop, and no batches in flight.
            runs_only=frozenset({"LSS-R19", "LSS-R20", "LSS-R21", "LSS-R26", "LSS-R35", "LSS-R37"}),
            features=f"{PROPERTIES}.llmservingsim.history:FEATURES",
            request_features=f"{PROPERTIES}.llmservingsim.strategies",
            neutral="schedproof.model.llmservingsim.config:NEUTRAL",
            builds_on="vllm",
        )
    )
    register(
        _system(
            *("generic", "Any scheduler", "documented"),
            explored=False,
            schedulers=(),
            followed_by={"documented": PREEMPTS},
            features=f"{PROPERTIES}.generic.history:FEATURES",
            request_features=f"{PROPERTIES}.generic.strategies",
            facts=f"{PROPERTIES}.generic.explanations:facts",
            neutral="schedproof.model.generic.model:NEUTRAL",
            builds_on="vllm",
        )
    )
