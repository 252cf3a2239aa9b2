"""The systems that schedproof brings along. A part is imported when it is first used."""

from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from .spec.systems import System, register

# What a preempted request has computed is lost, and what a paused one computes does not come.
PREEMPTS, PAUSES = ("preempted",), ("paused",)


def _system(
    name: str,
    title: str,
    *revisions: str,
    proven: bool = False,
    explored: bool = True,
    schedulers: tuple[str, ...],
    followed_by: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> System:
    """A system whose parts lie where the built-in ones have them; `proven`: some of its rules;
    `explored`: it has small scopes."""
    properties = "schedproof.properties"
    return System(
        name=name,
        title=title,
        revisions=revisions,
        catalogue=resources.files("schedproof.spec") / f"{name}.toml",
        model=f"schedproof.model.{name}.model:REFERENCE",
        bounds=f"{properties}.history.bounds:{name.upper()}",
        predicates=f"{properties}.predicates.{name}:PREDICATES",
        generators=f"{properties}.search.{name}",
        setup=f"schedproof.gate.targets.setup:{name.upper()}",
        space=f"schedproof.solver.{name}.space:SPACE" if explored else None,
        decided=f"schedproof.solver.{name}.other_rules:DECIDED" if proven else None,
        neutral=f"{properties}.checking.terms:{name.upper()}",
        schedulers=schedulers,
        followed_by=followed_by,
    )


def register_builtin() -> None:
    """Register the built-in systems, the default one first."""
    register(
        _system(
            *("spyre", "Spyre", "sound", "documented", "2.1.2", "2.5.2"),
            proven=True,
            schedulers=("sendnn-inference", "vllm-spyre"),
            followed_by={"2.5.2": PAUSES},
        )
    )
    register(
        _system(
            *("vllm", "vLLM V1", "documented"),
            proven=True,
            schedulers=("vllm",),
            followed_by={"documented": PREEMPTS},
        )
    )
    register(
        _system(
            *("nano_vllm", "nano-vLLM", "documented", "0.2.0"),
            schedulers=("nano-vllm",),
            followed_by={"documented": PREEMPTS, "0.2.0": PREEMPTS},
        )
    )
    register(
        _system(
            *("llmservingsim", "LLMServingSim", "documented", "head"),
            schedulers=("llmservingsim",),
            followed_by={"head": PREEMPTS},
        )
    )
    register(
        _system(
            *("generic", "Any scheduler", "documented"),
            explored=False,
            schedulers=(),
            followed_by={"documented": PREEMPTS},
        )
    )
