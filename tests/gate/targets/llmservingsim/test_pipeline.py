"""LLMServingSim at HEAD with several batches in flight, beside its model, call by call.

A step of the protocol completes at once, so that these calls are compared without it: `schedule`,
which gives None when the pipeline is full, and `add_done` with its three results. So is the router
with a session of several requests. This runs where
SCHEDPROOF_LLMSERVINGSIM names a checkout, and where this Python has numpy, pyyaml and rich.
"""

import json
import os
import random
from types import SimpleNamespace

import pytest

from schedproof.gate.targets.llmservingsim.checkout import GIB, build, load
from schedproof.gate.targets.llmservingsim.target import VARIABLE
from schedproof.gate.targets.protocol_checks import Output, stream_tokens

from ....model.llmservingsim.build import ModelRun
from ..described import EPISODES

MODEL = "meta-llama/Llama-3.1-8B"
NPU = 0


@pytest.fixture(scope="module")
def checkout():
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} is not set: no checkout of LLMServingSim to run")
    found = load(folder)
    if not found.has_pool:
        pytest.skip("the checkout is of the generation before the block pool, which has no model")
    return found


class Both:
    """The checkout's scheduler and the model, given the same calls."""

    def __init__(self, checkout, rng):
        self.rng, self.now = rng, 0
        self.config = {
            "block_size": rng.choice((2, 4)),
            "num_blocks": rng.choice((None, rng.randint(6, 12))),
            "max_num_seqs": rng.randint(1, 5),
            "max_num_batched_tokens": rng.randint(1, 12),
            "long_prefill_token_threshold": rng.choice((0, 0, 3)),
            "enable_chunked_prefill": True,
            "enable_prefix_caching": rng.random() < 0.5,
            "prioritize_prefill": False,
            "pp_size": rng.randint(1, 4),
            "instances": 0,
        }
        blocks, stages = self.config["num_blocks"] or 2000, self.config["pp_size"]
        weight = build(checkout.scheduler, 17, self.config, stages).memory.weight
        gib = (weight + blocks * checkout.token * self.config["block_size"] + 1) / GIB
        self.real = build(checkout.scheduler, gib, self.config, stages)
        self.run = ModelRun("head", **self.config)
        self.names = []

    def arrive(self):
        name = f"r{len(self.names)}"
        prompt = ((self.rng.choice(("s", name)), self.rng.randint(1, 8)),)
        tokens = self.rng.randint(1, 4)
        self.names.append(name)
        self.run.ask(name, prompt, tokens)
        known = [token for stream, length in prompt for token in stream_tokens(stream, length)]
        output = Output(name, tokens, False)
        answer = [output.token(place) for place in range(tokens)]
        whole = len(known) + tokens
        number = len(self.names) - 1
        self.real.add_request([number, MODEL, len(known), whole, self.now, 0, known, answer])

    def schedule(self):
        """The tokens of the batch that both build, or None."""
        batch = self.real.schedule(self.now, NPU)
        expected = self.run.schedule()
        tokens = None
        if batch is not None:
            scheduled = batch.scheduled_tokens
            tokens = {self.names[request.id]: scheduled[request.id] for request in batch.requests}
        assert tokens == expected
        assert tokens is None or list(tokens) == list(expected)
        self.compare()
        return tokens

    def done(self, number):
        """The three results of a batch that is through."""
        self.now += 1
        prompts, decodes, finished = self.real.add_done(number + 1, NPU, self.now)
        expected = self.run.done(number)
        assert (prompts, decodes) == (expected.prompt_throughput, expected.decode_throughput)
        assert [self.names[request.id] for request in finished] == list(expected.finished)
        self.compare()
        return expected

    def compare(self):
        for queue in ("waiting", "running"):
            real = [self.names[request.id] for request in getattr(self.real, queue)]
            assert real == [sequence.id for sequence in getattr(self.run.state, queue)]
        assert [batch.batch_id for batch in self.real.inflight] == [
            batch.number for batch in self.run.state.inflight
        ]


def episode(checkout, seed):
    """Random calls until both are empty: how often the pipeline was full, hits and preemptions."""
    rng = random.Random(seed)
    both = Both(checkout, rng)
    seen = {"full": 0, "deep": 0, "hits": 0, "preempted": 0}
    for turn in range(300):
        if len(both.names) < 6 and rng.random() < 0.4:
            both.arrive()
        flying = [batch.number for batch in both.run.state.inflight]
        if rng.random() < 0.6 or not flying:
            tokens = both.schedule()
            seen["full"] += len(flying) == both.config["pp_size"] and tokens is None
            seen["deep"] += bool(flying) and tokens is not None
        else:
            both.done(rng.choice(flying))
        seen["hits"] += any(sequence.prefix_hit for sequence in both.run.state.running)
        if turn > 20 and both.real.is_request_empty() and len(both.names) == 6:
            break
    seen["preempted"] = both.real.num_preemptions
    return seen


def test_batches_in_flight_are_decided_and_completed_as_the_model_does(checkout):
    total = {"full": 0, "deep": 0, "hits": 0, "preempted": 0}
    for seed in range(EPISODES):
        seen = episode(checkout, seed)
        total = {key: total[key] + seen[key] for key in total}
    assert all(total.values()), total


def test_a_report_of_one_of_two_accelerators_gives_three_times_nothing(checkout):
    both = Both(checkout, random.Random(0))
    both.arrive()
    both.schedule()
    both.real.num_npus = 2  # the last one has not reported
    assert both.real.add_done(1, NPU, 1) == (0, 0, [])
    assert both.real.add_done(7, NPU, 1) == (0, 0, [])


def test_a_full_pipeline_lets_the_first_accelerator_join_a_round_that_another_opened(checkout):
    both = Both(checkout, random.Random(0))
    both.arrive()
    both.schedule()
    [batch] = both.real.inflight
    both.real.pp_size = 1
    assert both.real.schedule(0, NPU, batch.batch_id) is None
    batch.fired.remove(NPU)
    assert both.real.schedule(0, NPU, batch.batch_id) is batch


# --- the router ------------------------------------------------------------------------------


class Decoder:
    """A scheduler of a decode instance, as far as the router knows it."""

    pd_type = "decode"

    def __init__(self):
        self.taken = []

    def add_decode(self, request):
        self.taken.append(request)


@pytest.fixture
def router(checkout, tmp_path, monkeypatch):
    """The checkout's router over a request now, one at 50, and a session of two requests."""
    from serving.core.router import Router

    rows = [
        {"input_toks": 4, "output_toks": 2, "arrival_time_ns": 1},
        {"input_toks": 4, "output_toks": 2, "arrival_time_ns": 50},
        {
            "session_id": "s",
            "arrival_time_ns": 2,
            "sub_requests": [
                {"input_toks": 3, "output_toks": 1, "tool_duration_ns": 40},
                {"input_toks": 5, "output_toks": 1},
            ],
        },
    ]
    folder = tmp_path / "simulator"
    folder.mkdir()
    (tmp_path / "requests.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    monkeypatch.chdir(folder)
    arrived = []
    prefill = SimpleNamespace(
        pd_type="prefill",
        enable_prefix_caching=False,
        model=MODEL,
        instance_id=0,
        add_request=lambda values, is_init: arrived.append(values[0]),
    )
    made = Router(3, [prefill, Decoder(), Decoder()], 0)
    made.load_requests("requests.jsonl")
    made.arrived = arrived
    return made


def test_a_session_makes_its_next_request_once_its_tool_is_done(router):
    assert router.route_arrived_requests(2) == 2
    assert (router.has_pending_requests(), router.has_deferred_sessions()) == (True, True)
    assert router.route_arrived_requests(50) == 1
    # The session waits for its tool, and nothing is pending.
    assert (router.has_pending_requests(), router.has_deferred_sessions()) == (False, True)
    router.notify_request_completed(2, 60)
    assert router.get_next_pending_arrival() == 60 + 40
    assert router.route_arrived_requests(100) == 1
    router.notify_request_completed(3, 110)
    assert (router.has_pending_requests(), router.has_deferred_sessions()) == (False, False)
    assert router.arrived == [0, 2, 1, 3]


def test_requests_that_are_prefilled_go_to_the_decode_instances_in_turn(router):
    router.transfer_prefill_request(["a", "b", "c"])
    assert [decoder.taken for decoder in router.decode_schedulers] == [["a", "c"], ["b"]]
