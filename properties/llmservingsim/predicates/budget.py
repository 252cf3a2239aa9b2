"""The tokens of a step: how many the budget and the cap allow each request, which requests emit
one, and which throughput the step reports.

Source: continuous-batching page, "Two scheduling paths", "What the scheduler picks each step",
"What the scheduler hands back" and "Gotchas"; for the emission, the code at HEAD. If
LLMServingSim's page states a rule in the same way as vLLM's documents, the rule uses vLLM's
predicate.
"""

from ....model.observation import Step
from ...history.per_step_cache import once
from ...rules.pool import blocks_before, blocks_for
from ...rules.predicate import Predicate
from ...vllm.history import in_flight
from ...vllm.history.request_history import VllmRequestHistory
from ...vllm.history.run import VllmRun, state_of
from ...vllm.predicates import budget, preemption
from ...vllm.predicates.budget import scheduled
from ...vllm.predicates.decision import admitted, behind, kept, ran_before, threshold
from .. import prompt_throughput

PAGE = "documented"


@once
def queue(history: VllmRun) -> list[VllmRequestHistory]:
    """Return the requests in the order of the documentation page: by arrival or, with
    prioritize_prefill, prefills first."""
    first = history.config["prioritize_prefill"]
    return sorted(
        [request for request in history.live.values() if not request.blocked],
        key=lambda request: (first and request.emitted > 0, request.arrival),
    )


def is_blocked_in_flight(history: VllmRun, request: VllmRequestHistory) -> bool:
    """Return whether a request cannot be scheduled before a batch in flight completes. According to
    the documentation page, this is so if the request is in such a batch; at HEAD, if all its known
    tokens are in flight or computed.
    """
    if history.revision == PAGE:
        return in_flight.is_still_computed(history, request)
    return request.started and request.computed >= request.prompt + request.emitted


def budget_left(history: VllmRun, step: Step) -> int:
    budget: int = history.config["max_num_batched_tokens"]
    return budget - sum(step.scheduled.values())


def budget_left_for(history: VllmRun, step: Step, request: VllmRequestHistory) -> int:
    """Return how many tokens of the budget are left when this request has its turn in `queue`."""
    budget: int = history.config["max_num_batched_tokens"]
    order = queue(history)
    ahead = order[: order.index(request)]
    return budget - sum(step.scheduled.get(other.id, 0) for other in ahead)


def tokens_wanted(history: VllmRun, request: VllmRequestHistory) -> int:
    """Return how many tokens a request gets in one step if none of them is cached, according to the
    documentation page."""
    tokens = 1 if request.emitted else request.prompt - request.computed
    return min(tokens, history.config["long_prefill_token_threshold"] or tokens)


def must_not_be_cut(history: VllmRun, step: Step, request: VllmRequestHistory) -> bool:
    """Return whether chunking is off and, when the request has its turn, too little of the budget
    is left for it."""
    if history.config["enable_chunked_prefill"]:
        return False
    return tokens_wanted(history, request) > budget_left_for(history, step, request)


def taken_slots(history: VllmRun, step: Step) -> int:
    """Return how many slots are taken: by the requests of the batch or, at HEAD, by all running
    requests."""
    if history.revision == PAGE:
        return len(step.scheduled)
    return len(kept(history, step)) + len(admitted(history, step))


def seat_left(history: VllmRun, step: Step) -> bool:
    slots = history.config["max_num_seqs"]
    return not slots or taken_slots(history, step) < slots


@once
def left_waiting(history: VllmRun, step: Step) -> list[VllmRequestHistory]:
    """Return the requests that were not running and were not scheduled, in order of arrival."""
    running = {request.id for request in ran_before(history)}
    return [
        request
        for request in history.live.values()
        if request.id not in running and request.id not in step.scheduled and not request.blocked
    ]


def blocks_in_all(history: VllmRun, request: VllmRequestHistory, last: int = 0) -> int:
    """Return how many blocks a request may need altogether. Its last token is never computed. Set
    `last` to 1 to count it anyway."""
    return blocks_for(history, request.prompt + request.max_tokens - 1 + last)


def promised(history: VllmRun, step: Step, last: int = 0) -> int:
    """Return how many more blocks the running requests may take after the step."""
    running = [history.live[name] for name in step.running or () if name in history.live]
    held = step.blocks or {}
    return sum(
        blocks_in_all(history, request, last) - len(held.get(request.id, ())) for request in running
    )


def promised_before_ends(history: VllmRun, step: Step) -> int:
    """Return the most blocks that running requests, including those that end in the step, might
    still take when the step was decided. The last tokens of answers count as well."""
    left = {*(step.finished or ()), *history.aborts_inside}
    gone = [request for request in ran_before(history) if request.id in left]
    gone += [request for request in admitted(history, step) if request.id in left]
    return promised(history, step, 1) + sum(
        blocks_in_all(history, request, 1) - blocks_before(history, request) for request in gone
    )


def batch_too_large(history: VllmRun, step: Step) -> str | None:
    """Check that a batch has at most max_num_seqs requests (LSS-R04)."""
    slots = history.config["max_num_seqs"]
    if not slots or len(step.scheduled) <= slots:
        return None
    return f"{len(step.scheduled)} requests in the batch, but max_num_seqs is {slots}"


def batch_is_full(history: VllmRun, step: Step) -> bool:
    slots = history.config["max_num_seqs"]
    return bool(slots) and len(step.scheduled) >= slots and len(history.live) > slots


def decode_takes_more(history: VllmRun, step: Step) -> str | None:
    """Check that a decoding request computes one token (LSS-R13)."""
    for request in history.decode_members(step):
        # A request that is preempted and admitted again in one step must compute all its tokens.
        if (
            request.emitted
            and request.id not in (step.preempted or ())
            and step.scheduled[request.id] != 1
        ):
            return f"{request.id} decodes and computes {step.scheduled[request.id]} tokens"
    return None


def decode_beside_a_prefill(history: VllmRun, step: Step) -> bool:
    return bool(history.decode_members(step)) and bool(history.prefill_members(step))


def start_wrong(history: VllmRun, step: Step) -> str | None:
    """Check that a starting request computes its uncached tokens, limited by the threshold and the
    budget (LSS-R11). At HEAD with chunking off, the budget must not split these tokens; the
    documentation page leaves this open."""
    new = admitted(history, step)
    cut = None if history.revision == PAGE else _cut_although_off(history, step, new)
    return cut or _cut_wrongly(history, step, new)


def start_is_cut_or_cached(history: VllmRun, step: Step) -> bool:
    new = admitted(history, step)
    return budget.newcomer_is_cut(history, step) or any(
        history.hit_now(step, request) for request in new
    )


def rest_wrong(history: VllmRun, step: Step) -> str | None:
    """Check that a partly computed prompt continues with the rest, limited by the threshold and the
    budget (LSS-R12)."""
    return _cut_wrongly(history, step, kept(history, step))


def prompt_goes_on(history: VllmRun, step: Step) -> bool:
    return any(request.started for request in history.prefill_members(step))


def _cut_although_off(history: VllmRun, step: Step, who: list[VllmRequestHistory]) -> str | None:
    if history.config["enable_chunked_prefill"]:
        return None
    for request in who:
        tokens = step.scheduled.get(request.id)
        missing = None if tokens is None else behind(history, step, request)
        if tokens is None or missing is None:
            continue
        uncut = min(missing, history.config["long_prefill_token_threshold"] or missing)
        if tokens < uncut:
            return (
                f"{request.id} computes {tokens} of {uncut} tokens, although prompts are not "
                "chunked"
            )
    return None


def _cut_wrongly(history: VllmRun, step: Step, who: list[VllmRequestHistory]) -> str | None:
    remaining, limit = history.config["max_num_batched_tokens"], threshold(history)
    names = {request.id for request in who}
    for request in scheduled(history, step):
        missing, tokens = behind(history, step, request), step.scheduled[request.id]
        if missing is not None and request.id in names:
            due = min(missing, limit, remaining) or 1
            if tokens != due:
                return (
                    f"{request.id} computes {tokens} tokens, but should compute {due}: it needs "
                    f"{missing}, may compute {limit}, and {remaining} tokens of the budget are left"
                )
        remaining -= tokens
    return None


def prompt_miscounted(history: VllmRun, step: Step) -> str | None:
    """Check that the prompt throughput counts every token of a prompt once. A run counts cached
    tokens with the prompt's last chunk or with its first one, but always with the same (LSS-R23).
    """
    if history.features.depth(history.config) > 1:
        return None  # the batch that completes is not the one that the step shows
    chunks = sorted(state_of(history).hits_count_with)
    expected = [prompt_throughput.counted(history, step, chunk) for chunk in chunks]
    if step.prompt_throughput in expected:
        return None
    prompts = prompt_throughput.COUNTED[chunks[-1]](history, step)
    parts = ", ".join(f"{name} {counted}" for name, counted in prompts)
    return (
        f"{step.prompt_throughput} prompt tokens reported, expected {expected[-1]} "
        f"({parts or 'none'})"
    )


def hit_counted(history: VllmRun, step: Step) -> bool:
    prompts = prompt_throughput.counted_last(history, step)
    return any(counted > step.scheduled[name] for name, counted in prompts)


def generated_miscounted(history: VllmRun, step: Step) -> str | None:
    """Check that the decode throughput counts all generated tokens, including the first (LSS-R24).
    With two instances, only the decode instance counts them."""
    generated = sum((step.emitted or {}).values()) * (history.config["instances"] != 2)
    if step.decode_throughput == generated:
        return None
    return f"{step.decode_throughput} generated tokens reported, {generated} were emitted"


def first_beside_another(history: VllmRun, step: Step) -> bool:
    emitted = [history.live[name].emitted for name in step.emitted or {} if name in history.live]
    return 0 in emitted and any(emitted)


PREDICATES = {
    "LSS-R06": Predicate(budget.budget_exceeded, budget.budget_binds),
    "LSS-R04": Predicate(batch_too_large, batch_is_full, reads=("scheduled",)),
    "LSS-R07": Predicate(budget.threshold_exceeded, budget.threshold_binds),
    "LSS-R13": Predicate(decode_takes_more, decode_beside_a_prefill),
    "LSS-R32": Predicate(budget.emission_wrong, budget.some_catch_up),
    "LSS-R11": Predicate(start_wrong, start_is_cut_or_cached),
    "LSS-R12": Predicate(rest_wrong, prompt_goes_on),
    "LSS-R16": Predicate(preemption.counter_wrong, preemption.someone_runs),
    "LSS-R23": Predicate(prompt_miscounted, hit_counted),
    "LSS-R24": Predicate(generated_miscounted, first_beside_another),
}
