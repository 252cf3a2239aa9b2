"""The head of a test file for vLLM's repository: its V1 scheduler, stepped by itself."""

from .upstream_loop import LOOP
from .upstream_vllm_flight import CONNECTOR, FLIGHT_IMPORTS

IMPORTS = '''\
"""Regression tests of the V1 scheduler, step by step: no GPU, no weights, no download.

Exported from a corpus of schedproof, of which nothing is needed. With a fixed PYTHONHASHSEED:
PYTHONHASHSEED=0 pytest THIS_FILE
A request joins before step `add_step`; row N of a table is what is there after step N (from 1).
In rows that are not written nothing changes, but that a tkv grows by one.
"""

import inspect
import json
import os
import tempfile
from zlib import crc32

import pytest

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["VLLM_NO_USAGE_STATS"] = "1"
'''
PLATFORM = '''\
os.environ["VLLM_PLUGINS"] = ""

import vllm.platforms  # noqa: E402
from vllm.platforms.interface import Platform, PlatformEnum  # noqa: E402


class PlainCpu(Platform):
    """A CPU that changes nothing in a configuration."""

    _enum = PlatformEnum.OOT
    device_name = device_type = "cpu"

    @classmethod
    def check_and_update_config(cls, vllm_config):
        pass

    @classmethod
    def is_pin_memory_available(cls):
        return False


vllm.platforms._current_platform = PlainCpu()
'''
VLLM_IMPORTS = """
import torch  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402
"""
SCHEDULER_IMPORTS = """\
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402

"""
MODEL = '''

def tiny_model():
    """The folder of a model of one layer, of which only the configuration is read."""
    folder = tempfile.mkdtemp()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 131072,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-06,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "torch_dtype": "float32",
    }
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    return folder


MODEL = tiny_model()


def engine_config(**options):
    known = inspect.signature(EngineArgs).parameters
    return EngineArgs(
        model=MODEL,
        tokenizer=MODEL,
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="float32",
        enforce_eager=True,
        **{key: value for key, value in options.items() if key in known},
    ).create_engine_config()


def block_hasher(config):
    cache = config.cache_config
    if not cache.enable_prefix_caching:
        return None
    function = get_hash_fn_by_name(cache.prefix_caching_hash_algo)
    init_none_hash(function)
    return get_request_block_hasher(cache.block_size, function)


def outcome(completion, aborted):
    """The requests that got a token, and those that finished."""
    outputs = [one for client in completion.values() for one in client.outputs]
    finished = [one.request_id for one in outputs if one.finish_reason is not None]
    return [one.request_id for one in outputs if one.new_token_ids], sorted({*finished, *aborted})


def names(requests):
    return [one.request_id for one in requests]


class RequestBook:
    """Requests as the engine core makes them."""

    def make_request(self, request):
        self.arrived += 1
        params = SamplingParams(max_tokens=request["max_tokens"], temperature=0.0, detokenize=False)
        params.update_from_generation_config({}, EOS)
        self.told[request["id"]] = request
        return Request(
            request_id=request["id"],
            prompt_token_ids=prompt_of(request),
            sampling_params=params,
            pooling_params=None,
            arrival_time=float(self.arrived),
            priority=request.get("priority", 0),
            block_hasher=self.hasher,
        )

    def add(self, request):
        self.scheduler.add_request(self.make_request(request))

    def abort(self, name):
        """True where there was a request to abort, which the next row has as finished."""
        one = self.scheduler.requests.get(name)
        if one is not None and not one.is_finished():
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            self.aborted.append(name)

    def is_finished(self):
        return not self.scheduler.has_unfinished_requests()
'''
BODY = '''

def slots_within_limit(engine, row):
    return running_in(row) <= engine.scheduler.max_num_running_reqs


class Engine(RequestBook):
    """The scheduler, and the tokens that its model would sample."""

    def __init__(
        self,
        num_blocks,
        policy,
        watermark,
        reserve_full_isl,
        async_scheduling=False,
        early_completions=0,
        kv_connector=False,
        kv_load_failure_policy="recompute",
        **options,
    ):
        config = engine_config(
            scheduling_policy=policy,
            watermark=watermark,
            scheduler_reserve_full_isl=reserve_full_isl,
            async_scheduling=async_scheduling,
            kv_transfer_config=transfers(kv_connector, kv_load_failure_policy),
            **options,
        )
        longest = -(-options["max_model_len"] // options["block_size"])
        blocks = num_blocks or (options["max_num_seqs"] + 64) * longest * 2
        config.cache_config.num_gpu_blocks = blocks + 1  # and the null block
        spec = FullAttentionSpec(
            block_size=options["block_size"], num_kv_heads=1, head_size=32, dtype=torch.float32
        )
        self.scheduler = (AsyncScheduler if async_scheduling else Scheduler)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks + 1,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(layer_names=["layer"], kv_cache_spec=spec)],
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=options["block_size"],
            log_stats=False,
        )
        self.hasher = block_hasher(config)
        self.told, self.aborted, self.arrived, self.idle = {}, [], 0, 0
        stages = options.get("pipeline_parallel_size", 1)
        depth = max(stages, 2) if async_scheduling else stages
        self.in_flight = InFlight(depth, early_completions)
        self.sorted = policy == "priority"

    def add(self, request):
        super().add(request)
        if self.scheduler.connector is not None:
            self.scheduler.connector.asked[request["id"]] = dict(request)

    def step(self, inside=()):
        decision = self.scheduler.schedule()
        scheduled = dict(decision.num_scheduled_tokens)
        kinds = {self.decodes(name, tokens) for name, tokens in scheduled.items()}
        first = self.in_flight.first_tokens(self.scheduler, decision)
        output = ModelRunnerOutput(
            req_ids=list(scheduled),
            req_id_to_index={name: index for index, name in enumerate(scheduled)},
            sampled_token_ids=[
                [sampled_token(self.told[name], first[name])] if name in first else []
                for name in scheduled
            ],
            prompt_logprobs_dict={},
        )
        done = self.in_flight.set_off(decision, output, first)
        for name in inside:
            self.abort(name)
        completion = {}
        if done is not None:
            if self.scheduler.connector is not None:
                done[1].kv_connector_output = self.scheduler.connector.report(self)
            completion = self.scheduler.update_from_output(*done)
        _, finished = outcome(completion, self.aborted)
        self.aborted = []
        queues = ("skipped_waiting", "kv_holding_waiting", "waiting")
        waiting = [one for queue in queues for one in getattr(self.scheduler, queue, ())]
        waiting = sorted(waiting) if self.sorted else waiting
        kind = "mixed" if len(kinds) > 1 else {True: "decode", False: "prefill"}.get(
            next(iter(kinds), None), "idle"
        )
        return dict(
            kind=kind,
            scheduled=scheduled,
            waiting=names(waiting),
            running=names(self.scheduler.running),
            finished_requests=finished,
        )

    def decodes(self, name, tokens):
        """Just its last sampled token was left to compute, when this step began."""
        one = self.scheduler.requests[name]
        coming = self.in_flight.coming(name)
        behind = one.num_tokens + coming - (one.num_computed_tokens - tokens)
        return behind == 1 and one.num_output_tokens + coming > 0
'''
VLLM_HEAD = (
    IMPORTS
    + PLATFORM
    + VLLM_IMPORTS
    + FLIGHT_IMPORTS
    + SCHEDULER_IMPORTS
    + LOOP
    + MODEL
    + CONNECTOR
    + BODY
)
