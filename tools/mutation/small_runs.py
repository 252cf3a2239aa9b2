"""Small runs of Spyre's model, in which a change may exceed the limit or alter a step.

The functions import the model when they are called, so that a fault planted before the call takes
effect.
"""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

PAIRED_BLOCK = 2  # the block size, in tokens, in runs of two requests


class Question(NamedTuple):
    """A revision that stays within the limit, and the formula or check by which it admits
    requests."""

    revision: str
    formula: str
    pausing: bool = False
    interleave: bool = True


def model_of(question: Question, **lengths: Any) -> Any:
    from schedproof.model.spyre.model import make_model, with_formula

    keys = {"block_size": PAIRED_BLOCK, "chunk_size": PAIRED_BLOCK, "max_num_seqs": 6}
    keys["max_model_len"] = 8
    keys |= {"pausing": question.pausing, "interleave": question.interleave}
    model = make_model(question.revision, {**keys, **lengths})
    if question.formula != question.revision and question.formula != "common_base":
        return with_formula(model, question.formula)
    return model


def volume(lengths: list[int], block: int) -> int:
    """Return batch x largest tkv of a decode step. `lengths` gives the tokens of each request in
    it, including those of this step."""
    widest = max(-(-tokens // block) for tokens in lengths)
    return len(lengths) * max((widest + -tokens // block) * block + tokens for tokens in lengths)


class Seen(NamedTuple):
    """A step: the limit, the block size, the lengths in a decode step, and the observation."""

    limit: int
    block: int
    lengths: list[int]
    observed: dict[str, Any]


# Prompt tokens, max_tokens, and the tokens at which the request ends.
Lengths = tuple[int, int, int]
KINDS: list[Lengths] = [(1, 5, 5), (3, 3, 3), (2, 7, 4), (5, 4, 4), (1, 2, 1), (3, 6, 6)]
RANDOM_RUNS = 1000
MORE_RUNS = 1500  # additional runs of a change that differs
STEPS = 30  # the length of a random run


def small_runs(question: Question) -> Iterator[Seen]:
    """Yield each step of every small run."""
    for first in KINDS:
        for second in KINDS:
            yield from runs_of_pair(question, first, second)
    for seed in range(RANDOM_RUNS):
        yield from random_run(question, seed)


def request_of(name: int, lengths: Lengths, *, start: int = 0, shared: bool = False) -> Any:
    """Return a request of a scenario. All `shared` prompts begin with the same tokens."""
    from schedproof.model.scenario import Request

    prompt, tokens, ends = lengths
    segment = ("p" if shared else f"p{name}", prompt)
    fields: dict[str, Any] = {"prompt": (segment,), "max_tokens": tokens, "output_len": ends}
    return Request(id=f"r{name}", arrival=start, **fields)


def runs_of_pair(question: Question, first: Lengths, second: Lengths) -> Iterator[Seen]:
    """Run two requests, with every possible abort."""
    from schedproof.tests.solver.every_run import moves

    limit = 8
    model = model_of(question, max_batch_tkv=limit)
    requests = [request_of(0, first), request_of(1, second)]
    prompts = {request.id: request.prompt_len for request in requests}
    for move in moves(model, requests):
        admitted = (*move.before.running, *_paused(move))
        generated = {request.id: request.generated for request in admitted}
        lengths = decoded(move.seen, prompts, generated)
        yield Seen(limit, PAIRED_BLOCK, lengths, move.seen)


class RandomLoad(NamedTuple):
    """Requests, a limit, and the abort: which request, in which step, before or inside it."""

    limit: int
    keys: dict[str, Any]
    requests: list[Any]
    aborts: dict[int, str]
    inside: bool


def random_load(question: Question, seed: int) -> RandomLoad:
    chance = random.Random(seed)
    limit, count, block = chance.randint(8, 26), chance.randint(3, 6), chance.randint(1, 3)
    caching, chunk = chance.random() < 0.3, block * chance.randint(1, 2)
    keys = {"max_batch_tkv": limit, "chunk_size": chunk, "prefix_caching": caching}
    keys |= {"block_size": block, "max_num_seqs": chance.choice([2, 3, 6, 6])}
    # In 2.1.2, this would run out of blocks.
    if chance.random() < 0.3 and question.revision != "2.1.2":
        keys["num_blocks"] = chance.randint(1, 3) - -9 // block
    requests = []
    for number in range(count):
        prompt = chance.randint(1, 6)
        tokens = chance.randint(1, 9 - prompt)
        ends = tokens if chance.random() < 0.7 else chance.randint(1, tokens)
        start, lengths = chance.randint(0, 8), (prompt, tokens, ends)
        requests.append(request_of(number, lengths, start=start, shared=caching))
    aborted = chance.random() < 0.3
    aborts = {chance.randint(1, 12): chance.choice(requests).id} if aborted else {}
    return RandomLoad(limit, keys, requests, aborts, inside=bool(seed % 2))


def random_run(question: Question, seed: int) -> Iterator[Seen]:
    """Run three to six requests."""
    load = random_load(question, seed)
    model = model_of(question, **load.keys)
    prompts = {request.id: request.prompt_len for request in load.requests}
    state, generated = model.initial(), Counter[str]()
    for step in range(STEPS):
        for request in load.requests:
            if request.arrival == step:
                state = model.arrive(state, request)
        inside = (load.aborts[step],) if step in load.aborts and load.inside else ()
        if step in load.aborts and not inside:
            state = model.abort(state, load.aborts[step])
        before = dict(generated)
        state, seen = model.step(state, inside)
        generated.update(seen["emitted"])
        lengths = decoded(seen, prompts, before)
        yield Seen(load.limit, load.keys["block_size"], lengths, seen)


def _paused(move: Any) -> Any:
    return getattr(move.before, "paused", ())


def decoded(seen: dict[str, Any], prompts: dict[str, int], generated: dict[str, int]) -> list[int]:
    """Return the lengths of the requests that decode in this step, including the token that the
    step computes."""
    if seen["kind"] != "decode":
        return []
    return [prompts[name] + generated.get(name, 0) for name in seen["scheduled"]]


def what_it_does(question: Question, intact: str) -> str:
    """Describe what the model that is loaded in this process does in small runs.

    `intact` is the digest of the unchanged model's runs. If it is empty, return the digest instead.
    """
    digest = hashlib.sha256()
    try:
        for step in small_runs(question):
            if exceeds(step):
                return "overruns"
            digest.update(json.dumps(step.observed).encode())
        if not intact:
            return digest.hexdigest()
        if digest.hexdigest() == intact:
            return "the same"
        for seed in range(RANDOM_RUNS, RANDOM_RUNS + MORE_RUNS):
            if any(map(exceeds, random_run(question, seed))):
                return "overruns"
    except Exception as error:  # caused by the change
        return f"crashes ({type(error).__name__})"
    return "differs"


def exceeds(step: Seen) -> bool:
    return bool(step.lengths) and volume(step.lengths, step.block) > step.limit
