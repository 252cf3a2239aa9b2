"""What each system gives to the generic machine: scales, configurations, requests."""

from typing import Any, Protocol

from hypothesis import strategies as st

from .ledger import Ledger
from .spyre import strategies as spyre


class Generators(Protocol):
    """A system's strategies module."""

    def configs(self, scale: Any) -> st.SearchStrategy[dict[str, Any]]:
        """Configurations of a scale."""

    def shapes(self, config: Any) -> st.SearchStrategy[Any]:
        """Requests without names."""

    def beside_the_batch(self, config: Any, ledger: Ledger) -> st.SearchStrategy[Any]:
        """Requests aimed at what is running."""

    def steps_to_border(self, config: Any, ledger: Ledger) -> int:
        """Steps until something interesting happens."""


GENERATORS: dict[str, Generators] = {"spyre": spyre}
