"""Parked requests: a connector loads their blocks while others run.

Source: target protocol, "The step observation".
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ....model.observation import Step
from ....model.scenario import Request
from . import groups, in_flight
from .request_history import VllmRequestHistory
from .run import VllmRun


def are_made(config: Mapping[str, Any]) -> bool:
    return bool(config.get("kv_connector", False))


def are_synchronous(config: Mapping[str, Any]) -> bool:
    """Return whether requests load in the step in which they start, instead of being parked."""
    return bool(config.get("synchronous_loads"))


def meet_decisions(config: Mapping[str, Any]) -> bool:
    """Return whether a load may fill blocks to which a decision in flight still writes."""
    return are_made(config) and in_flight.depth(config) > 1


def book(history: VllmRun, step: Step) -> None:
    """Record the requests that this step parks. Each request is parked for a load only once. If the
    worker reports in this step, each load needs one fewer report."""
    config, requests = history.config, history.requests
    for name in step.parked or ():
        request = requests.get(name)
        if request is not None and request.parked_since is None:
            request.parked_since, request.load_left = history.step, request.load_steps + 1
            request.tokens_loading = request.slots = offered(config, request)
    if in_flight.reports(history, step):
        for account in requests.values():
            account.load_left = max(account.load_left - 1, 0)
        note_aborts_inside(history.live[name] for name in history.aborts_inside)
    if meet_decisions(config):
        for name, blocks in (step.blocks or {}).items():
            if name in requests:
                requests[name].blocks = tuple(blocks)


def offered(config: Mapping[str, Any], request: VllmRequestHistory) -> int:
    """Return how many of the first tokens of a request a connector offers: those in whole blocks of
    every group, or all tokens if the connector has them all."""
    if not request.external:
        return 0
    block = groups.hit_unit(config)
    whole = request.external >= request.num_tokens
    tokens = request.num_tokens if whole else request.external // block * block
    return min(tokens, request.num_tokens - 1) if are_synchronous(config) else tokens


def has_too_little(config: Mapping[str, Any], request: Request) -> bool:
    """Return whether a connector has less than a whole block of some group, and therefore loads
    nothing."""
    return request.external_tokens < min(groups.hit_unit(config), request.prompt_len)


def newly_parked(live: Mapping[str, VllmRequestHistory], step: Step) -> list[str]:
    """Return the requests whose load begins in this step. Sessions between two turns are also
    listed as parked, but load nothing."""
    new = [n for n in step.parked or () if n in live and live[n].parked_since is None]
    return [name for name in new if not live[name].turns]


def begins_now(request: VllmRequestHistory, step: Step) -> bool:
    """Return whether the load of a request begins in this step.

    A load that begins, ends and fails in one step is visible only as an error, since the request is
    not parked after the step.
    """
    failed = (step.finished or {}).get(request.id) == "error"
    return request.parked_since is None and (failed or request.id in (step.parked or ()))


def is_new(config: Mapping[str, Any], request: VllmRequestHistory) -> bool:
    """Return whether a connector has tokens of a request that has never been parked."""
    return are_made(config) and request.parked_since is None and offered(config, request) > 0


def take_unseen(history: VllmRun, step: Step) -> bool:
    """Return whether a request may have received blocks in this step without the step showing them.
    This is possible if the request left in this step, and either its load had begun, or it had
    started again after a failed load."""
    if not are_made(history.config):
        return False
    errors = {name for name, reason in (step.finished or {}).items() if reason == "error"}
    begin = [history.live[name] for name in errors | history.aborts_inside if name in history.live]
    if any(request.external > 0 and not request.started for request in begin):
        return True
    gone = [name for name in step.scheduled if name not in (step.blocks or {})]
    return any(name in history.live and may_fail(history.live[name]) for name in gone)


def tokens_at_start(config: Mapping[str, Any], request: VllmRequestHistory) -> int:
    """Return how many tokens need not be computed once the load has finished. The last token is not
    counted, because it is always computed. After a failure, return a lower bound: the tokens of the
    whole blocks before the failure."""
    return min(tokens_loaded(config, request), request.num_tokens - 1)


def tokens_loaded(config: Mapping[str, Any], request: VllmRequestHistory) -> int:
    """Return how many tokens a load provides. After a failure, return a lower bound: the tokens of
    the whole blocks before the failure. With several groups, a load fails as a whole."""
    tokens, right = request.tokens_loading or offered(config, request), request.load_fails_at
    if right is None or right >= tokens:
        return tokens
    block = int(config["block_size"])
    return 0 if groups.are_several(config) else right // block * block


def begin(request: VllmRequestHistory, step: Step, block: int) -> None:
    """Record that a request starts after its load has finished. After a failed load, the blocks
    that the request keeps are unknown until a step shows them."""
    request.tokens_loading = 0
    if request.load_fails_at is not None:
        request.slots = len((step.blocks or {}).get(request.id, ())) * block


def loading(request: VllmRequestHistory) -> bool:
    return request.parked_since is not None and request.load_left > 0


def may_fail(request: VllmRequestHistory) -> bool:
    """Return whether a request may still be waiting because its load fails or has failed. It may
    then have all of its blocks or none."""
    return not request.started and request.load_fails_at is not None


def has_failed(request: VllmRequestHistory) -> bool:
    """Return whether a request has not started because its load has failed."""
    return (
        bool(request.tokens_loading) and request.load_fails_at is not None and not loading(request)
    )


def end_on_failure(config: Mapping[str, Any]) -> bool:
    """Return whether a failed load ends its request. If not, the request computes the tokens
    itself."""
    return config.get("kv_load_failure_policy") == "fail"


def ends_on_failure(config: Mapping[str, Any], request: VllmRequestHistory) -> bool:
    """Return whether the policy ends the request because its load fails (V1-R28), even if the load
    has not begun yet or has already ended."""
    if request.load_fails_at is None or request.load_fails_at >= (
        request.tokens_loading or offered(config, request)
    ):
        return False
    return are_made(config) and end_on_failure(config)


def place_unknown(request: VllmRequestHistory) -> bool:
    """Return whether later requests may overtake a request, because the connector may defer it, or
    because its load has failed. A failure in the first block counts too."""
    never_began = not request.started and not request.preemptions
    may_be_put_off = request.deferrals > 0 and never_began and request.parked_since is None
    return may_be_put_off or has_failed(request)


def note_end(request: VllmRequestHistory) -> None:
    """Record that a request has ended. If its blocks are sent, sending begins in the next step.
    Tokens that it was still loading are never found in the cache."""
    if loading(request):
        request.tokens_loading = 0
    if may_be_loaded_unseen(request):
        request.load_left = request.load_steps + 1
    if is_sent(request):
        request.load_left = max(request.load_left, (request.send_steps or 0) + 1)


def may_be_loaded_unseen(request: VllmRequestHistory) -> bool:
    """Return whether a request was aborted in a step that may have parked it without showing it."""
    unseen = request.parked_since is None and not request.started
    return request.ended == "aborted" and request.load_steps > 0 and unseen


def note_aborts_inside(requests: Iterable[VllmRequestHistory]) -> None:
    """Record that this step counts as the first in which the blocks of these aborted requests are
    sent."""
    for request in requests:
        if request.send_aborted and request.send_steps is not None:
            request.send_steps -= 1


def is_sent(request: VllmRequestHistory) -> bool:
    """Return whether the blocks of an ended request are being sent or have been sent."""
    if request.send_steps is None:
        return False
    return request.ended in ("length", "eos") or (
        request.ended == "aborted" and request.send_aborted
    )


def deferrals(requests: Iterable[VllmRequestHistory]) -> int:
    """Return the largest number of steps for which these requests may wait for a connector's
    answer."""
    return sum(request.deferrals for request in requests)


def under_way(
    config: Mapping[str, Any], requests: Iterable[VllmRequestHistory], step: Step
) -> bool:
    """Return whether a load writes or may write blocks, or has just failed and thus ended a
    request."""
    if not are_made(config):
        return False
    return (
        any(request.load_left for request in requests) or "error" in (step.finished or {}).values()
    )
