"""Which runs can be followed without their past."""

from collections.abc import Mapping
from typing import Any

from .run_history import caches


def may_forget(system: str, config: Mapping[str, Any]) -> bool:
    """No rule asks what was said by requests that have ended: it could not be found in a cache.

    LLMServingSim has a witness that asks it all the same, of prompts that a cache would know.
    """
    return system != "llmservingsim" and not caches(config)
