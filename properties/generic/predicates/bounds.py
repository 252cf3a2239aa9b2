"""What a configuration bounds: tokens and requests of a step, the length of a request, its order.

Source: target protocol, Configuration of the generic system.
"""

from ....model.observation import Step
from ...history.request_history import RequestHistory
from ...history.run_history import RunHistory
from ...rules.predicate import Predicate


def budget_exceeded(history: RunHistory, step: Step) -> str | None:
    """A step computes at most max_num_batched_tokens tokens (GEN-R01)."""
    budget, tokens = history.config["max_num_batched_tokens"], sum(step.scheduled.values())
    if budget is None or tokens <= budget:
        return None
    return f"{tokens} tokens in a step, max_num_batched_tokens is {budget}"


def budget_used_up(history: RunHistory, step: Step) -> bool:
    """A step uses the whole budget."""
    return bool(sum(step.scheduled.values()) == history.config["max_num_batched_tokens"])


def too_many_at_once(history: RunHistory, step: Step) -> str | None:
    """A step computes tokens of at most max_num_seqs requests (GEN-R02)."""
    slots = history.config["max_num_seqs"]
    if slots is None or len(step.scheduled) <= slots:
        return None
    return f"{len(step.scheduled)} requests in a step, max_num_seqs is {slots}"


def slots_are_taken(history: RunHistory, step: Step) -> bool:
    """A step computes tokens of max_num_seqs requests, while another one is unfinished."""
    slots = history.config["max_num_seqs"]
    return slots is not None and len(step.scheduled) == slots < len(history.live)


def too_long(history: RunHistory, step: Step) -> str | None:
    """Prompt and answer of a request are together at most max_model_len tokens (GEN-R03)."""
    longest = history.config["max_model_len"]
    for name, emitted in (step.emitted or {}).items():
        one = history.live.get(name)
        if longest is None or one is None:
            continue
        if emitted and one.prompt + one.emitted + emitted > longest:
            tokens = one.prompt + one.emitted + emitted
            return f"{name} has {tokens} tokens, max_model_len is {longest}"
    return None


def as_long_as_may_be(history: RunHistory, step: Step) -> bool:
    """A request gets the last token that the length allows."""
    longest = history.config["max_model_len"]
    live = history.live
    return any(
        name in live and tokens and live[name].prompt + live[name].emitted + tokens == longest
        for name, tokens in (step.emitted or {}).items()
    )


def overtaken(history: RunHistory, step: Step) -> str | None:
    """First come, first served: no request starts while one that came before it has never been
    scheduled (GEN-R04). One that can never run waits for nothing."""
    if history.config["order"] != "fcfs":
        return None
    waits: RequestHistory | None = None
    for one in history.live.values():
        if one.id in history.aborts_inside and one.id not in step.scheduled:
            continue
        if not _begun(one) and not one.beyond and one.id not in step.scheduled:
            waits = waits or one
        elif waits is not None and not _begun(one) and step.scheduled.get(one.id):
            return f"{one.id} starts, {waits.id} came before it and has not started"
    return None


def one_starts_before_another(history: RunHistory, step: Step) -> bool:
    """Of two requests that have not started one starts in this step, and the other does not."""
    if history.config["order"] != "fcfs":
        return False
    new = [one.id in step.scheduled for one in history.live.values() if not _begun(one)]
    return any(new) and not all(new)


def _begun(one: RequestHistory) -> bool:
    return one.max_computed > 0 or one.emitted > 0


PREDICATES = {
    "GEN-R01": Predicate(budget_exceeded, budget_used_up),
    "GEN-R02": Predicate(too_many_at_once, slots_are_taken),
    "GEN-R03": Predicate(too_long, as_long_as_may_be),
    "GEN-R04": Predicate(overtaken, one_starts_before_another),
}
