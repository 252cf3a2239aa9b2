"""What each system gives to the generic machine: scales, configurations, requests."""

from collections.abc import Sequence
from typing import Any, Protocol

from hypothesis import strategies as st

from ..model.scenario import Request, Segment
from .ledger import Ledger
from .llmservingsim import strategies as llmservingsim
from .llmservingsim.known_bugs import KNOWN_BUGS as LLMSERVINGSIM_KNOWN_BUGS
from .llmservingsim.known_bugs import OUT_OF_SCOPE as LLMSERVINGSIM_OUT_OF_SCOPE
from .llmservingsim.mutants import MUTANTS as LLMSERVINGSIM_MUTANTS
from .nano_vllm import strategies as nano_vllm
from .nano_vllm.known_bugs import KNOWN_BUGS as NANO_KNOWN_BUGS
from .nano_vllm.known_bugs import OUT_OF_SCOPE as NANO_OUT_OF_SCOPE
from .nano_vllm.mutants import MUTANTS as NANO_MUTANTS
from .spyre import strategies as spyre
from .spyre.known_bugs import KNOWN_BUGS as SPYRE_KNOWN_BUGS
from .spyre.known_bugs import OUT_OF_SCOPE as SPYRE_OUT_OF_SCOPE
from .spyre.mutants import MUTANTS as SPYRE_MUTANTS
from .vllm import strategies as vllm
from .vllm.known_bugs import KNOWN_BUGS as VLLM_KNOWN_BUGS
from .vllm.known_bugs import OUT_OF_SCOPE as VLLM_OUT_OF_SCOPE
from .vllm.mutants import MUTANTS as VLLM_MUTANTS


class Generators(Protocol):
    """A system's strategies module.

    `LATE_STEPS`: how many steps a late request lets pass at most before it comes.
    """

    LATE_STEPS: int

    def configs(self, scale: Any, revision: str) -> st.SearchStrategy[dict[str, Any]]:
        """Configurations of a scale that the revision has."""

    def shapes(self, config: Any) -> st.SearchStrategy[Any]:
        """Requests without names."""

    def long_prompts(self, config: Any) -> st.SearchStrategy[Any]:
        """Requests whose prompts take many steps."""

    def beside_the_batch(self, config: Any, ledger: Ledger) -> st.SearchStrategy[Any]:
        """Requests aimed at what is running."""

    def beside_a_prefill(self, config: Any, ledger: Ledger) -> st.SearchStrategy[Any]:
        """Requests aimed at what is running while somebody's prompt is computed."""

    def contents(
        self, config: Any, earlier: Sequence[Request], name: str, length: int
    ) -> st.SearchStrategy[tuple[Segment, ...]]:
        """Segments of a prompt of about so many tokens."""

    def fitted(self, config: Any, content: tuple[Segment, ...], shape: Any) -> Any:
        """The shape with the prompt that `content` is, and tokens that fit."""

    def caches(self, config: Any) -> bool:
        """The configuration has a prefix cache."""

    def steps_to_border(self, config: Any, ledger: Ledger) -> int:
        """Steps until something interesting happens."""


MUTANTS = {
    "spyre": (*SPYRE_MUTANTS, *SPYRE_KNOWN_BUGS),
    "vllm": (*VLLM_MUTANTS, *VLLM_KNOWN_BUGS),
    "nano_vllm": (*NANO_MUTANTS, *NANO_KNOWN_BUGS),
    "llmservingsim": (*LLMSERVINGSIM_MUTANTS, *LLMSERVINGSIM_KNOWN_BUGS),
}
# Published bugs that no mutant brings back, with the reason.
OUT_OF_SCOPE = {
    "spyre": SPYRE_OUT_OF_SCOPE,
    "vllm": VLLM_OUT_OF_SCOPE,
    "nano_vllm": NANO_OUT_OF_SCOPE,
    "llmservingsim": LLMSERVINGSIM_OUT_OF_SCOPE,
}
GENERATORS: dict[str, Generators] = {
    "spyre": spyre,
    "vllm": vllm,
    "nano_vllm": nano_vllm,
    "llmservingsim": llmservingsim,
}
