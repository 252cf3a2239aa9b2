"""The extent of the runs: their sizes, and how many of them had each feature.

If a rule held, it held in these runs only. Longer prompts, or more requests at once, were not
tried.
"""

from collections import Counter
from typing import Any

import msgspec

from ...model.scenario import Scenario
from ..history.features import features_of
from ..history.run_history import RunHistory


def features_of_requests(scenario: Scenario) -> dict[str, bool]:
    requests = scenario.requests
    shared = any(stream != request.id for request in requests for stream, _ in request.prompt)
    early = any(request.tokens_to_emit < request.max_tokens for request in requests)
    own = features_of(scenario.system).of_requests(scenario.config, requests)
    return {
        "abort": any(request.abort_at is not None for request in requests),
        "end before max_tokens": early,
        "shared prompt": shared and not any(request.encoder_inputs for request in requests),
        "priority": any(request.priority for request in requests),
        **own,
    }


class Reach(msgspec.Struct, frozen=True):
    """The sizes and features of some runs. Requests that the target refused are not counted.

    Attributes:
        runs: the number of runs, without those that only shrink a finding.
        requests: the largest number of accepted requests in a run.
        prompt_tokens: the most tokens of a prompt that a request computed or found in the cache.
        output_tokens: the most tokens that a request generated.
        steps: the steps of the longest run.
        features: for each feature, the number of runs that had it; 0 if none did.
    """

    runs: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    features: dict[str, int] = {}

    def with_run(self, scenario: Scenario, history: RunHistory[Any]) -> "Reach":
        """Return the reach with one more run, whose accepted requests are in `scenario`."""
        accounts = history.requests.values()
        features = {
            **features_of_requests(scenario),
            "abort inside a step": any(request.abort_inside for request in scenario.requests),
            "bounded pool": scenario.config.get("num_blocks") is not None,
            **({"control event": True} if scenario.events else {}),
        }
        return self + Reach(
            1,
            len(accounts),
            max((min(each.prompt, each.max_computed) for each in accounts), default=0),
            max((each.emitted for each in accounts), default=0),
            history.step,
            {name: int(occurs) for name, occurs in features.items()},
        )

    def __add__(self, other: "Reach") -> "Reach":
        features = Counter(self.features)
        features.update(other.features)
        return Reach(
            self.runs + other.runs,
            max(self.requests, other.requests),
            max(self.prompt_tokens, other.prompt_tokens),
            max(self.output_tokens, other.output_tokens),
            max(self.steps, other.steps),
            dict(features),
        )
