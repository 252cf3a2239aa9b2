"""The throughput that a step reports: prompt tokens and generated tokens.

Source: continuous-batching page, "What the scheduler hands back" and "Gotchas".
"""

from ....model.observation import Step
from ...rules.predicate import Predicate
from ...vllm.history.run import VllmRun


def prompt_miscounted(history: VllmRun, step: Step) -> str | None:
    """The prompt throughput counts every token of a prompt once. Cached tokens count with the
    prompt's last chunk or with its first one (LSS-R23)."""
    prompts = _prompts(history, step)
    expected = sum(counted for _, counted in prompts)
    if step.prompt_throughput in (expected, _counted_first(history, step)):
        return None
    parts = ", ".join(f"{name} {counted}" for name, counted in prompts)
    return (
        f"{step.prompt_throughput} prompt tokens reported, expected {expected} ({parts or 'none'})"
    )


def hit_counted(history: VllmRun, step: Step) -> bool:
    return any(counted > step.scheduled[name] for name, counted in _prompts(history, step))


def generated_miscounted(history: VllmRun, step: Step) -> str | None:
    """The decode throughput counts all generated tokens, including the first (LSS-R24)."""
    generated = sum((step.emitted or {}).values())
    if step.decode_throughput == generated:
        return None
    return f"{step.decode_throughput} generated tokens reported, {generated} were emitted"


def first_beside_another(history: VllmRun, step: Step) -> bool:
    emitted = [history.live[name].emitted for name in step.emitted or {} if name in history.live]
    return 0 in emitted and any(emitted)


def _prompts(history: VllmRun, step: Step) -> list[tuple[str, int]]:
    counts = []
    for name, tokens in step.scheduled.items():
        request = history.live.get(name)
        if request is None or request.emitted or name in history.aborts_inside:
            continue
        # The whole prompt of a request that emits is computed; a request that finishes shows no
        # hit.
        counted = request.prompt - (request.computed - request.prefix_hit)
        counts.append((name, counted if name in (step.emitted or {}) else tokens))
    return counts


def _counted_first(history: VllmRun, step: Step) -> int:
    total = 0
    for name, counted in _prompts(history, step):
        request = history.live[name]
        if request.started or name not in (step.emitted or {}):
            hit = 0 if request.started else history.hit_now(step, request) or 0
            counted = step.scheduled[name] + hit
        total += counted
    return total


PREDICATES = {
    "LSS-R23": Predicate(prompt_miscounted, hit_counted),
    "LSS-R24": Predicate(generated_miscounted, first_beside_another),
}
