"""The predicates, by rule id; each judges one step by its observation.

Every rule has two functions of the history before the step and the step itself. The first returns
the numbers that break the rule, or None. The second is the rule's witness: whether the step
exercised it.
"""

from schedproof.model.observation import Step
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.predicate import Predicate


def too_many_run(history: RunHistory, step: Step) -> str | None:
    running, slots = len(step.running or ()), history.config["max_num_seqs"]
    return f"{running} requests run, but max_num_seqs is {slots}" if running > slots else None


def all_slots_taken(history: RunHistory, step: Step) -> bool:
    return bool(len(step.running or ()) >= history.config["max_num_seqs"])


def wrong_prompt(history: RunHistory, step: Step) -> str | None:
    prefilled = [request.id for request in history.prefill_members(step)]
    first_in_line = [request.id for request in history.unstarted()][:1]
    if not prefilled or prefilled == first_in_line:
        return None
    return f"{', '.join(prefilled)} prefilled, first in line: {', '.join(first_in_line)}"


def two_wait(history: RunHistory, step: Step) -> bool:
    return len(history.unstarted()) > 1


def idle_for_nothing(history: RunHistory, step: Step) -> str | None:
    if step.kind == "idle" and history.live:
        return f"idle, unfinished requests: {', '.join(history.live)}"
    return None


def unfinished(history: RunHistory, step: Step) -> bool:
    return bool(history.live)


# "prefill": consult the rule only in steps that compute prompts.
PREDICATES = {
    "TOY-R01": Predicate(too_many_run, all_slots_taken),
    "TOY-R02": Predicate(wrong_prompt, two_wait, "prefill"),
    "TOY-R03": Predicate(idle_for_nothing, unfinished),
}
