"""The blocks that were free while a step was decided.

The target shows how many are free after the step. By then, requests that ended in the step have
given back theirs.
"""

from ....model.observation import Step
from ...rules.pool import blocks_for, taken_by
from ..history import groups, loads, speculation
from ..history.request_history import VllmRequestHistory
from ..history.run import VllmRun
from .decision import computed_after, kept


def free_unchanged(history: VllmRun, step: Step) -> bool:
    if step.sent is not None and step.sent.copies:  # copied blocks become free after the decision
        return False
    return not step.finished and not history.aborts_inside and not _ended_give_back(history, step)


def _ended_give_back(history: VllmRun, step: Step) -> bool:
    """Return whether blocks of an ended request may have become free: its load has finished, or its
    blocks were sent. Return True if blocks are not shown."""
    if not loads.are_made(history.config):
        return False
    held = (history.last.blocks or {}) if history.last is not None else {}
    return step.blocks is None or any(name not in step.blocks for name in held)


def least_free(history: VllmRun, step: Step) -> int | None:
    """Return a lower bound on the number of free blocks right after the step was decided, or None
    if it is unknown. Requests that left in the step may have given back two kinds of blocks: those
    that they held before the step, and those that they took in it."""
    if step.free_blocks is None or free_unchanged(history, step):
        return step.free_blocks
    config, last = history.config, history.last
    if loads.are_made(config) or groups.further(config) or step.blocks is None:
        return None
    before = (last.blocks or {}) if last is not None else {}
    gone = [
        history.live[name]
        for name in {*(step.finished or ()), *history.aborts_inside}
        if name in history.live and name not in step.blocks
    ]
    held = {block for request in gone for block in before.get(request.id, ())}
    still = {block for table in step.blocks.values() for block in table}
    taken = sum(_most_taken(history, step, request) for request in gone)
    return max(step.free_blocks - len(held - still) - taken, 0)


def _most_taken(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return the largest number of free blocks that a request may have received in the step in
    which it left. A hit on a block that no request holds counts as well."""
    if request in kept(history, step):
        return taken_by(history, step, request, int(history.config["block_size"]))
    if request.id not in step.scheduled:
        return 0
    covered = request.num_tokens
    if history.hit_now(step, request) is not None:
        covered = computed_after(history, step, request)
    ahead = speculation.drafts(history.config) + speculation.lookahead(history.config)
    return blocks_for(history, covered + ahead)
