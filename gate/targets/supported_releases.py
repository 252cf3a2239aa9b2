"""Published releases of schedulers: which are supported, and the packages that they run on."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

VLLM_OF: Mapping[str, Mapping[str, str]] = {
    "vllm-spyre": {"1.10.0": "0.18.0"},
    "sendnn-inference": {
        **dict.fromkeys(("2.0.0", "2.0.1"), "0.19.1"),
        **dict.fromkeys(("2.1.0", "2.1.1", "2.1.2", "2.1.3", "2.1.4"), "0.19.1"),
        **dict.fromkeys(("2.2.0", "2.2.2", "2.2.4"), "0.19.1"),
        **dict.fromkeys(("2.3.0", "2.3.1", "2.4.0", "2.5.0", "2.5.1", "2.5.2"), "0.24.0"),
        **dict.fromkeys(("2.6.0", "2.6.1"), "0.27.1"),
        **dict.fromkeys(("2.6.2", "2.6.3"), "0.28.0"),
    },
    "vllm": {version: version for version in ("0.19.1", "0.24.0", "0.27.1", "0.28.0", "0.33.0")},
}
TORCH = "2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PACKAGES = """
aiohappyeyeballs==2.7.1 aiohttp==3.14.5 aiosignal==1.4.0 annotated-doc==0.0.7
annotated-types==0.8.0 anyio==4.16.0 apache-tvm-ffi==0.1.15.post2 attrs==26.1.0
cachetools==8.0.0 cbor2==6.2.1 certifi==2026.10.18 charset-normalizer==3.5.2 click==8.5.1
cloudpickle==3.1.2 diskcache==5.6.3 einops==0.8.2 fastapi==0.165.0 filelock==4.2.11
fms-model-optimizer==0.8.7 frozenlist==1.8.0 fsspec==2026.9.0 gguf==0.19.0 h11==0.16.0
hf-xet==1.8.0 httpcore2==2.16.2 httpx2==2.16.2 huggingface_hub==2.4.0 ibm-fms==1.13.1
idna==3.20 Jinja2==3.1.6 jiter==0.19.0 llguidance==1.9.1 markdown-it-py==4.3.0
MarkupSafe==3.0.4 mdurl==0.1.2 mpmath==1.3.0 msgspec==0.22.0 multidict==7.2.1 networkx==3.6.1
numpy==2.3.5 openai==3.52.0 openai-harmony==0.0.8 opentelemetry-api==1.45.2 packaging==26.3
partial-json-parser==0.2.1.1.post7 pillow==13.0.0 prometheus_client==0.26.0 propcache==0.5.4
psutil==7.2.2 py-cpuinfo==9.0.0 pybase64==1.5.1 pydantic==2.14.3 pydantic_core==2.50.4
Pygments==2.21.0 PyYAML==6.0.3 pyzmq==27.3.0 regex==2026.11.15 requests==2.34.2 rich==15.0.0
safetensors==0.8.0 setuptools==84.2.1 shellingham==1.5.4 sniffio==1.3.1 starlette==1.10.0
sympy==1.14.0 tokenizers==0.23.3 tqdm==4.70.1 transformers==5.23.0 truststore==0.10.5
typer==0.29.2 typing_extensions==4.16.0 typing-inspection==0.4.5 urllib3==2.8.0 uvloop==0.23.0
xgrammar==0.2.8 yarl==1.25.1
"""


class ReleaseError(Exception):
    """A release cannot be had; one line that says why and what to do."""


@dataclass(frozen=True)
class Release:
    """A published version of a scheduler, and the version of vLLM that it runs on."""

    name: str
    version: str
    vllm: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def system(self) -> str:
        """The system that it is a release of."""
        return "vllm" if self.name == "vllm" else "spyre"


def parse_release(text: str) -> Release | None:
    """The release that NAME==VERSION names; None if the text names none that is known.

    Raises ReleaseError if the name is known and the version is not supported.
    """
    name, equals, version = text.partition("==")
    name, version = re.sub(r"[-_.]+", "-", name.strip()).lower(), version.strip()
    if not equals or name not in VLLM_OF:
        return None
    supported = VLLM_OF[name]
    if version not in supported:
        raise ReleaseError(
            f"{name}: version {version!r} is not supported; supported are {', '.join(supported)}"
        )
    return Release(name, version, supported[version])
