"""How the rules of each system are decided by proof."""

from collections.abc import Mapping

from .decided import Decided
from .spyre.other_rules import DECIDED as SPYRE_DECIDED
from .vllm.other_rules import DECIDED as VLLM_DECIDED

# Spyre's volumetric rule (SPY-R07) apart, which has more questions than one.
DECIDED: Mapping[str, Mapping[str, Decided]] = {
    "spyre": SPYRE_DECIDED,
    "vllm": VLLM_DECIDED,
    "nano_vllm": {},
    "llmservingsim": {},
}
