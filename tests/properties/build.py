"""Ledgers and steps put together by hand: block 4, chunk 8, no limit near."""

from collections.abc import Collection
from typing import Any

from schedproof.model.observation import Step
from schedproof.model.systems import full_config
from schedproof.properties.history.request_history import RequestHistory
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.rules.registry import predicates_of
from schedproof.properties.spyre.history import SpyreRequestHistory

BLOCK = 4
CHUNK = 8
SMALL = {
    **{"block_size": BLOCK, "chunk_size": CHUNK, "max_num_seqs": 4},
    **{"max_model_len": 64, "max_batch_tkv": 256},
}


def config(revision: str = "sound", **changes: Any) -> dict[str, Any]:
    """Every key of a configuration in which nothing binds."""
    return full_config("spyre", revision, SMALL | changes)


def history(
    *accounts: SpyreRequestHistory,
    revision: str = "sound",
    last: Step | None = None,
    aborts_inside: Collection[str] = (),
    aborts_to_report: Collection[str] = (),
    **changes: Any,
) -> RunHistory:
    """The books in front of a step, these accounts in them, in order of arrival.

    `changes` are keys of the configuration, or attributes of the history.
    """
    book = RunHistory(config(revision), revision, "spyre")
    values = {key: changes.pop(key) for key in list(changes) if hasattr(book, key)}
    return RunHistory(
        **{
            "config": config(revision, **changes),
            "revision": revision,
            "system": "spyre",
            "paused": frozenset(account.id for account in accounts if account.paused_steps),
            "requests": {account.id: account for account in accounts},
            "live": {account.id: account for account in accounts if account.ended is None},
            "aborts_inside": set(aborts_inside),
            "aborts_to_report": set(aborts_to_report),
            "last": last,
        }
        | values
    )


def known(accounts: Collection[RequestHistory]) -> dict[str, dict[str, RequestHistory]]:
    """Return the fields of a history that knows these requests, which arrived in this order."""
    for number, account in enumerate(accounts):
        account.arrival = number
    requests = {account.id: account for account in accounts}
    return {"requests": requests, "live": dict(requests)}


def waiting(name: str, prompt: int = 5, max_tokens: int = 4, **changes: Any) -> SpyreRequestHistory:
    """A request of which nothing is computed; its tokens are its own."""
    values = {"output_len": max_tokens, "content": ((name, prompt),)} | changes
    return SpyreRequestHistory(name, prompt, max_tokens, **values)


def prefilling(name: str, computed: int, prompt: int, **changes: Any) -> SpyreRequestHistory:
    """A request between two of its chunks."""
    steps = {"computed": computed, "prefill_steps": -(-computed // CHUNK)}
    return waiting(name, prompt, **(steps | changes))


def decoding(
    name: str, computed: int, remaining: int = 3, *, prompt: int | None = None, **changes: Any
) -> SpyreRequestHistory:
    """A request that may still emit `left` tokens; `prompt` is by default all that is computed."""
    length = computed if prompt is None else prompt
    emitted = computed - length + 1
    values = {"computed": computed, "emitted": emitted, "prefill_steps": -(-length // CHUNK)}
    return waiting(name, length, emitted + remaining, **(values | changes))


def prefill(name: str, tokens: int, **fields: Any) -> Step:
    """A chunk of one request."""
    return Step(kind="prefill", scheduled={name: tokens}, **fields)


def decode(*names: str, **fields: Any) -> Step:
    """A token for each of them."""
    return Step(kind="decode", scheduled=dict.fromkeys(names, 1), **fields)


def idle(**fields: Any) -> Step:
    """Nothing."""
    return Step(kind="idle", scheduled={}, **fields)


def broken(rule: str, book: RunHistory, step: Step) -> str | None:
    """What the rule's predicate says of the step."""
    return predicates_of("spyre")[rule].broken(book, step)


def exercised(rule: str, book: RunHistory, step: Step) -> bool:
    """Whether the rule's witness occurs in the step."""
    return predicates_of("spyre")[rule].exercised(book, step)
