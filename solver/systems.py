"""The scopes of each system: nothing here needs Z3, which takes a while to import."""

from collections.abc import Mapping, Sequence

from .llmservingsim.scopes import CHECKUP as LLMSERVINGSIM_CHECKUP
from .llmservingsim.scopes import SCOPES as LLMSERVINGSIM_SCOPES
from .nano_vllm.scopes import CHECKUP as NANO_CHECKUP
from .nano_vllm.scopes import SCOPES as NANO_SCOPES
from .scope import Scope
from .spyre.scopes import CHECKUP as SPYRE_CHECKUP
from .spyre.scopes import SCOPES as SPYRE_SCOPES
from .vllm.scopes import CHECKUP as VLLM_CHECKUP
from .vllm.scopes import SCOPES as VLLM_SCOPES

SCOPES: Mapping[str, Sequence[Scope]] = {
    "spyre": SPYRE_SCOPES,
    "vllm": VLLM_SCOPES,
    "nano_vllm": NANO_SCOPES,
    "llmservingsim": LLMSERVINGSIM_SCOPES,
}
# What a fault has to show itself in.
CHECKUP: Mapping[str, Sequence[Scope]] = {
    "spyre": SPYRE_CHECKUP,
    "vllm": VLLM_CHECKUP,
    "nano_vllm": NANO_CHECKUP,
    "llmservingsim": LLMSERVINGSIM_CHECKUP,
}
