"""The calls that vLLM's engine core makes to the scheduler before and after a decision, in order.

Source: EngineCore.step and EngineCore.step_with_batch_queue. The order of decisions, results and
aborts is in `target` and `in_flight`.
"""

import importlib
from typing import Any

from ..scheduler_class import own_class
from . import grammars
from .grammars import Grammars
from .in_flight import Flight


def decide(scheduler: Any) -> Any:
    """Return the next decision. If the scheduler says that it has no requests, return an empty one:
    the engine core would not ask the scheduler, but sleep until a request arrives."""
    if not scheduler.has_requests():
        return importlib.import_module("vllm.v1.core.sched.output").SchedulerOutput.make_empty()
    return scheduler.schedule()


def released_class(scheduler: Any) -> type:
    """Return the release's own class of a scheduler, from which a user's class may be derived."""
    own = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
    return own_class(type(scheduler), own)


def sleeps(scheduler: Any, released: Any) -> bool:
    """Return whether the engine core would sleep if no decision were in flight. An engine core that
    sleeps waits for a request, and does not learn which loads and sends the worker has finished.

    Earlier releases say that they have no requests even while blocks are being sent. This is not
    modelled, so return False for these releases. They are recognized by a method of the
    `released_class`: the method of a user's class may only call it.
    """
    knows_of_sends = "connector" in released.has_finished_requests.__code__.co_names
    return knows_of_sends and not scheduler.has_requests()


def constrain(scheduler: Any, flight: Flight, own: Grammars, waited: bool) -> None:
    """Let the scheduler compute which tokens each grammar allows (the masks). If the masks depend
    on tokens in flight, the engine core has `waited` for these tokens, and also gives the scheduler
    the worker's drafts to check.
    """
    decision = flight.decision
    if not getattr(decision, "has_structured_output_requests", False):
        return
    if waited and flight.drafts:
        scheduled = decision.scheduled_spec_decode_tokens
        names = [name for name in flight.drafts if name not in own.lost]
        drafts = [own.drafts(name, flight.first[name], len(scheduled[name])) for name in names]
        tokens = importlib.import_module("vllm.v1.outputs").DraftTokenIds(names, drafts)
        scheduler.update_draft_token_ids_in_output(tokens, decision)
    grammars.provide_masks(scheduler.structured_output_manager)
    if (output := scheduler.get_grammar_bitmask(decision)) is not None:
        own.read(decision, flight, output)
