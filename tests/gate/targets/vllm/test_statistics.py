"""What vLLM's own statistics count: the preemptions behind the metric `vllm:num_preemptions`.

A step of the protocol does not show them (V1CP-R37), so a script asks a release, where it is
installed: `IterationStats` adds up the events that the scheduler's outputs carry.
"""

import json
import subprocess
from pathlib import Path

import pytest

import schedproof
from schedproof.gate.targets import releases
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release

from .served import CONFIG, RELEASES

SCRIPT = """
import importlib, json, sys
from types import SimpleNamespace
from schedproof.gate.targets.vllm import observation, target

served = target.VllmTarget()
stats = importlib.import_module("vllm.v1.metrics.stats")
nothing = SimpleNamespace(request_waiting=lambda *_: None, request_running=lambda *_: None)
outputs = observation.outputs


def count(aborts):
    # The preemptions of a run, and those in the statistics.
    served.start("vllm", "documented", json.loads(sys.argv[1]))
    served._engine.scheduler.log_stats = True  # as on a server, unless it is told otherwise
    served._engine.scheduler.make_stats = lambda *_, **__: None  # further statistics
    iteration, preempted, running = stats.IterationStats(), 0, True

    def counted(completion, aborted):
        for output in [output for client in completion.values() for output in client.outputs]:
            request = (output.request_id, output.events or [], False, stats.RequestStateStats())
            iteration.update_from_events(*request, nothing, None)
        return outputs(completion, aborted)

    observation.outputs = counted
    for name in "abc":
        served.add({"id": name, "prompt": [[name, 3]], "max_tokens": 6})
    while running:
        step = served.step()["step"]
        preempted += len(step["preempted"])
        for name in step["preempted"] if aborts else ():
            served.abort(name)
        running = step["running"] or step["waiting"]
    return preempted, iteration.num_preempted_reqs


print(json.dumps({"wait": count(aborts=False), "abort": count(aborts=True)}))
"""
TIGHT = {"block_size": 2, "num_blocks": 6, "max_num_seqs": 4, "max_model_len": 12}


@pytest.fixture(scope="module", params=RELEASES)
def counts(request, tmp_path_factory):
    """Return the preemptions of two runs, and those in the statistics, by what clients do."""
    try:
        release = releases.prepare(parse_release(f"vllm=={request.param}"), offline=True)
    except ReleaseError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("path")
    (folder / "schedproof").symlink_to(Path(schedproof.__file__).parent)
    env = {**release.env, "PYTHONPATH": f"{release.env['PYTHONPATH']}:{folder}"}
    words = [release.command[0], "-c", SCRIPT]
    words.append(json.dumps({**CONFIG, **TIGHT, "reserve_full_isl": False}))
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_each_preemption_is_counted_once_with_the_next_token(counts):
    preempted, counted = counts["wait"]
    assert preempted == counted > 1


@pytest.mark.slow
def test_a_preemption_before_an_abort_is_never_counted(counts):
    """The divergence of V1CP-R37: an aborted request has no more outputs to carry its events."""
    preempted, counted = counts["abort"]
    assert (preempted > 1, counted) == (True, 0)
