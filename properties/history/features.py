"""Features of a system's runs that the kernel does not have: loads, drafts, steps in flight,
pauses.

The kernel follows a scheduler that completes each decision before the next one, and emits a token
in the step that computes it. A system with more features registers its own `Features`, as the part
`features` of its descriptor. The methods here are the kernel's defaults. The state of the features
is one immutable value, `RunHistory.system_state`, so that a run can branch.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...model.observation import Step
from ...model.scenario import OF_FEATURES, Request
from ...spec.systems import part
from . import prefix_hits
from .request_history import RequestHistory

Config = Mapping[str, Any]
Run = Any  # a RunHistory, whose module imports this one


class Features:
    """The features of one system. This base class is for systems without any.

    Attributes:
        request_history: the class that follows one request.
        never_preempts: True if no request ever loses computed tokens.
    """

    request_history: type[RequestHistory] = RequestHistory
    never_preempts = False

    def initial(self) -> Any:
        return None

    def caches_output(self, revision: str) -> bool:
        """Return whether blocks of generated tokens are cached like those of a prompt, according to
        a document of the revision."""
        return False

    # Requests

    def can_never_run(self, config: Config, request: Request) -> bool:
        """Return whether a feature of the request prevents it from ever running. By default,
        encoder inputs do, since only some systems support them."""
        return bool(request.encoder_inputs)

    def as_sent(self, config: Config, request: Request) -> Request:
        """Return the request without the fields that this configuration does not support."""
        return replace(request, accepted=(), sent_as=None, **OF_FEATURES)

    def reuses_ids(self, config: Config) -> bool:
        """Return whether a request may have the id of one that has ended."""
        return False

    def of_requests(self, config: Config, requests: Sequence[Request]) -> dict[str, bool]:
        """Return, for each feature of this system that the configuration allows, whether any of the
        requests uses it. Leave out features of the kernel."""
        return {}

    def follows(self, config: Config) -> tuple[str, ...]:
        """Return the step fields that a client needs in order to know which tokens are computed."""
        return ()

    def may_forget(self, config: Config) -> bool:
        """Return whether the history may drop requests that have ended."""
        return not prefix_hits.caches(config)

    # What a step does without showing it

    def restarts(self, step: Step) -> bool:
        """Return whether the step may have preempted requests and restarted them with a hit,
        without showing the preemption."""
        return step.preempted is None and not self.never_preempts

    def depth(self, config: Config) -> int:
        """Return the number of decisions that can be in flight at once. It is 1 if each decision
        completes before the next one is made."""
        return 1

    def completing(self, history: Run, step: Step) -> Container[str]:
        return step.scheduled

    def hit(self, history: Run, step: Step, account: RequestHistory) -> int | None:
        """Return the prefix hit, in tokens, of a request that starts in this step. Return 0 if it
        started earlier, and None if the hit is unknown."""
        aborted = account.id in history.aborts_inside
        return prefix_hits.tokens_hit(history.config, step, account, aborted)

    def reached(self, history: Run, account: RequestHistory) -> int:
        """Return the largest number of tokens that have ever been computed for a request. The
        request must not be scheduled in this step."""
        return account.max_computed

    def loads_in(self, history: Run, step: Step) -> list[tuple[RequestHistory, int]]:
        """Return the requests whose blocks are filled from outside in this step, each with the
        number of tokens that are filled."""
        return []

    def take_unseen(self, history: Run, step: Step) -> bool:
        """Return whether requests that load tokens from outside may have received blocks in this
        step without the step showing those blocks."""
        return False

    def may_lose_tokens(self, history: Run, step: Step, account: RequestHistory) -> bool:
        """Return whether a load that fails in this step may reduce the computed tokens of a
        request."""
        return False

    def place_unknown(self, account: RequestHistory) -> bool:
        """Return whether later requests may overtake this one, because it may have lost its place
        in the queue."""
        return False

    def right_drafts(
        self, history: Run, step: Step, account: RequestHistory, tokens: int
    ) -> int | None:
        """Return how many of the next `tokens` tokens of a request, including the prefix hit, are
        correct drafts. Return None for a request without drafts."""
        return None

    def may_compute_nothing(self, history: Run, step: Step) -> bool:
        """Return whether a step may compute nothing, either because blocks are being filled from
        outside or because no request can be scheduled yet."""
        return False

    def may_end_early(self, history: Run, account: RequestHistory) -> bool:
        return False

    def goes_on(self, account: RequestHistory) -> bool:
        """Return whether a request continues after the last token of its current output."""
        return False

    def idle_steps(self, history: Run) -> int:
        """Return how many consecutive steps before this one may have computed nothing."""
        return 1

    def steps_after_end(self, history: Run) -> int:
        """Return how long after the end of the last request, in steps, tokens may still be in
        flight, or blocks may still be loaded or sent."""
        return 0

    # The pool

    def group_pools(self, config: Config) -> tuple[int, ...]:
        """Return the number of blocks in the pool of each KV group after the first. Return an empty
        tuple if all groups share one pool."""
        return ()

    def held_after_end(self, config: Config) -> bool:
        """Return whether requests that have ended may keep their blocks for a while."""
        return False

    def free_is_unknown(self, history: Run) -> bool:
        """Return whether blocks may have become free although no step shows it."""
        return False

    def is_sent(self, account: RequestHistory) -> bool:
        """Return whether the blocks of a request are sent after its end."""
        return False

    def slots(self, config: Config, covered: int) -> int:
        """Return the number of tokens for which a request holds blocks once `covered` tokens are
        computed."""
        return covered

    # Control events

    def reset(self, history: Run) -> None:
        """Record that nothing can be found in the prefix cache any more."""

    def dropped(self, history: Run) -> None:
        """Record that the tokens in flight of the running requests will not arrive."""

    # The calls for one step, in this order

    def begin(self, history: Run, step: Step) -> None:
        """Record what happens in the step before anything is computed."""

    def computed(self, history: Run, step: Step, account: RequestHistory) -> None:
        """Record that a request has computed tokens, which `account.computed` already includes."""

    def decided(self, history: Run, step: Step) -> Any:
        """Record the decision. Return what completes in this step; the kernel passes the result to
        `emissions` and `emitted`."""

    def emissions(self, history: Run, step: Step, completes: Any) -> dict[str, int]:
        """Return how many tokens each request emits in this step. Called only if the target does
        not show them."""
        staying = history.live.keys() - history.aborts_inside
        accounts = [history.live[name] for name in step.scheduled if name in staying]
        return {request.id: 1 for request in accounts if request.computed >= request.num_tokens}

    def emitted(self, account: RequestHistory, tokens: int, completes: Any, config: Config) -> None:
        """Record that a request has emitted tokens, which `account.emitted` already includes."""

    def end(self, history: Run, step: Step) -> bool:
        """Record what becomes known once the step has emitted its tokens. Return whether a request
        may have changed its phase."""
        return False

    def ended(self, account: RequestHistory) -> None:
        """Record that a request has ended."""


KERNEL = Features()


def features_of(system: str) -> Features:
    """Return the features registered for a system, or the kernel's defaults if there are none."""
    registered: Features | None = part(system, "features")
    return registered or KERNEL
