"""What a request finds when it starts: in the prefix cache, or loaded by a connector.

Source: target protocol, "The step observation".
"""

from collections.abc import Mapping
from typing import Any

from ...model.observation import Step
from ..vllm.history import loads, speculation
from .request_history import RequestHistory


def caches(config: Mapping[str, Any]) -> bool:
    """The configuration has a prefix cache: where no key asks for one, there always is."""
    return bool(config.get("prefix_caching", config.get("enable_prefix_caching", True)))


def found(
    config: Mapping[str, Any], step: Step, account: RequestHistory, aborted_inside: bool
) -> int | None:
    """Tokens that a request need not compute when it starts in this step: 0 later.

    A request that leaves in its first step is not listed any more. If it has finished, what
    it did not compute was found; if it was aborted, or had drafts, that is not known.
    """
    if account.started:
        return 0
    known = account.load_fails_at is None or not caches(config)
    if known and account.brings and account.id in step.scheduled:
        return loads.begins_with(config, account)
    if not caches(config):
        return 0
    if step.prefix_hit is not None and account.id in step.prefix_hit:
        return step.prefix_hit[account.id]
    if aborted_inside:
        return None
    if step.finished is None:
        has_finished = step.prefix_hit is not None and account.id in step.scheduled
    else:
        has_finished = step.finished.get(account.id, "aborted") != "aborted"
    if not has_finished:
        return 0
    if speculation.drafts(config):
        return None  # some releases pad it with drafts
    return max(account.prompt + account.regenerated - step.scheduled.get(account.id, 0), 0)
