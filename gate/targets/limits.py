"""Limits of a target's process, and the options that repeat them."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from .target_spec import TargetSpec

STEP_LIMIT = 10.0  # seconds that a target may take for a step
MEMORY_LIMIT, MIN_MEMORY = 8192, 64  # MiB


def replay_options(
    target: TargetSpec,
    rules: Sequence[str] | None,
    step_limit: float = STEP_LIMIT,
    memory_limit: int = MEMORY_LIMIT,
    lockstep: str | None = None,
    exclude: Sequence[str] = (),
    own_rules: Path | None = None,
) -> str:
    """The options of `schedproof replay` that repeat a run, quoted for a shell, after a space."""
    words = ["--target", target.text]
    if target.is_plain_model and not target.beside_another:
        words = []
    words += ["--beyond-start-up"] if target.beyond_start_up else []
    words += ["--rule", ",".join(rules)] if rules else []
    words += ["--exclude", ",".join(exclude)] if exclude and not rules else []
    words += ["--rules", str(own_rules)] if own_rules is not None else []
    words += ["--lockstep", lockstep] if lockstep is not None else []
    words += ["--step-limit", f"{step_limit:g}"] if step_limit != STEP_LIMIT else []
    words += ["--memory-limit", f"{memory_limit}"] if memory_limit != MEMORY_LIMIT else []
    return "".join(f" {shlex.quote(word)}" for word in words)
