"""The head of a test file for sendnn-inference's repository: its scheduler and its model runner,
stepped by themselves around a model that is not there."""

from .upstream_loop import LOOP
from .upstream_vllm import IMPORTS, MODEL, VLLM_IMPORTS

SPYRE_IMPORTS = """\
import importlib
import importlib.util

# Up to 1.x the package had another name, as had its variables.
NAME = "sendnn_inference" if importlib.util.find_spec("sendnn_inference") else "vllm_spyre"
PREFIX = {"sendnn_inference": "SENDNN_INFERENCE_", "vllm_spyre": "VLLM_SPYRE_"}[NAME]
os.environ["VLLM_PLUGINS"] = "sendnn_inference,spyre"
os.environ[PREFIX + "DYNAMO_BACKEND"] = "eager"
os.environ["VLLM_SPYRE_USE_CB"] = os.environ["VLLM_SPYRE_USE_CHUNKED_PREFILL"] = "1"
"""
# vLLM before the plugin: some releases import each other in a circle.
PLUGIN_IMPORTS = """\
from vllm.forward_context import get_forward_context  # noqa: E402
from vllm.v1.outputs import SamplerOutput  # noqa: E402

ENVS = importlib.import_module(NAME + ".envs")
PLATFORM = importlib.import_module(NAME + ".platform").SpyrePlatform
PLATFORM.log_server_boot = lambda config: None
SCHEDULER = importlib.import_module(NAME + ".v1.core.scheduler").ChunkedPrefillSpyreScheduler
RUNNER = importlib.import_module(
    NAME + ".v1.worker.spyre_model_runner"
).ChunkedPrefillModelRunner

"""
BODY = '''

def slots_within_limit(engine, row):
    return running_in(row) <= engine.max_num_seqs


def volume_within_limit(engine, row):
    """batch x tkv is at most the limit, in every decode step."""
    if row["kind"] != "decode":
        return True
    return engine.runner.tkv * len(row["scheduled"]) <= engine.max_batch_tkv


class WeightlessModel:
    """Constant logits, and the tokens that the requests are to generate."""

    is_multimodal = False

    def __init__(self, engine):
        self.engine = engine
        self.model = self.fms_model = self
        self.config = type("Config", (), {"src_vocab_size": 32000})()
        self.vocab_size, self.indices, self.n_pads_right = 32000, None, 0
        self.past_key_value_states = []
        self.prefilled = None

    def set_past_key_value_states(self, num_blocks):
        pass

    def get_maybe_mm_embeddings(self, *args, **options):
        return None

    def __call__(self, *, positions, is_prompt, **inputs):
        runner = self.engine.runner
        batch = runner.prefill_batch if is_prompt else runner.input_batch
        self.rows = batch.sorted_requests_ids
        self.prefilled = (positions[0][0].item(), positions[0].max().item() + 1, is_prompt)
        return torch.zeros((len(self.rows), 1))

    def sample(self, logits, sampling_metadata):
        told, requests = self.engine.told, self.engine.runner.requests
        tokens = [[sampled_token(told[row], len(requests[row].output_token_ids))]
                  for row in self.rows]
        return SamplerOutput(
            sampled_token_ids=torch.tensor(tokens, dtype=torch.int32), logprobs_tensors=None
        )


class Watched(int):
    """The runner's own copy of the limit: its assertion must not hide what comes after."""

    def __ge__(self, volume):
        return True


class Engine(RequestBook):
    """Scheduler and runner of the release, for one configuration."""

    def __init__(self, block_size, chunk_size, max_num_seqs, max_model_len, max_batch_tkv,
                 interleave, prefix_caching, num_blocks, pausing, long_output_priority):
        assert block_size == 64, "fixed by the hardware"
        self.max_num_seqs, self.max_batch_tkv = max_num_seqs, max_batch_tkv
        options = {
            "CP_INTERLEAVE_STEPS": interleave,
            "PAUSING_ENABLED": pausing,
            "LONG_OUT_PRIO": long_output_priority,
        }
        for name, value in options.items():
            if PREFIX + name in ENVS.environment_variables:
                os.environ[PREFIX + name] = str(int(value))
        os.environ["VLLM_DT_MAX_BATCH_TKV_LIMIT"] = str(max_batch_tkv)
        os.environ.pop("VLLM_DT_CHUNK_LEN", None)
        ENVS.clear_env_cache()
        if hasattr(PLATFORM, "_max_batch_tkv_limit"):
            PLATFORM._max_batch_tkv_limit = 0  # not read yet
        config = engine_config(
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=chunk_size,
            enable_prefix_caching=prefix_caching,
        )
        self.runner = RUNNER(vllm_config=config, is_driver_worker=True, rank=0)
        self.model = self.runner._model = WeightlessModel(self)
        self.runner.complete_warmup()
        usable = num_blocks or 2 * max_num_seqs * (max_model_len // 64 + 1) + 1024
        if hasattr(self.runner, "_set_blocks"):
            self.runner._set_blocks(num_blocks=usable + 1)
        groups = [
            KVCacheGroupSpec(layer_names=[layer], kv_cache_spec=spec)
            for layer, spec in self.runner.get_kv_cache_spec().items()
        ]
        config.cache_config.num_gpu_blocks = usable + 1  # and padding block 0
        self.scheduler = SCHEDULER(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=usable + 1, kv_cache_tensors=[], kv_cache_groups=groups
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=config.cache_config.block_size,
        )
        self.hasher = block_hasher(config)
        self.told, self.aborted, self.arrived = {}, [], 0

    def execute(self, decision):
        own = getattr(PLATFORM, "_max_batch_tkv_limit", None)
        if own is not None:
            PLATFORM._max_batch_tkv_limit = Watched(self.max_batch_tkv)
        try:
            output = self.runner.execute_model(decision)
        finally:
            if own is not None:
                PLATFORM._max_batch_tkv_limit = own
        if output is None:  # since 2.5 it samples in a second call
            output = self.runner.sample_tokens(self.scheduler.get_grammar_bitmask(decision))
        return output

    def step(self, inside=()):
        self.model.prefilled = None
        decision = self.scheduler.schedule()
        output = self.execute(decision)
        for name in inside:
            self.abort(name)
        _, finished = outcome(self.scheduler.update_from_output(decision, output), self.aborted)
        self.aborted = []
        scheduled = dict(decision.num_scheduled_tokens)
        start, end, is_prompt = self.model.prefilled or (0, 0, True)
        kind = ("prefill" if is_prompt else "decode") if scheduled else "idle"
        if kind == "prefill":  # the scheduler may count padding, too
            [name] = scheduled
            hits = getattr(self.runner.requests[name], "total_hit_blocks", 0) * 64
            scheduled[name] = max(0, end - max(start, hits))
        row = dict(kind=kind, scheduled=scheduled)
        if kind == "decode":
            row["tkv"] = self.runner.tkv
        skipped = getattr(self.scheduler, "skipped_waiting", ())
        return row | dict(
            waiting=names([*self.scheduler.waiting, *skipped]),
            running=names(self.scheduler.running),
            finished_requests=finished,
        )
'''
SPYRE_HEAD = (
    IMPORTS.replace("the V1 scheduler", "the Spyre scheduler and its model runner")
    + SPYRE_IMPORTS
    + VLLM_IMPORTS
    + PLUGIN_IMPORTS
    + LOOP
    + MODEL
    + BODY
)
