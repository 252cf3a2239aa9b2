"""What each system gives to the engines that decide: proofs, and scopes to explore."""

from collections.abc import Mapping, Sequence

from .decided import Decided
from .scope import Scope
from .spyre.other_rules import DECIDED as SPYRE_DECIDED
from .spyre.scopes import CHECKUP as SPYRE_CHECKUP
from .spyre.scopes import SCOPES as SPYRE_SCOPES
from .vllm.other_rules import DECIDED as VLLM_DECIDED
from .vllm.scopes import CHECKUP as VLLM_CHECKUP
from .vllm.scopes import SCOPES as VLLM_SCOPES

# Spyre's volumetric rule (SPY-R07) apart, which has more questions than one.
DECIDED: Mapping[str, Mapping[str, Decided]] = {"spyre": SPYRE_DECIDED, "vllm": VLLM_DECIDED}
SCOPES: Mapping[str, Sequence[Scope]] = {"spyre": SPYRE_SCOPES, "vllm": VLLM_SCOPES}
# What a fault has to show itself in.
CHECKUP: Mapping[str, Sequence[Scope]] = {"spyre": SPYRE_CHECKUP, "vllm": VLLM_CHECKUP}
