"""Releases and checkouts of vLLM's Spyre plugins: how to run them, and the configurations to
judge them in."""

from ....properties.spyre import FEWER_BLOCKS
from ....spec.systems import SYSTEMS
from ..checkouts import Checkout
from ..scales import POOL, GateScales
from ..supported_releases import Package
from ..vllm.releases import VLLM

SCALES = GateScales(
    scales={
        "small": {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 96},
        "short": {"chunk_size": 128, "max_model_len": 256, "max_batch_tkv": 768},
        "tight": {"chunk_size": 128, "max_model_len": 1024, "max_batch_tkv": 2048},
    },
    plain={"prefix_caching": False, "num_blocks": None},
    features=(
        {"prefix_caching": True},
        POOL,
        {"interleave": False},
        {"pausing": False},
        {"long_output_priority": True},
    ),
    kinds={FEWER_BLOCKS: {"num_blocks": 16}},
    chunk_key="chunk_size",
)


SIZE = "1 MB"


def revision_of(version: str) -> str:
    return SYSTEMS["spyre"].decides_as.get(version, "documented")


SENDNN_INFERENCE = Package(
    name="sendnn-inference",
    system="spyre",
    versions={
        **dict.fromkeys(("2.0.0", "2.0.1"), "0.19.1"),
        **dict.fromkeys(("2.1.0", "2.1.1", "2.1.2", "2.1.3", "2.1.4"), "0.19.1"),
        **dict.fromkeys(("2.2.0", "2.2.2", "2.2.4"), "0.19.1"),
        **dict.fromkeys(("2.3.0", "2.3.1", "2.4.0", "2.5.0", "2.5.1", "2.5.2"), "0.24.0"),
        **dict.fromkeys(("2.6.0", "2.6.1"), "0.27.1"),
        **dict.fromkeys(("2.6.2", "2.6.3"), "0.28.0"),
    },
    revision_of=revision_of,
    size=SIZE,
    runs_on=VLLM,
    environment={"VLLM_PLUGINS": "sendnn_inference", "SENDNN_INFERENCE_DYNAMO_BACKEND": "eager"},
    settings=("SENDNN_",),
)
VLLM_SPYRE = Package(
    name="vllm-spyre",
    system="spyre",
    versions={"1.10.0": "0.18.0"},
    revision_of=revision_of,
    size=SIZE,
    runs_on=VLLM,
    environment={
        "VLLM_PLUGINS": "spyre",
        "VLLM_SPYRE_DYNAMO_BACKEND": "eager",
        "VLLM_SPYRE_USE_CB": "1",
        "VLLM_SPYRE_USE_CHUNKED_PREFILL": "1",
    },
)
RELEASES = (VLLM_SPYRE, SENDNN_INFERENCE)
CHECKOUT = Checkout(
    name="sendnn-inference",
    system="spyre",
    variable="SCHEDPROOF_SENDNN_INFERENCE",
    needs=("sendnn_inference/v1/core/scheduler.py", "pyproject.toml"),
    newer=("sendnn_inference/v1/core/scheduler.py", "class ChunkedPrefillSpyreScheduler"),
    revisions=("2.5.2", None),
    supported="sendnn-inference 2.0.0 or later",
    package=SENDNN_INFERENCE,
)
