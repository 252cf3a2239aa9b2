"""What a batch adds to the prompt throughput, in tokens, cached ones included.

Source: continuous-batching page, "What the scheduler hands back" and "Gotchas". A request counts
here until it has emitted its first token; what was cached of it counts with the batch that
completes its prompt.
"""

from .state import Sequence


def documented(one: Sequence, tokens: int) -> int:
    """All tokens of a prompt, each once (LSS-R23)."""
    if one.generated:
        return 0
    return tokens + one.prefix_hit * completes(one)


def head(one: Sequence, tokens: int) -> int:
    """At HEAD: a chunk of a single token counts only if it is the last one, and what is computed
    again after a preemption counts again."""
    if not one.generated and completes(one):
        return tokens + one.prefix_hit
    return tokens if tokens > 1 else 0


def completes(one: Sequence) -> bool:
    """Its whole prompt is computed."""
    return one.computed >= one.prompt
