"""A run history that forks at every step and may contain undecided requests."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import fields
from functools import cache
from typing import Any

from ...properties.history.features import Features
from ...properties.history.request_history import RequestHistory
from ...properties.history.run_history import RunHistory
from ...properties.history.shared_prefixes import SharedPrefixes
from .undecided import Candidates, OpenRequestHistory, fully_decided

# The fields that depend on a request's candidates, or that are known only when it has ended.
DECIDED = {"id", "prompt", "max_tokens", "output_len", "content", "priority", "ended", "ended_at"}


@cache
def counters(features: Features) -> tuple[str, ...]:
    """Return the fields of a request that steps change, for decided and undecided requests
    alike."""
    names = (field.name for field in fields(features.request_history))
    return tuple(name for name in names if name not in DECIDED)


class _Unsorted(SharedPrefixes[Any]):
    """Replaces the index of shared prefixes, without storing any requests. Several paths would
    share an index, and an index cannot contain undecided requests, because their tokens are
    unknown."""

    def add(self, request: Any, instead_of: Any = None) -> None: ...

    def end(self, request: Any) -> None: ...


class BranchingHistory(RunHistory[Any]):
    """The history on one path of an exploration.

    It does not compute bounds on waiting. These depend on the length of every request, so the
    lengths would have to be chosen. `Wait` bounds waiting instead.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._kin = _Unsorted((), 1)

    def fork(self) -> BranchingHistory:
        other = BranchingHistory.__new__(BranchingHistory)
        other.__dict__.update(self.__dict__)
        other.requests = {
            name: account if account.ended and not account.may_change_after_end else copy(account)
            for name, account in self.requests.items()
        }
        other.live = {name: other.requests[name] for name in self.live}
        other.aborts_to_report = set(self.aborts_to_report)
        other.aborts_inside = set(self.aborts_inside)
        other.answers = {}
        other._changed()
        return other

    def kin(self, request: RequestHistory) -> Collection[RequestHistory]:
        """Return all requests: any of them may share the prefix of an undecided one."""
        return self.requests.values()

    def open(self, request: str, candidates: Candidates) -> None:
        self._enter(request, OpenRequestHistory(request, candidates, len(self.requests)))

    def narrow(self, request: str, candidates: Candidates) -> None:
        """Restrict the request to these candidates. If the candidates agree on every field, give
        the request an ordinary history."""
        old: Any = self.live[request]
        if not fully_decided(candidates):
            old.candidates = candidates
            return
        known: Any = candidates
        tokens, content = known.max_tokens, known.known_tokens(request)
        make = self.features.request_history
        new = make(request, known.prompt, tokens, tokens, content, priority=known.priority)
        for name in counters(self.features):
            setattr(new, name, getattr(old, name))
        self._enter(request, new)

    def ends(self, request: str) -> None:
        account = self.live[request]
        account.output_len = account.emitted + 1

    def begun_since(self, gone: RequestHistory) -> tuple[str, ...]:
        """Return the unfinished requests that began after `gone` had ended. If one of them filled a
        block with the same content, that block is newer, and the cache no longer finds the block of
        `gone`."""
        if gone.ended_at is None:
            return ()
        return tuple(name for name, account in self.live.items() if account.began > gone.ended_at)

    def _enter(self, request: str, account: Any) -> None:
        self.requests[request] = account
        self.live[request] = account
        self._changed()

    def _note_first_in_line(self) -> None: ...
