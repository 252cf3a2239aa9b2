"""Releases and checkouts of vLLM, and how their process is set up."""

from packaging.version import Version

from ....spec.systems import SYSTEMS
from ..checkouts import Checkout
from ..supported_releases import Package

EXAMINED = ("0.19.1", "0.24.0", "0.27.1", "0.28.0", "0.33.0")


def revision_of(version: str) -> str:
    """Return the newest revision that is no newer than a release: it decides alike."""
    _, *named = SYSTEMS["vllm"].revisions
    older = [name for name in named if Version(name) <= Version(version)]
    return max(older, key=Version, default="documented")


VLLM = Package(
    name="vllm",
    system="vllm",
    versions={version: version for version in EXAMINED},
    revision_of=revision_of,
    size="the Python part of a download of about 430 MB",
    since="0.18.0",
    environment={
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_PLUGINS": "",
    },
    settings=("VLLM_",),
    # Versions keep files there under the same names, and each drops those of the others.
    cache_variable="VLLM_CACHE_ROOT",
)
RELEASES = (VLLM,)
CHECKOUT = Checkout(
    name="vllm",
    system="vllm",
    variable="SCHEDPROOF_VLLM",
    needs=("vllm/v1/core/sched/scheduler.py",),
    newer=("vllm/v1/core/sched/scheduler.py", "class Scheduler"),
    revisions=("documented", None),
    supported="vLLM 0.18.0 or later",
    package=VLLM,
)
