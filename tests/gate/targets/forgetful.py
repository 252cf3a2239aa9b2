"""Scheduler classes for vLLM that forget something, as those do that copy schedule() and miss a
later change. They run in the environment of a release, beside the tests that name this file."""

import functools

from vllm.v1.core.sched.scheduler import Scheduler  # type: ignore[import-not-found]


class Forgets(Scheduler):  # type: ignore[misc]
    """Asks for blocks as the release, without one of the arguments."""

    forgotten = ""

    def __init__(self, *args, **kwargs) -> None:  # type: ignore[no-untyped-def]
        super().__init__(*args, **kwargs)
        ask = self.kv_cache_manager.allocate_slots

        @functools.wraps(ask)
        def without(*args, **kwargs):  # type: ignore[no-untyped-def]
            kwargs.pop(self.forgotten, None)
            return ask(*args, **kwargs)

        self.kv_cache_manager.allocate_slots = without


class ForgetsThatNothingRuns(Forgets):
    """The watermark is kept although nothing runs: who alone needs it waits for ever."""

    forgotten = "has_scheduled_reqs"


class ForgetsTheWholeSequence(Forgets):
    """A request is admitted though its whole sequence has no room."""

    forgotten = "full_sequence_must_fit"


class ForgetsTheLookahead(Forgets):
    """A drafter finds no room for its tokens."""

    forgotten = "num_lookahead_tokens"
