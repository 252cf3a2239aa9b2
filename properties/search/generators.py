"""The generators that each system gives the state machine: configurations and requests."""

from collections.abc import Sequence
from typing import Any, Protocol

from hypothesis import strategies as st

from ...model.pool import Content, prefix
from ...model.scenario import Request, Segment
from ...spec.systems import part
from ..history.run_history import RunHistory


def said_before(
    draw: st.DrawFn,
    earlier: Sequence[Request],
    name: str,
    length: int,
    block: int,
    units: Sequence[int],
    longest: int,
) -> Content:
    """A prompt of about `length` tokens, `longest` at most, that begins as an earlier one.

    The point up to which it does lies where prefix caching decides: at the end of a block or of
    another of the `units`, of the earlier prompt, or of what it generated. A prompt may come again
    as it was, as its whole blocks, or with the answer to it. The rest is stream `name`.
    """
    gone = [request for request in earlier if request.abort_at is not None]
    other = draw(st.sampled_from(gone or earlier)) if draw(st.booleans()) else earlier[-1]
    content = (*other.prompt, (f"out:{other.id}", other.tokens_to_emit))
    whole = other.prompt_len // block * block
    answered = min(other.prompt_len + other.tokens_to_emit, longest)
    again = draw(st.sampled_from((0, 0, other.prompt_len, whole, answered, answered)))
    if again > 0:
        return prefix(content, again)
    unit = draw(st.sampled_from(units))
    common = draw(
        st.one_of(
            st.just(other.prompt_len),
            st.just(length),
            st.integers(1, max(length // unit, 1)).map(lambda count: count * unit),
        )
    )
    shared = prefix(content, min(common, length))
    rest = length - sum(tokens for _, tokens in shared)
    return (*shared, (name, rest)) if rest else shared


class Generators(Protocol):
    """A system's strategies module.

    `LATE_STEPS`: how many steps a late request lets pass at most before it comes.
    `WORKLOADS`, which a module may lack: by shape of workload, the values from which keys of its
    configuration are drawn. `CONTROLS`, which a module may lack: the control events of an operator.
    """

    LATE_STEPS: int

    def configs(
        self, scale: Any, revision: str, *avoid: frozenset[str]
    ) -> st.SearchStrategy[dict[str, Any]]:
        """Draw configurations of a scale that the revision has, none of the kinds to `avoid`."""

    def shapes(self, config: Any) -> st.SearchStrategy[Any]:
        """Draw requests without names."""

    def long_prompts(self, config: Any) -> st.SearchStrategy[Any]:
        """Draw requests whose prompts take many steps."""

    def beside_the_batch(self, config: Any, history: RunHistory[Any]) -> st.SearchStrategy[Any]:
        """Draw a request aimed at the running ones."""

    def beside_a_prefill(self, config: Any, history: RunHistory[Any]) -> st.SearchStrategy[Any]:
        """Draw a request aimed at the running ones while the prompt of another is computed."""

    def contents(
        self, config: Any, earlier: Sequence[Request], name: str, length: int
    ) -> st.SearchStrategy[tuple[Segment, ...]]:
        """Draw segments of a prompt of about `length` tokens."""

    def fitted(self, config: Any, content: tuple[Segment, ...], shape: Any) -> Any:
        """Return the shape with the prompt that `content` is, and tokens that fit."""

    def caches(self, config: Any) -> bool:
        """Return whether the configuration has a prefix cache."""

    def steps_to_border(self, config: Any, history: RunHistory[Any]) -> int:
        """Return the steps until something interesting happens."""


def generators_of(system: str) -> Generators:
    generators: Generators = part(system, "generators")
    return generators


class RequestFeatures(Protocol):
    """The features of a system's requests beyond prompt and length; a module, like `Generators`."""

    def has_features(self, config: Any) -> bool:
        """Return whether requests of this configuration have such features."""

    def with_features(self, request: Request, config: Any) -> st.SearchStrategy[Request]:
        """Draw requests that have them."""

    def too_large(self, config: Any, name: str) -> st.SearchStrategy[Request | None]:
        """Draw requests of this name that a feature makes impossible to run, or return None."""


def request_features_of(system: str) -> RequestFeatures | None:
    """Return the request features of a registered system; None without any."""
    features: RequestFeatures | None = part(system, "request_features")
    return features
