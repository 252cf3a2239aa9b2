"""Workloads: runs at sizes that the state machine does not draw, on every system's model."""

from collections import Counter
from typing import NamedTuple

import pytest
from msgspec import structs

from schedproof.model import allocator, pool, sequence
from schedproof.model.scenario import CONTROLS
from schedproof.model.spyre import blocks, volumetric
from schedproof.model.target import ModelTarget
from schedproof.model.vllm import kv_cache, scheduler
from schedproof.properties.checking.replay import replay
from schedproof.properties.search.workloads import SHAPES, number_of_runs, shapes_of, workloads
from schedproof.spec.catalogue import load
from schedproof.spec.systems import SYSTEMS

# A configuration that each model takes, as a gate begins with.
SCALE = {"spyre": {"max_model_len": 1024, "max_batch_tkv": 2048}, "nano_vllm": {"num_blocks": 8}}


def runs(system, shape, number=1, seed=0, **fixed):
    revision = SYSTEMS[system].revisions[0]
    scale = SCALE.get(system, {})
    return [*workloads(system, revision, shape, scale, fixed, seed=seed, number=number)]


def judged(target, scenario):
    return replay(target, scenario, [rule for rule in load(scenario.system) if rule.checked])


def first_broken(target, system, number=1):
    """The rule that the first of the runs to break one breaks first, shape by shape."""
    for shape in shapes_of(system):
        for scenario in runs(system, shape, number):
            if broken := judged(target, scenario).broken:
                return shape, broken[0].rule
    return None


@pytest.mark.parametrize(
    ("system", "shape"), [(system, shape) for system in SYSTEMS for shape in shapes_of(system)]
)
def test_the_model_keeps_every_rule_and_ends(system, shape):
    [scenario] = runs(system, shape)
    outcome = judged(ModelTarget(), scenario)
    assert outcome.broken == []
    assert outcome.finished
    assert outcome.session.rejected == {}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_seed_gives_the_same_runs_and_another_seed_others(system):
    first, again, other = (runs(system, "scarce", 2, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first[0] != first[1]


def test_a_key_that_is_fixed_has_its_value_in_every_run():
    for shape in shapes_of("vllm"):
        for scenario in runs("vllm", shape, 2, max_num_seqs=7):
            assert scenario.config["max_num_seqs"] == 7


def test_where_no_configuration_goes_with_what_is_fixed_there_is_no_run():
    assert runs("vllm", "crowd", max_num_batched_tokens=1) == []


def test_each_shape_has_what_it_is_named_for():
    [crowd], [long], [deep] = (runs("spyre", shape) for shape in ("crowd", "long", "deep"))
    most = 0

    def watch(_, step):
        nonlocal most
        most = max(most, len(step.scheduled))

    replay(ModelTarget(), crowd, [], watch)
    assert most >= 20
    assert len(long.requests) > 251
    assert max(request.tokens_to_emit for request in deep.requests) > 1024
    assert max(request.prompt_len for request in deep.requests) > 32_768
    gaps = [
        later.arrival - earlier.arrival
        for scenario in runs("spyre", "idle", 4)
        for earlier, later in zip(scenario.requests, scenario.requests[1:], strict=False)
    ]
    assert max(gaps) > 150
    [wide] = runs("spyre", "wide")
    streams = [stream for request in wide.requests for stream, _ in request.prompt[:1]]
    assert streams.count("r0") > 16
    assert sum(request.max_tokens - request.tokens_to_emit > 4000 for request in wide.requests) > 10
    [scarce] = runs("vllm", "scarce")
    assert (
        sum(request.prompt_len for request in scarce.requests)
        > 16 * 2 * scarce.config["num_blocks"]
    )
    assert sum(request.abort_at is not None for request in scarce.requests) > 1
    [packed], [full] = (runs("vllm", shape) for shape in ("packed", "full"))
    again = Counter()
    replay(ModelTarget(), packed, [], lambda _, step: again.update(step.preempted))
    assert max(again.values()) > 2
    assert packed.config["policy"] == "fcfs"
    assert len(full.requests) > full.config["max_num_seqs"] > 255
    streams = [stream for request in scarce.requests for stream, _ in request.prompt]
    assert len(set(streams)) < len(streams)


@pytest.mark.parametrize("system", SYSTEMS)
def test_lengths_that_do_not_fit_into_few_bits_occur(system):
    smallest, largest = runs(system, "deep", 2)
    assert max(request.tokens_to_emit for request in largest.requests) > 4096
    assert max(request.prompt_len for request in smallest.requests) > 32_768


@pytest.mark.parametrize(
    ("system", "shape"), [(system, shape) for system in SYSTEMS for shape in shapes_of(system)]
)
def test_few_requests_of_a_shape_are_too_large_for_its_configurations(system, shape):
    for scenario, wanted in zip(runs(system, shape, 2), SHAPES[shape].requests, strict=True):
        assert len(scenario.requests) > 0.9 * wanted


class Most(NamedTuple):
    """The most requests of a step that share a block, that run, and that end."""

    share: int
    run: int
    end: int


def most_in_a_step(scenario):
    seen = []

    def watch(_, step):
        sharers = Counter(block for table in step.blocks.values() for block in {*table})
        seen.append((max(sharers.values(), default=0), len(step.running), len(step.finished)))

    replay(ModelTarget(), scenario, [], watch)
    return Most(*map(max, zip(*seen, strict=True)))


@pytest.mark.parametrize("system", [system for system in SYSTEMS if "full" in shapes_of(system)])
def test_a_full_batch_shares_blocks_more_often_than_five_bits_can_count(system):
    most = [most_in_a_step(full) for full in runs(system, "full", 2)]
    assert max(full.share for full in most) > 32
    assert max(full.run for full in most) > 250


@pytest.mark.parametrize(
    ("system", "shape", "counted"),
    [
        *((system, "sharers", 256) for system in SYSTEMS if system != "spyre"),
        ("spyre", "joiners", 31),
    ],
)
def test_more_requests_share_a_block_than_few_bits_can_count(system, shape, counted):
    for scenario in runs(system, shape, 2):
        most = most_in_a_step(scenario)
        assert most.share > counted
        assert most.end > 1
        assert scenario.requests[-1].arrival > scenario.requests[0].arrival


def test_nano_vllm_preempts_several_sequences_in_a_step_and_one_several_times():
    [crowd] = runs("nano_vllm", "crowd")
    again, together = Counter(), []

    def watch(_, step):
        again.update(step.preempted)
        together.append(len(step.preempted))

    replay(ModelTarget(), crowd, [], watch)
    assert max(together) > 1
    assert max(again.values()) > 2


@pytest.mark.parametrize("system", ["vllm", "generic"])
def test_drafts_and_decisions_in_flight_occur_in_larger_batches_too(system):
    shapes = [(shape, number_of_runs(system, shape, 8)) for shape in ("packed", "scarce")]
    drawn = [run for shape, number in shapes for run in runs(system, shape, number)]
    drafted = [run for run in drawn if run.config.get("num_speculative_tokens")]
    assert max(len(request.accepted) for run in drafted for request in run.requests) > 8
    assert any(run.config.get("async_scheduling") for run in drawn)


def test_groups_adapters_and_blocks_that_are_sent_occur_in_pools_that_run_out():
    packed = runs("vllm", "packed", 8)
    assert any(len(run.config.get("kv_groups", ())) > 1 for run in packed)
    steps = [request.send_steps or 0 for run in packed for request in run.requests]
    assert max(steps) > 20
    assert len({request.lora for run in packed for request in run.requests}) > 3


def test_in_every_gate_requests_wait_for_something_else_than_blocks_in_a_scarce_pool():
    drawn = runs("vllm", "scarce", number_of_runs("vllm", "scarce", 1))
    keys = {key for run in drawn for key, value in run.config.items() if value}
    assert {"kv_connector", "max_loras", "structured_outputs"} <= keys
    [loads] = [run for run in drawn if run.config.get("kv_connector")][:1]
    together = []
    replay(ModelTarget(), loads, [], lambda _, step: together.append(len(step.parked)))
    assert max(together) > 2


@pytest.mark.parametrize("system", [system for system in SYSTEMS if "brim" in shapes_of(system)])
def test_a_brim_workload_fills_the_pool_to_the_last_block(system):
    [brim] = runs(system, "brim")
    fewest = []

    def watch(_, step):
        if len(step.running) > 8:
            fewest.append(step.free_blocks)

    replay(ModelTarget(), brim, [], watch)
    assert min(fewest) == 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_prompt_beyond_32768_tokens_is_found_again_when_it_returns(system):
    scenario = runs(system, "deep")[0]
    returning, hits = scenario.requests[-1], {}
    replay(ModelTarget(), scenario, [], lambda _, step: hits.update(step.prefix_hit or {}))
    assert returning.prompt == scenario.requests[1].prompt
    if system != "spyre":  # its smallest run has no prefix cache
        assert hits[returning.id] > 32_768


def test_in_every_second_run_later_bursts_are_more_important():
    each, by_burst = runs("vllm", "packed", 2, policy="priority")
    assert len({request.priority for request in each.requests if request.arrival == 0}) > 1
    later = {request.arrival: request.priority for request in by_burst.requests}
    assert len(later) > 1
    assert [*later.values()] == sorted(later.values(), reverse=True)


def test_requests_that_start_whole_are_ordered_by_priority_too():
    packed = runs("generic", "packed", 8, order="any")
    assert any(
        run.config.get("order_by_priority") and not run.config["enable_chunked_prefill"]
        for run in packed
    )


@pytest.mark.parametrize("system", [system for system in SYSTEMS if system != "spyre"])
def test_a_wide_batch_shares_long_beginnings_in_a_large_pool(system):
    [wide] = runs(system, "wide")
    holders, blocks, hit = 0, 0, 0

    def watch(_, step):
        nonlocal holders, blocks, hit
        counts = Counter(block for table in step.blocks.values() for block in {*table})
        holders = max([holders, *counts.values()])
        blocks = max([blocks, *counts])
        hit = max([hit, *step.prefix_hit.values()])

    replay(ModelTarget(), wide, [], watch)
    assert holders > 8
    assert blocks > 4096
    assert hit > 128 * wide.config["block_size"]
    if system == "generic":
        assert not wide.config["enable_chunked_prefill"]
        assert max(request.prompt_len for request in wide.requests) > 4096


@pytest.mark.parametrize("fixed", [{}, {"num_blocks": 64, "async_scheduling": True}])
def test_an_operator_performs_every_control_event_and_ends_every_pause(fixed):
    for operated in runs("vllm", "operated", 2, **fixed):
        kinds = [event.kind for event in sorted(operated.events, key=lambda event: event.step)]
        assert {*kinds} == {*CONTROLS}
        assert kinds.count("sleep") > 1
        for pause, end in (("sleep", "wake_up"), ("pause_all", "resume"), ("pause_new", "resume")):
            assert all(kinds[n + 1] == end for n, kind in enumerate(kinds) if kind == pause)
        outcome = judged(ModelTarget(), operated)
        assert outcome.broken == []
        assert outcome.finished


def test_an_operator_performs_only_events_that_are_possible():
    [operated] = runs("vllm", "operated", encoder_cache_size=8, max_num_encoder_input_tokens=8)
    assert {*CONTROLS} - {event.kind for event in operated.events} == {"sleep", "wake_up"}


def test_the_simulator_gets_sessions_prefill_instances_and_pipelines():
    drawn = [run for shape in shapes_of("llmservingsim") for run in runs("llmservingsim", shape, 8)]
    with_tools = [run for run in drawn if any(request.tool_steps for request in run.requests)]
    assert {run.config["instances"] for run in with_tools} == {1}
    assert {run.config["instances"] for run in drawn} == {0, 1, 2}
    assert max(run.config["pp_size"] for run in drawn) > 2


def test_sizes_that_have_to_meet_for_a_fault_to_show_do_meet():
    for system in ("vllm", "generic"):
        # A block lost with each thousandth request shows only in a bounded pool.
        assert all(scenario.config["num_blocks"] for scenario in runs(system, "long", 4))
        [packed] = runs(system, "packed")
        blocks = [request.prompt_len // 16 for request in packed.requests]
        assert max(blocks) > 16
    uncut = [
        request.prompt_len
        for scenario in runs("generic", "loose", 8)
        if not scenario.config["enable_chunked_prefill"]
        for request in scenario.requests
    ]
    assert max(uncut) > 512
    priorities = {
        request.priority for scenario in runs("vllm", "scarce", 4) for request in scenario.requests
    }
    assert max(priorities) > 127


class Losing(ModelTarget):
    """Loses the 251st request."""

    def __init__(self):
        super().__init__()
        self.arrived = 0

    def start(self, *words):
        self.arrived = 0
        return super().start(*words)

    def add(self, request):
        self.arrived += 1
        return {"ok": True} if self.arrived == 251 else super().add(request)


class Sorting(ModelTarget):
    """Takes requests of one step in the order of their ids: r10 before r2."""

    def __init__(self):
        super().__init__()
        self.new = []

    def add(self, request):
        self.new.append(request)
        return {"ok": True}

    def step(self):
        for request in sorted(self.new, key=lambda request: request["id"]):
            super().add(request)
        self.new = []
        return super().step()


class Short(ModelTarget):
    """Ends every answer after 1,024 tokens."""

    def add(self, request):
        most = min(request["output_len"], 1024)
        return super().add({**request, "output_len": most})


class Narrow(ModelTarget):
    """Has 16 seats, whatever it is told."""

    most = 16

    def start(self, system, revision, config):
        seats = min(config["max_num_seqs"] or self.most, self.most)
        return super().start(system, revision, {**config, "max_num_seqs": seats})


class AlmostWide(Narrow):
    """Has 255 seats."""

    most = 255


class Impatient(ModelTarget):
    """Drops what has waited for 300 steps."""

    def start(self, *words):
        self.waits = Counter()
        return super().start(*words)

    def step(self):
        for name in [name for name, steps in self.waits.items() if steps > 300]:
            del self.waits[name]
            self.abort(name)
        reply = super().step()
        self.waits.update(reply["step"]["waiting"])
        return reply


class SixteenBits(ModelTarget):
    """Keeps the tkv in 16 bits."""

    def step(self):
        reply = super().step()
        if reply["step"].get("tkv") is not None:
            reply["step"]["tkv"] &= 0x7FFF
        return reply


class Sleeping(ModelTarget):
    """Does nothing in the first step after 20 idle ones."""

    def __init__(self):
        super().__init__()
        self.idle = []

    def add(self, request):
        self.sleeps = len(self.idle) > 20
        return super().add(request)

    def step(self):
        if self.sleeps:
            self.sleeps = False
            return {"ok": True, "step": self.idle.pop()}
        step = super().step()["step"]
        self.idle = [*self.idle, step] if step["kind"] == "idle" else []
        return {"ok": True, "step": step}


@pytest.mark.parametrize(
    ("target", "system", "expected"),
    [
        (Losing, "spyre", ("long", "ALL-R03")),
        (Losing, "generic", ("long", "ALL-R03")),
        (Sorting, "spyre", ("crowd", "SPY-R53")),
        (Short, "spyre", ("deep", "ALL-R04")),
        (Short, "generic", ("deep", "ALL-R04")),
        (Narrow, "spyre", ("crowd", "SPY-R42")),
        (AlmostWide, "vllm", ("full", "V1-R07")),
        (Impatient, "generic", ("deep", "ALL-R04")),
        (SixteenBits, "spyre", ("deep", "SPY-R26")),
        (Sleeping, "spyre", ("idle", "ALL-R03")),
        (Sleeping, "generic", ("idle", "ALL-R03")),
    ],
)
def test_a_fault_of_size_is_named(target, system, expected):
    assert first_broken(target(), system) == expected


@pytest.mark.parametrize(
    ("system", "blocks", "number", "expected"),
    [
        ("vllm", 32, 1, ("deep", "V1CP-R36")),
        ("vllm", 64, 1, ("deep", "V1CP-R36")),
        ("generic", 32, 1, ("deep", "GEN-R11")),
        ("generic", 64, 1, ("deep", "GEN-R11")),
    ],
)
def test_hits_that_end_at_some_block_are_named(system, blocks, number, expected, monkeypatch):
    finds = kv_cache.prefix_hit
    monkeypatch.setattr(kv_cache, "prefix_hit", lambda *words: finds(*words)[:blocks])
    assert first_broken(ModelTarget(), system, number) == expected


@pytest.mark.parametrize("members", [1, 4, 8])
def test_a_walk_that_looks_at_few_members_is_found_in_a_packed_batch(members, monkeypatch):
    accepts = volumetric.accepts

    def short_sighted(projection, limit):
        return accepts(projection._replace(decoding=projection.decoding[:members]), limit)

    monkeypatch.setattr(volumetric, "accepts", short_sighted)
    assert first_broken(ModelTarget(), "spyre") == ("packed", "SPY-R47")


def an_extra_row_in_a_batch_of_eight():
    accepts = volumetric.accepts

    def careful(projection, limit):
        most = [max(projection.decoding)] if len(projection.decoding) >= 8 else []
        return accepts(projection._replace(decoding=[*projection.decoding, *most]), limit)

    return volumetric, "accepts", careful


def no_more_than_64_blocks_are_looked_up():
    cached_blocks = pool.cached_blocks
    return pool, "cached_blocks", lambda *words: cached_blocks(*words)[:64]


def hits_make_no_room():
    return blocks, "in_use", lambda state: set()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (an_extra_row_in_a_batch_of_eight, ("wide", "SPY-R42")),
        (no_more_than_64_blocks_are_looked_up, ("deep", "SPY-R63")),
        (hits_make_no_room, ("long", "ALL-R09")),
    ],
)
def test_a_scheduler_that_does_too_little_where_much_is_asked_is_named(
    fault, expected, monkeypatch
):
    monkeypatch.setattr(*fault())
    assert first_broken(ModelTarget(), "spyre", 2) == expected


def test_a_scheduler_whose_hits_make_no_room_waits_too_long_in_a_scarce_pool(monkeypatch):
    monkeypatch.setattr(*hits_make_no_room())
    judgements = [judged(ModelTarget(), run) for run in runs("spyre", "scarce", 2)]
    assert "SPY-R42" in {judgement.broken[0].rule for judgement in judgements if judgement.broken}


def running_requests_of_a_large_pool_leave_the_watermark_free():
    grow = kv_cache.grow

    def careful(config, pool, sequence, tokens):
        covered = sequence.computed + tokens
        missing = allocator.missing_blocks(sequence, covered, config.block_size)
        reserve = config.watermark_blocks if (config.num_blocks or 0) >= 1000 else 0
        fits = missing <= 0 or not reserve or kv_cache.fits(pool, missing + reserve)
        return grow(config, pool, sequence, tokens) if fits else None

    return kv_cache, "grow", careful


def one_is_admitted_a_step_the_65th_beyond_the_seats():
    admit = scheduler.admit_waiting

    def one(config, plan, *others):
        seats = min(config.slots + (config.slots >= 64), len(plan.running) + 1)
        return admit(structs.replace(config, max_num_active_seqs=seats), plan, *others)

    return scheduler, "admit_waiting", one


def a_prompt_of_more_than_half_the_pool_is_overtaken_in_a_crowd():
    admit = scheduler.admit_waiting

    def small_first(config, plan, *others):
        half = (config.num_blocks or 10**6) * config.block_size // 2
        if len(plan.waiting) > 12 and plan.waiting[0].num_tokens > half:
            first, *rest = plan.waiting
            plan = plan._replace(waiting=(*rest[:2], first, *rest[2:]))
        return admit(config, plan, *others)

    return scheduler, "admit_waiting", small_first


@pytest.mark.parametrize(
    ("system", "fault", "expected"),
    [
        (
            "vllm",
            running_requests_of_a_large_pool_leave_the_watermark_free,
            ("crowd", "V1-R05"),
        ),
        ("generic", one_is_admitted_a_step_the_65th_beyond_the_seats, ("crowd", "GEN-R02")),
        (
            "generic",
            a_prompt_of_more_than_half_the_pool_is_overtaken_in_a_crowd,
            ("full", "GEN-R04"),
        ),
    ],
)
def test_a_fault_of_a_large_pool_or_batch_is_named(system, fault, expected, monkeypatch):
    monkeypatch.setattr(*fault())
    assert first_broken(ModelTarget(), system, 3) == expected


def no_check_of_a_length_above_8192(monkeypatch):
    start = ModelTarget.start

    def lenient(target, system, revision, config):
        length = config["max_model_len"]
        most = length if length <= 8192 else 10**6
        return start(target, system, revision, {**config, "max_model_len": most})

    monkeypatch.setattr(ModelTarget, "start", lenient)


def a_volume_of_18_bits(monkeypatch):
    def answer_at(tkv, to_come, newcomer, limit):
        fits = to_come * min(tkv, newcomer) % 2**18 <= limit
        return fits if newcomer <= tkv or not fits else None

    monkeypatch.setattr(volumetric, "answer_at", answer_at)


def names_without_their_beginning_after_128_blocks(monkeypatch):
    whole = pool.prefix

    def prefix(content, tokens):
        name = whole(content, tokens)
        (_, first), *others = name
        return (("any", first), *others) if first <= 128 * 64 < tokens else name

    for module in (pool, sequence):
        monkeypatch.setattr(module, "prefix", prefix)


@pytest.mark.parametrize(
    ("plant", "shape", "run", "rule"),
    [
        (no_check_of_a_length_above_8192, "wide", 3, "SPY-R41"),
        (a_volume_of_18_bits, "deep", 1, "SPY-R47"),
        (names_without_their_beginning_after_128_blocks, "deep", 1, "SPY-R42"),
    ],
)
def test_a_fault_at_published_sizes_is_named(plant, shape, run, rule, monkeypatch):
    scenario = runs("spyre", shape, run + 1)[run]
    plant(monkeypatch)
    assert judged(ModelTarget(), scenario).broken[0].rule == rule


def test_a_target_without_a_bound_on_the_pool_gets_a_brim_workload_too():
    [scenario] = runs("generic", "brim", num_blocks=None)
    assert scenario.config["num_blocks"] is None
    assert judged(ModelTarget(), scenario).broken == []
