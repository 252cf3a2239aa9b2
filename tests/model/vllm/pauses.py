"""Runs with pauses in a pipeline whose requests decode in turn. The tests of the model and of the
releases share them."""

from schedproof.model.scenario import Event, Request, Scenario
from schedproof.model.systems import full_config

CONFIG = {
    **{"block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 16, "max_model_len": 32},
    **{"num_blocks": 24, "async_scheduling": True, "use_v2_model_runner": True},
}
# For each run: the stages of the pipeline, the prompts of requests that arrive together, what
# happens after the first step, and which requests the steps schedule. A number stands for that many
# steps, "-x" for an abort of x. The request z ends with its first token.
RUNS = [
    (3, {"a": 6}, (), "a - - a"),
    (3, {"a": 6}, ("pause_all", 3, "resume"), "a - - - - - a"),
    (2, {"a": 6}, ("pause_all", 2, "resume"), "a - - - a"),
    (3, {"a": 6}, ("sleep", 3, "wake_up"), "a - - - a - - a"),
    (3, {"a": 6}, ("pause_new", 1, "resume"), "a - - a"),
    (3, {"a": 6, "z": 6}, ("pause_all", 3, "resume"), "az - - - - a"),
    (3, {"a": 6, "b": 6}, ("pause_all", "-b", 3, "resume"), "ab - - - - a"),
    (3, {"a": 6, "b": 6}, ("pause_all", 2, "-b", 2, "resume"), "ab - - - - - a"),
    (3, {"a": 20}, (1, "pause_new", "reset_running_requests", 2, "resume"), "a a - - a - a"),
]


def scheduled(target, revision, stages, prompts, changes, steps):
    """Return the requests that each of the first `steps` steps schedules, in the form of RUNS."""
    config = full_config("vllm", revision, {**CONFIG, "pipeline_parallel_size": stages})
    assert target.start("vllm", revision, config)["ok"]
    for name, prompt in prompts.items():
        tokens = 1 if name == "z" else 4
        reply = target.add({"id": name, "prompt": [[name, prompt]], "max_tokens": tokens})
        assert reply["ok"]
    seen: list[str] = []
    for change in (1, *changes, steps):
        if isinstance(change, int):
            seen += ["".join(target.step()["step"]["scheduled"]) or "-" for _ in range(change)]
        elif change.startswith("-"):
            assert target.abort(change[1:])["ok"]
        else:
            assert target.control(change)["ok"]
    return " ".join(seen[:steps])


def as_scenario(stages, prompts, changes):
    """Return a run of RUNS as a scenario."""
    events, aborts, step = [], {}, 1
    for change in changes:
        if isinstance(change, int):
            step += change
        elif change.startswith("-"):
            aborts[change[1:]] = step
        else:
            events.append(Event(step, change))
    requests = [
        Request(
            id=name,
            arrival=0,
            prompt=((name, prompt),),
            max_tokens=1 if name == "z" else 4,
            abort_at=aborts.get(name),
        )
        for name, prompt in prompts.items()
    ]
    return Scenario(
        system="vllm",
        revision="0.33",
        config=full_config("vllm", "0.33", {**CONFIG, "pipeline_parallel_size": stages}),
        requests=tuple(requests),
        events=tuple(events),
    )
