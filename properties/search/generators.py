"""The generators of configurations and requests that each system supplies to the state machine."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hypothesis import strategies as st

from ...model.pool import Content, prefix
from ...model.scenario import Request, Segment
from ...spec.systems import part
from ..history.run_history import RunHistory

TIME_STAMP = 1_764_000_000_000  # a priority; its last 32 bits are a negative number


class Shape(NamedTuple):
    """A request without name and content; lengths are in tokens.

    If `output_len` is None, it is max_tokens. A lower `priority` is more important.
    """

    prompt: int
    max_tokens: int
    output_len: int | None
    priority: int = 0


def like_an_earlier_prompt(
    draw: st.DrawFn,
    earlier: Sequence[Request],
    name: str,
    length: int,
    block: int,
    units: Sequence[int],
    longest: int,
) -> Content:
    """Draw a prompt of about `length` tokens, at most `longest`, that begins like an earlier one.

    Sometimes the new prompt is exactly the earlier prompt, its full blocks, or the prompt with its
    answer. Otherwise the common part ends at a point on which decisions of prefix caching depend:
    at the end of the earlier prompt or answer, or at a multiple of one of the `units`, such as a
    block. The rest comes from the stream `name` or from the stream of the first request, so that
    identical blocks occur after different beginnings.
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
            st.sampled_from((other.prompt_len, answered)),
            st.just(length),
            st.integers(1, max(length // unit, 1)).map(lambda count: count * unit),
        )
    )
    shared = prefix(content, min(common, length))
    rest = length - sum(tokens for _, tokens in shared)
    behind = draw(st.sampled_from((name, name, earlier[0].id)))
    return (*shared, (behind, rest)) if rest else shared


class Generators(Protocol):
    """The strategies module of a system.

    `LATE_STEPS` is the largest number of steps that pass before a late request arrives.

    Optional members: `WORKLOADS` maps each shape of workload to the configuration values to draw
    from. `CONTROLS` lists the control events to draw from. `takes_priorities(config)` returns
    whether requests have priorities; without it, drawn priorities are ignored.
    `orders_by_priority(config)` returns whether priorities decide the order. `drafts(config)`
    returns how many drafts are proposed after each token; without it, there are none.
    `more_fields(config)` maps further fields of a workload's requests to the values to draw from.
    `pictures(config)` returns the encoder inputs that the prompts of a workload may contain.
    """

    LATE_STEPS: int

    def configs(
        self, scale: Any, revision: str, *avoid: frozenset[str]
    ) -> st.SearchStrategy[dict[str, Any]]:
        """Draw configurations of a scale that the revision supports. Leave out the kinds of
        configuration in `avoid`."""

    def shapes(self, config: Any) -> st.SearchStrategy[Shape]:
        """Draw requests without names."""

    def long_prompts(self, config: Any) -> st.SearchStrategy[Shape]:
        """Draw requests whose prompts take many steps to compute."""

    def beside_the_batch(self, config: Any, history: RunHistory[Any]) -> st.SearchStrategy[Shape]:
        """Draw a request that, together with the running requests, reaches a limit exactly, just
        misses it, or just exceeds it."""

    def beside_a_prefill(self, config: Any, history: RunHistory[Any]) -> st.SearchStrategy[Shape]:
        """Draw a request like those of `beside_the_batch`, for use while another prompt is being
        computed."""

    def contents(
        self, config: Any, earlier: Sequence[Request], name: str, length: int
    ) -> st.SearchStrategy[tuple[Segment, ...]]:
        """Draw the content of a prompt of about `length` tokens."""

    def fitted(self, config: Any, content: tuple[Segment, ...], shape: Shape | None) -> Shape:
        """Return the shape of a request with this prompt and with a max_tokens that fits."""

    def caches(self, config: Any) -> bool:
        """Return whether the configuration has a prefix cache."""

    def steps_to_border(self, config: Any, history: RunHistory[Any]) -> int:
        """Return how many steps it takes to reach a limit or the end of a block."""


def generators_of(system: str) -> Generators:
    generators: Generators = part(system, "generators")
    return generators


def has_priorities(generators: Generators, config: Any) -> bool:
    return bool(_optional(generators, "takes_priorities", config))


def orders_by_priority(generators: Generators, config: Any) -> bool:
    return bool(_optional(generators, "orders_by_priority", config))


def drafts_of(generators: Generators, config: Any) -> int:
    return int(_optional(generators, "drafts", config))


def more_fields_of(generators: Generators, config: Any) -> Mapping[str, Sequence[Any]]:
    return _optional(generators, "more_fields", config) or {}


def pictures_of(generators: Generators, config: Any) -> Sequence[Segment]:
    return _optional(generators, "pictures", config) or ()


def _optional(generators: Generators, name: str, config: Any) -> Any:
    """Call the optional function `name` with the configuration. Return False if the system lacks
    this function."""
    function = getattr(generators, name, None)
    return function is not None and function(config)


class RequestFeatures(Protocol):
    """The features of a system's requests beyond prompt and length. A module of the system
    implements it."""

    def has_features(self, config: Any) -> bool:
        """Return whether requests of this configuration have such features."""

    def with_features(self, request: Request, config: Any) -> st.SearchStrategy[Request]:
        """Draw requests that have such features."""

    def too_large(self, config: Any, name: str) -> st.SearchStrategy[Request | None]:
        """Draw requests that can never run because of a feature, such as an encoder input. Draw
        None if no feature can have this effect."""


def request_features_of(system: str) -> RequestFeatures | None:
    """Return the request features of a registered system, or None if it has none."""
    features: RequestFeatures | None = part(system, "request_features")
    return features
