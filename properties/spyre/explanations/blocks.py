"""Why blocks are missing, or hold what no request computed: by running the release's model."""

from ....model.scenario import Scenario
from ....model.spyre import documented
from ....model.spyre.model import SpyreModel
from .admission import states


def explain_lost_blocks(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """The request whose promised blocks never came back, or nothing."""
    lines: list[str] = []
    before = None
    for number, state in enumerate(states(model, scenario, step)):
        known = before.lost_blocks if before is not None else 0
        if before is not None and state.lost_blocks > known:
            gone = [name for name in state.aborted if name not in before.aborted]
            lines.append(
                f"step {number}: {', '.join(gone)} is aborted before the decision, and "
                f"{state.lost_blocks - known} blocks stay promised to it for ever: promises are "
                "given back to requests that have finished since the decision"
            )
        before = state
    if lines and before is not None:
        waiting = [one for one in before.waiting if one.max_tokens]
        free = model.config.num_blocks
        if waiting and free is not None:
            needed = model.revision.blocks_at_end(model.config, waiting[0])
            lines.append(
                f"step {step}: {waiting[0].id} needs {needed} blocks of {free}, "
                f"{before.lost_blocks} of them are reserved for no request"
            )
    return lines


def explain_published_ahead(model: SpyreModel, scenario: Scenario, step: int) -> list[str]:
    """The request that published blocks without computing them, or nothing."""
    if model.revision.progress is documented.progress:
        return []
    block = model.config.block_size
    lines: list[str] = []
    ahead: dict[str, tuple[int, int]] = {}

    def note_aborts(number: int, inside: bool) -> None:
        for request in scenario.requests:
            if request.abort_at != number or request.abort_inside != inside:
                continue
            real, published = ahead.get(request.id, (0, 0))
            if published > real:
                lines.append(
                    f"step {number}: {request.id} is aborted with {published} tokens published "
                    f"and {real} computed; the blocks in between can be found all the same"
                )

    for number, state in enumerate(states(model, scenario, step)):
        note_aborts(number, inside=False)
        after, _ = model.step(state)
        for one in after.admitted:
            real = _really_computed(model, one.prompt, one.prefix_hit, one.computed)
            ahead[one.id] = (real, one.published * block)
        note_aborts(number, inside=True)
    return lines


def _really_computed(model: SpyreModel, prompt: int, hit: int, counted: int) -> int:
    """End of the chunk that ran last, for a request that prefills: whole chunks from the right."""
    if counted >= prompt:
        return counted
    chunk, block = model.config.chunk_size, model.config.block_size
    pad = -(-prompt // chunk) * chunk - -(-prompt // block) * block
    chunks = -(-(prompt - counted) // chunk)
    return max(-(-prompt // chunk) * chunk - chunks * chunk - pad, hit)
