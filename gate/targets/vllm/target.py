"""Target for vLLM's own V1 scheduler, on a CPU and without weights.

Runs in an environment that contains a release, but not schedproof:

    PYTHONPATH=vllm-0.28.0 python gate/targets/run_adapter.py vllm

The release's own code refuses, decides, allocates, caches and counts. Only the model runner is
replaced. If all known tokens of a request are computed, the replacement "samples" the correct
drafts, and then the token that the scenario prescribes.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from .. import coverage, protocol_checks, scheduler_class
from ..jsonl import serve
from ..protocol_checks import EOS, CheckedRequest, Output, RefusedError, Turn, refuse
from ..release_adapter import Hosted, HostedTarget
from . import cache_events, control, encoder, engine_core, grammars, groups, in_flight, sessions
from .drafts import KEYS as DRAFT_KEYS
from .drafts import PER_BATCH_SIZE, is_ranges
from .encoder import KEYS as ENCODER_KEYS
from .in_flight import KEYS as IN_FLIGHT_KEYS
from .in_flight import Flight
from .loads import IN_STEP, Offer
from .observation import SchedulerView, look_at, look_before, observe, observed_fields
from .offline import block_hasher, fix_hash_seed
from .release import NULL_BLOCK, Release, cached_config, configure, defaults, load_release

AHEAD = "AsyncScheduler"  # vLLM's class that decides before the previous decision has been computed
SPARE_REQUESTS = 64  # an unbounded pool has room for the cached contents of this many requests
ROOMY = 7_000  # blocks for the contents of the longest workload, a thousand short requests
MAX_BLOCKS = (
    1_000_000  # the largest pool for an unbounded one; building it takes a second and 150 MB
)


class VllmEngine(SchedulerView):
    """A fresh scheduler of the release for one configuration."""

    def __init__(self, release: Release, config: Mapping[str, Any]) -> None:
        encoder.check(config)
        in_flight.check(config)
        groups.check(config)
        cache_events.check(release, config)
        vllm_config, self.start_up = configure(release, config)
        self.usable_blocks = config["num_blocks"] or plenty_of_blocks(config)
        drafts = config.get("num_speculative_tokens", 0)
        specs = groups.specs(groups.kinds(config), vllm_config.cache_config, drafts)
        chosen, retained = class_for(release, config), config.get(groups.RETENTION)
        scheduler, hashed = _scheduler(chosen, vllm_config, specs, self.usable_blocks, retained)
        interval = config.get("prefill_schedule_interval", 1)
        if interval > 1 and not hasattr(scheduler, "local_prefill_interval"):
            valid = f"1 ({release} leaves the interval to several data-parallel ranks)"
            raise refuse("prefill_schedule_interval", interval, valid)
        kept = hasattr(scheduler.kv_cache_manager, "finalize_partial_tail_offloads")
        if groups.hits_inside(config) and not kept:
            raise refuse(groups.UNIT, config[groups.UNIT], f"null ({release} is not modelled)")
        super().__init__(scheduler, config)
        encoder.equip(self.scheduler, config)
        if cache_events.are_published(config):
            self.published = cache_events.Published(scheduler)
        self.release = release
        self._hasher = block_hasher(vllm_config, hashed)
        self._request_class = importlib.import_module("vllm.v1.request").Request
        self._aborted = importlib.import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED
        self._runner_output = importlib.import_module("vllm.v1.outputs").ModelRunnerOutput
        self._loads = self.scheduler.connector.loads if config.get("kv_connector") else None
        if self._loads is not None:
            self._loads.in_step = bool(config.get(IN_STEP))
        add, begins = self.scheduler.add_request, self.grammars.begin_turn
        sending = sessions.Sending(self._turn, self._end_of_session, add, begins)
        self.sessions = sessions.Sessions(sending)
        self._outputs: dict[str, Output] = {}
        self._arrivals = 0
        self._adapters: dict[str, int] = {}  # vLLM's number of each adapter
        self._requested_blocks = 0  # needed by all requests of the run, including finished ones

    def add(self, request: CheckedRequest) -> None:
        name = request.output.id
        if name in self.requests:
            raise RefusedError(f"a live request already has the id {name!r}")
        longest = self.config["max_model_len"]
        tokens = sessions.check_length(request, longest)
        taken = core_request(self.release, longest, request, float(self._arrivals + 1))
        taken.cache_salt, taken.lora_request = request.cache_salt, self._adapter(request.lora)
        if request.inputs:
            taken.mm_features = encoder.features(self.config, request)
            self.encoded[name] = tuple(segment.number for segment in request.inputs)
        self._check_unbounded(tokens)
        self._arrivals += 1
        taken.resumable = bool(request.turns)
        cache_events.ask_for(taken, self.config)
        if request.has_grammar:
            grammars.ask_for(taken)
        own = self._request_class.from_engine_core_request(taken, self._hasher)
        self.grammars.forget(name)
        if request.has_grammar:
            self.grammars.compile(own, request, self.scheduler.structured_output_manager)
        self.scheduler.add_request(own)
        self._outputs[name] = request.output
        self.flights.drop({name})  # drop results that belong to an earlier request with the same id
        self.drafts.forget(name)
        if self._loads is not None:
            self._offer(self._loads, request)
        if request.turns:
            self.sessions.begin(name, request.output, request.turns)

    def _turn(self, name: str, turn: Turn) -> Any:
        """Return the request that a client would send as a further input of a session."""
        self._arrivals += 1
        ends = turn.grammar_ends
        request = CheckedRequest(turn.prompt, turn.max_tokens, 0, turn.output, grammar_ends=ends)
        longest = self.config["max_model_len"]
        taken = core_request(self.release, longest, request, float(self._arrivals))
        taken.resumable = True
        if request.has_grammar:
            grammars.ask_for(taken)
        own = self._request_class.from_engine_core_request(taken, self._hasher)
        manager = self.scheduler.structured_output_manager
        self.grammars.compile_turn(name, own, request, manager)
        return own

    def _end_of_session(self, name: str) -> Any:
        """Return the request that a client would send to end a session: one token, not
        resumable."""
        request = CheckedRequest([0], 1, 0, Output(name, 1, False))
        taken = core_request(self.release, self.config["max_model_len"], request, 0.0)
        return self._request_class.from_engine_core_request(taken, self._hasher)

    def _adapter(self, name: str | None) -> Any:
        if name is None:
            return None
        number = self._adapters.setdefault(name, len(self._adapters) + 1)
        adapter = importlib.import_module("vllm.lora.request").LoRARequest
        return adapter(lora_name=name.partition("#")[0], lora_int_id=number, lora_path=name)

    def _offer(self, loads: Any, request: CheckedRequest) -> None:
        name = request.output.id
        if request.external_tokens:
            tokens = min(request.external_tokens, len(request.prompt))
            loads.offers[name] = Offer(tokens, request.load_steps, request.load_fails_at)
        loads.deferrals[name] = request.load_deferrals
        if request.send_steps is not None:
            loads.send_steps[name] = request.send_steps
        if request.send_aborted:
            loads.send_aborted.add(name)

    def _check_unbounded(self, tokens: int) -> None:
        if self.config["num_blocks"] is not None or not self.config["enable_prefix_caching"]:
            return
        blocks = self._requested_blocks + blocks_for(tokens, self.config["block_size"])
        if blocks > self.usable_blocks:
            raise RefusedError(
                f"refused by the target: the requests so far fill {self._requested_blocks} of "
                f"the {self.usable_blocks} blocks that represent an unbounded pool; set "
                "num_blocks"
            )
        self._requested_blocks = blocks

    def abort(self, name: str) -> bool:
        if name not in self.requests or self.requests[name].is_finished():
            return False
        self.scheduler.finish_requests(name, self._aborted)
        return True

    def control(self, kind: str) -> bool:
        return control.carry_out(self, kind)

    @property
    def sleeps(self) -> bool:
        """Whether the engine core sleeps. Without a connector, this makes no difference."""
        if self._loads is None or not self.flights.is_empty:
            return False
        return engine_core.sleeps(self.scheduler, engine_core.released_class(self.scheduler))

    def drop_results(self, names: set[str]) -> None:
        """Drop the results that decisions in flight would give to these requests."""
        for name in self.flights.drop(names):
            self.drafts.take_back(name)

    def execute(self, decision: Any) -> Flight:
        names = list(decision.num_scheduled_tokens)
        flight = self.flight(decision)
        tokens: list[list[int]] = []
        for name in names:
            if name not in flight.first:
                tokens.append([])
                continue
            tokens.append(self._sample(name, flight.first[name], flight.drafts.get(name, 0)))
            self.flights.sampled(name, len(tokens[-1]))
        output = self._runner_output(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=tokens,
            prompt_logprobs_dict={},
        )
        return flight._replace(output=output)

    def loads_step(self, output: Any) -> None:
        if self._loads is not None:
            connector_output = importlib.import_module("vllm.v1.outputs").KVConnectorOutput
            report = self._loads.step()
            failed = {
                name: right
                for name, right in report.landed.items()
                if name in self.requests and right < self.requests[name].num_computed_tokens
            }
            lost = self._lost_blocks(failed) | self._loads.lost
            self._loads.lost = set()
            output.kv_connector_output = connector_output(
                finished_recving=report.landed.keys() or None,
                finished_sending=report.sent.keys() or None,
                **self._failures({*failed}, lost, connector_output),
            )

    def _failures(
        self, failed: set[str], lost: set[int], connector_output: Any
    ) -> dict[str, set[Any]]:
        """Return the arguments with which a connector reports failed loads: the blocks or, if there
        are several groups, the requests. Earlier releases accept only blocks."""
        several = bool(groups.after_first(self.config))
        if several and "failed_recving" in connector_output.__dataclass_fields__:
            return {"failed_recving": failed}
        return {"invalid_block_ids": lost}

    def _lost_blocks(self, failed: Mapping[str, int]) -> set[int]:
        """Return the blocks of each request except those of its first `failed[name]` tokens, which
        were loaded correctly."""
        held, size = self.blocks() if failed else {}, self.config["block_size"]
        return {
            block for name, right in failed.items() for block in held.get(name, ())[right // size :]
        }

    def _sample(self, name: str, first: int, drafts: int) -> list[int]:
        output = self.sessions.output(name) or self._outputs[name]
        fitting = self.grammars.fitting(name, first, drafts)  # masks forbid the others
        last = first + self.drafts.count_right(output, fitting)
        return [output.token(number) for number in range(first, last + 1)]


def class_for(release: Release, config: Mapping[str, Any]) -> Any:
    """Return the scheduler class that vLLM chooses for the configuration.

    Refuse the user's class if the configuration requires deciding ahead (`async_scheduling`) and
    the class cannot do so. Also refuse a class that always decides ahead if the configuration has a
    pipeline without `async_scheduling`: vLLM's workers would wait for tokens that never come.
    """
    if not config.get("async_scheduling"):
        decides_ahead = any(base.__name__ == AHEAD for base in release.scheduler_class.__mro__)
        if decides_ahead and in_flight.depth(config) > 1:
            valid = f"true with a pipeline ({release.scheduler_class.__name__} is an {AHEAD})"
            raise refuse("async_scheduling", False, valid)
        return release.scheduler_class
    ahead = getattr(importlib.import_module("vllm.v1.core.sched.async_scheduler"), AHEAD)
    if issubclass(ahead, release.scheduler_class) and not scheduler_class.is_chosen():
        return ahead
    if not issubclass(release.scheduler_class, ahead):
        valid = f"false ({release.scheduler_class.__name__} is not an {AHEAD})"
        raise refuse("async_scheduling", True, valid)
    return release.scheduler_class


def blocks_for(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def plenty_of_blocks(config: Mapping[str, Any]) -> int:
    """Return the size, in blocks, of an effectively unbounded pool.

    The pool has room for a full batch of the longest requests, and for the cached contents of some
    more requests or of a thousand short ones. The watermark, a fraction of the pool, is added.
    """
    longest = sum(blocks_for(config["max_model_len"], size) for _, _, size in groups.kinds(config))
    needed = max((config["max_num_seqs"] + SPARE_REQUESTS) * longest, ROOMY)
    plenty = int(needed / (1 - config["watermark"])) + 1
    if plenty > MAX_BLOCKS:
        valid = (
            f"a number of blocks: the pool that stands in for an unbounded one would have {plenty} "
            f"(by max_num_seqs, max_model_len, block_size and watermark), and at most {MAX_BLOCKS} "
            "are possible"
        )
        raise refuse("num_blocks", None, valid)
    return plenty


def _scheduler(
    chosen: Any, vllm_config: Any, specs: list[Any], usable_blocks: int, retained: int | None
) -> tuple[Any, int]:
    """Return a scheduler, and the number of tokens that one hash covers. The scheduler has its own
    pool, and one KV cache group for each of `specs`. This takes 1 ms, plus 1 ms for each 1,000
    blocks."""
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    structured = importlib.import_module("vllm.v1.structured_output")
    num_blocks = usable_blocks + NULL_BLOCK
    layers = [
        interface.KVCacheGroupSpec(layer_names=[f"layer {number}"], kv_cache_spec=spec)
        for number, spec in enumerate(specs)
    ]
    vllm_config.cache_config.num_gpu_blocks = num_blocks
    # Releases without this field keep every block of a window.
    retention = {groups.RETENTION: retained} if retained is not None else {}
    kv_cache_config = interface.KVCacheConfig(
        num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=layers, **retention
    )
    block_size, hashed = groups.block_sizes(specs, vllm_config, kv_cache_config)
    scheduler = chosen(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=structured.StructuredOutputManager(vllm_config),
        block_size=block_size,
        log_stats=True,  # a server's default
        **({} if hashed == block_size else {"hash_block_size": hashed}),
    )
    return scheduler, hashed


# --- the front door -------------------------------------------------------------------------

# vLLM checks lengths in two places before the scheduler sees a request. The server checks prompt
# and max_tokens together; then the engine's input processor checks the prompt. Neither needs a
# tokenizer if the prompt is given as tokens.


def core_request(release: Release, longest: int, request: CheckedRequest, arrival: float) -> Any:
    """Return the request as vLLM hands it to its engine core.

    `longest` is max_model_len in tokens, and `arrival` is the request's place in the order of
    arrival. Raise RefusedError, with vLLM's message, if vLLM refuses the request.
    """
    params = importlib.import_module("vllm.sampling_params").SamplingParams(
        max_tokens=request.max_tokens, temperature=0.0, detokenize=False
    )
    lengths = importlib.import_module("vllm.renderers.params").TokenizeParams
    prompt = {"type": "token", "prompt_token_ids": request.prompt}
    refusal = importlib.import_module("vllm.exceptions").VLLMValidationError
    try:
        whole = lengths(max_total_tokens=longest, max_output_tokens=request.max_tokens)
        whole.apply_post_tokenization(None, prompt)
        taken = _processor(longest).process_inputs(
            request.output.id,
            prompt,
            params,
            supported_tasks=("generate",),
            # Do not use the time of day: the clock must not decide which of two requests came
            # first.
            arrival_time=arrival,
            priority=request.priority,
        )
    except (ValueError, refusal) as error:
        words = " ".join(str(error).split())
        raise RefusedError(f"{release} refuses the request: {words}") from error
    taken.sampling_params.update_from_generation_config({}, EOS)
    return taken


@functools.lru_cache(maxsize=64)
def _processor(longest: int) -> Any:
    module = importlib.import_module("vllm.v1.engine.input_processor")
    return module.InputProcessor(cached_config(max_model_len=longest))


KEYS = {
    "block_size": protocol_checks.POSITIVE,
    "num_blocks": protocol_checks.or_null(protocol_checks.POSITIVE),
    "max_num_seqs": protocol_checks.POSITIVE,
    "max_num_batched_tokens": protocol_checks.POSITIVE,
    "max_model_len": protocol_checks.POSITIVE,
    "long_prefill_token_threshold": protocol_checks.COUNT,
    "enable_chunked_prefill": protocol_checks.FLAG,
    "enable_prefix_caching": protocol_checks.FLAG,
    "policy": protocol_checks.one_of("fcfs", "priority"),
    "watermark": protocol_checks.SHARE,
    "reserve_full_isl": protocol_checks.FLAG,
    "num_speculative_tokens": protocol_checks.COUNT,
    "num_lookahead_tokens": protocol_checks.COUNT,
    PER_BATCH_SIZE: protocol_checks.or_null(protocol_checks.Kind(is_ranges, "a list of ranges")),
    "async_scheduling": protocol_checks.FLAG,
    "pipeline_parallel_size": protocol_checks.POSITIVE,
    "early_completions": protocol_checks.COUNT,
    "kv_connector": protocol_checks.FLAG,
    "kv_load_failure_policy": protocol_checks.one_of("recompute", "fail"),
    IN_STEP: protocol_checks.FLAG,
    "max_num_encoder_input_tokens": protocol_checks.COUNT,
    "encoder_cache_size": protocol_checks.COUNT,
    "prefix_cache_retention_interval": protocol_checks.or_null(protocol_checks.COUNT),
    "kv_groups": protocol_checks.Kind(groups.is_list, "a list of groups"),
    groups.MODE: protocol_checks.one_of(*groups.MODES),
    "cache_partitions": protocol_checks.FLAG,
    "max_loras": protocol_checks.or_null(protocol_checks.POSITIVE),
    grammars.KEY: protocol_checks.FLAG,
    "reused_ids": protocol_checks.FLAG,
    sessions.KEY: protocol_checks.FLAG,
    "max_num_active_seqs": protocol_checks.or_null(protocol_checks.POSITIVE),
    "long_prefill_token_threshold_adaptive": protocol_checks.FLAG,
    "disable_chunked_mm_input": protocol_checks.FLAG,
    "prefill_schedule_interval": protocol_checks.POSITIVE,
    groups.UNIT: protocol_checks.or_null(protocol_checks.POSITIVE),
    cache_events.KEY: protocol_checks.one_of(*cache_events.MODES),
    in_flight.RUNNER: protocol_checks.FLAG,
}


LOAD_KEYS = ("kv_connector", "kv_load_failure_policy", IN_STEP)
MAY_MISS = (
    *DRAFT_KEYS,
    *IN_FLIGHT_KEYS,
    *LOAD_KEYS,
    *ENCODER_KEYS,
    *groups.KEYS,
    "cache_partitions",
    "max_loras",
    "reused_ids",
    grammars.KEY,
    sessions.KEY,
    "max_num_active_seqs",
    "long_prefill_token_threshold_adaptive",
    "disable_chunked_mm_input",
    "prefill_schedule_interval",
    cache_events.KEY,
)


class VllmTarget(HostedTarget):
    """Serve the protocol's operations with the vLLM release on the path."""

    def open(self, system: str, config: dict[str, Any]) -> Hosted:
        protocol_checks.check_system(system, "vllm")
        protocol_checks.check_keys(config, KEYS, may_miss=MAY_MISS)
        release = load_release()
        engine = VllmEngine(release, config)
        title = scheduler_class.title("vllm", release.version)
        observes = observed_fields(engine)
        described = (*title, observes, defaults(release), engine.start_up)
        return Hosted(engine, *described, control.accepted_events(engine), release.overrides)

    def admit(self, engine: VllmEngine, request: protocol_checks.CheckedRequest) -> None:
        engine.add(request)

    def advance(self, engine: VllmEngine) -> dict[str, Any]:
        engine.grammars.step()
        engine.sessions.step(engine.requests)
        before = look_before(engine)
        sleeps = engine.sleeps
        decision = engine_core.decide(engine.scheduler)
        preempted = getattr(decision, "preempted_req_ids", None) or ()
        # A request may have been aborted since a reset preempted it.
        live = engine.requests.keys() & preempted
        engine.drop_results({name for name in live if drops_results(engine.requests[name])})
        decided = look_at(engine, before, decision)
        engine.blocks()  # read the blocks now, before requests end in this step
        waits = getattr(decision, "pending_structured_output_tokens", False)
        flight = engine.execute(decision)
        if not waits:
            engine_core.constrain(engine.scheduler, flight, engine.grammars, waits)
        done = None if sleeps else engine.flights.set_off(flight, waits)
        aborted = self.abort_inside(engine)
        completion: Any = {}
        if done is not None:
            engine.loads_step(done.output)
            completion = engine.scheduler.update_from_output(done.decision, done.output)
            engine.grammars.count()
            engine.grammars.over = engine.sessions.turns_end(completion, engine.requests)
            engine.drop_results(engine.grammars.over)
        if waits:
            engine_core.constrain(engine.scheduler, flight, engine.grammars, waits)
        engine.drafts.propose(engine.scheduler, flight, engine.grammars)
        first = done.first if done else {}
        return observe(engine, decided, completion, aborted, first, done is not None)


def main() -> None:
    fix_hash_seed()
    coverage.count_packages("vllm.v1.core")
    scheduler_class.load_early(load_release)
    serve(VllmTarget())


def drops_results(request: Any) -> bool:
    """Return whether a preempted request loses its tokens in flight, as it does with a connector
    that delivers blocks."""
    return bool(getattr(request, "drop_stale_output", False))
