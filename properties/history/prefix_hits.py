"""Prefix hits: the tokens that a request finds in the cache when it starts.

Source: target protocol, "The step observation".
"""

from collections.abc import Mapping
from typing import Any

from ...model.observation import Step
from .request_history import RequestHistory


def caches(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration enables a prefix cache, or has no key for one."""
    return bool(config.get("prefix_caching", config.get("enable_prefix_caching", True)))


def tokens_hit(
    config: Mapping[str, Any],
    step: Step,
    account: RequestHistory,
    aborted_inside: bool,
    *,
    pads: bool = False,
) -> int | None:
    """Return the prefix hit, in tokens, of a request that starts in this step. Return 0 for a
    request that started earlier.

    A request that leaves in its first step is no longer listed. If it finished, its hit consists of
    the tokens that it did not compute. Return None if the hit is unknown, that is, if the request
    was aborted or ended with an error, or if the target `pads` the tokens that a request computes.
    """
    if account.started or not caches(config):
        return 0
    if step.prefix_hit is not None and account.id in step.prefix_hit:
        return step.prefix_hit[account.id]
    if aborted_inside or (step.finished or {}).get(account.id) == "error":
        return None
    if step.finished is None:
        has_finished = step.prefix_hit is not None and account.id in step.scheduled
    else:
        has_finished = step.finished.get(account.id, "aborted") != "aborted"
    if not has_finished:
        return 0
    if pads:
        return None
    return max(account.prompt + account.regenerated - step.scheduled.get(account.id, 0), 0)
