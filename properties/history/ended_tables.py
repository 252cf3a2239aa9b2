"""The block table of a request that ends in the step that computes it.

A step does not show the blocks of a request that has ended. The table may still be known, either
from the data sent to the worker or from the blocks that the step writes.
"""

from ...model.observation import Step
from .features import Run
from .request_history import RequestHistory

NOT_SHOWN = -1


def table_of_ended(history: Run, step: Step, request: RequestHistory) -> tuple[int, ...]:
    """Return the blocks of a request that ended in this step, or () if they are unknown. Blocks of
    its prefix hit whose numbers are unknown are NOT_SHOWN."""
    hit = 0 if request.started else history.hit_now(step, request) or 0
    before = history.last.blocks if history.last is not None else None
    known = (before or {}).get(request.id, ())
    size = history.config["block_size"]
    needed = -(-(request.computed + hit + step.scheduled[request.id]) // size)
    if step.sent is not None:
        told = next(iter(step.sent.blocks.get(request.id, ())), ())
        is_whole = request.id in (*step.sent.new, *step.sent.resumed)
        table = told if is_whole else (*known, *told)
        return table if len(table) >= needed else ()
    written = (step.slot_blocks or {}).get(request.id, ())
    known = known or (NOT_SHOWN,) * (hit // size)
    table = (*known, *(number for number in written if number and number not in known))
    return table if written and len(table) == needed else ()
