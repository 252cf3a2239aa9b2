"""Grammars of structured outputs: which drafts fit a grammar, and which masks the worker gets.

Source: release 0.33.0: Scheduler.get_grammar_bitmask, and StructuredOutputManager.grammar_bitmask,
validate_tokens and accept_tokens. The scenario says when a grammar ends, and which drafts fit it.
"""

from collections.abc import Mapping
from typing import Any

from ..members import find
from .config import VllmConfig
from .queue import Plan
from .state import Grammar, Sequence, State


def fitting(grammar: Grammar, known: int, drafts: int) -> int:
    """Return how many of the drafts that follow the first `known` tokens fit the grammar. Before
    the grammar begins, all drafts fit; after it has ended, none does (V1-R65)."""
    fit = drafts
    if grammar.drafts:
        fit = min(drafts, grammar.drafts[known % len(grammar.drafts)])
    if grammar.ends is not None:
        fit = max(min(fit, grammar.ends - known), 0)
    return max(fit, min(drafts, grammar.begins - known))


def without_misfits(sequence: Sequence) -> Sequence:
    """Return the request without the proposed drafts that do not fit its grammar (V1-R65)."""
    if sequence.grammar is None:
        return sequence
    fit = fitting(sequence.grammar, sequence.generated, sequence.drafted)
    return sequence._replace(drafted=fit, unfit=sequence.drafted - fit)


def lose_drafts(plan: Plan) -> Plan:
    """Remove, from a plan that was made ahead, the drafts of requests that have a grammar but no
    token in flight. The scheduler receives and checks drafts together with the token in flight that
    they follow. Without such a token, the drafts are unchecked, and must not be accepted."""
    running = [
        sequence._replace(drafted=0)
        if sequence.grammar is not None and not sequence.promised and sequence.id in plan.scheduled
        else sequence
        for sequence in plan.running
    ]
    return plan._replace(running=tuple(running))


def fields(
    config: VllmConfig, before: State, plan: Plan, after: State, emitted: Mapping[str, int]
) -> dict[str, Any]:
    """Return the observation's fields about grammars: the masks that the worker gets, and how far
    the grammars have advanced (V1-R59)."""
    known = {s.id: s for s in (*before.waiting, *before.parked, *before.running)}
    total = {
        name: known[name].generated + tokens
        for name, tokens in emitted.items()
        if name in known and known[name].grammar is not None
    }
    return {
        "masks": masks(config, plan, after),
        "grammars": {name: accepted(known[name], tokens) for name, tokens in total.items()},
    }


def accepted(sequence: Sequence, tokens: int) -> int:
    """Return how many of the first `tokens` output tokens come between the beginning and the end of
    the grammar."""
    grammar = sequence.grammar or Grammar(0)
    return max((tokens if grammar.ends is None else min(tokens, grammar.ends)) - grammar.begins, 0)


def masks(config: VllmConfig, plan: Plan, after: State) -> dict[str, list[int | None]]:
    """Return the masks for the decision of a step. Each request that samples and has a grammar gets
    one mask for each draft that fits, and one for the token after these (V1-R60, V1-R64).

    If the masks depend on a token in flight, they are made when that token has arrived. Requests
    that have ended by then get none.
    """
    samples = {
        sequence.id: sequence
        for sequence in plan.running
        if sequence.grammar is not None and computes_all(plan, sequence)
    }
    if any(sequence.promised for sequence in samples.values()):
        live = {name: find(after.running, name) for name in samples}
        now = {name: sequence for name, sequence in live.items() if sequence is not None}
    else:
        now = samples
    return {
        name: rows(sequence, samples[name], plan.scheduled[name]) for name, sequence in now.items()
    }


def computes_all(plan: Plan, sequence: Sequence) -> bool:
    """Return whether the decision computes all known tokens of the request."""
    tokens = plan.scheduled.get(sequence.id)
    return tokens is not None and tokens >= sequence.num_uncomputed_tokens


def rows(now: Sequence, decided: Sequence, tokens: int) -> list[int | None]:
    grammar = now.grammar
    if grammar is None:
        return []
    beyond = tokens - decided.num_uncomputed_tokens
    drafts = fitting(grammar, now.generated, min(beyond, decided.drafted))
    first, ends = grammar.begins, grammar.ends
    places = range(now.generated, now.generated + drafts + 1)
    return [n if n >= first and (ends is None or n < ends) else None for n in places]
