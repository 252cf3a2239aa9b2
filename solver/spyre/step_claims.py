"""What the lemmas claim about each path of a step (`step_lemmas`, `pausing_lemmas`).

Each claim is a function of three arguments: the symbolic step, a number, and the result of one
path. If the number is not 0, the claim is the lemma's guard, in which a premise is weakened.
"""

from collections.abc import Iterator
from typing import Any

import z3

from ...model.spyre import volumetric
from ...model.spyre.state import Sequence as Request
from ...model.spyre.state import State
from ..smt.execution import bare, condition
from ..smt.terms import all_of, any_of, implies
from .symbolic_state import Call, Lengths, Stepped, keeps_lengths
from .symbolic_step import Step


def joining_is_accepted(step: Step, more: int, stepped: Stepped) -> Any:
    started = {request.id for request in stepped.before.waiting}
    # The check's answer holds only as long as no request of the batch has run since.
    none_ran = not {f"r{at}" for at in range(step.size)} & {*stepped.computed.scheduled}
    claims = []
    for request in _others(step, stepped.after):
        own = step.newcomers[request.id]
        decodes = request.computed >= request.prompt
        due = request.id in started if step.configuration.asks_once else decodes
        accepted = [_accepts(step, call, own, more) for call in stepped.calls]
        claims += [
            implies(due, any_of(not step.size, *accepted)),
            _joins_whole(step, more, request),
        ]
        claims.append(implies(any_of(due, decodes), none_ran))
    return all_of(claims)


def _joins_whole(step: Step, more: int, request: Request) -> Any:
    own, decodes = step.newcomers[request.id], request.computed >= request.prompt
    whole = all_of(request.computed == own.prompt, request.generated == 1 + more)
    return implies(decodes, whole)


def _accepts(step: Step, call: Call, newcomer: Lengths, more: int) -> Any:
    """Return whether the call accepted this newcomer together with the current decoding
    requests."""
    if len(call.members) != step.size or call.block != step.configuration.block:
        return z3.BoolVal(False)
    kinds = {type(call.newcomer), *map(type, call.members)}
    if kinds != {volumetric.Newcomer, volumetric.Decoding}:
        return z3.BoolVal(False)

    def place(judged: Any) -> int:
        computed = bare(judged.computed)
        found = (at for at, of in enumerate(step.members) if computed is of.computed)
        return next(found, step.size)

    return all_of(
        call.answer,
        call.newcomer.prompt == newcomer.prompt,
        call.newcomer.max_tokens == newcomer.tokens,
        call.limit == step.limit,
        *(
            claim
            for judged, member in zip(sorted(call.members, key=place), step.members, strict=True)
            for claim in (
                judged.computed == member.computed,
                judged.remaining - more == member.tokens - member.generated,
                judged.tkv >= member.computed,
                judged.prompt == member.prompt,
                call.tkv >= member.computed,
            )
        ),
    )


def runs_together(step: Step, more: int, stepped: Stepped) -> Any:
    names = {f"r{number}" for number in range(step.size)}
    scheduled = {*stepped.computed.scheduled}
    decodes = stepped.decision.kind == "decode"
    if not names:
        return z3.BoolVal(decodes == bool(more))
    if decodes != bool(names & scheduled) or (decodes and names != scheduled):
        return z3.BoolVal(False)
    return all_of(*_kept(step, more, stepped), reports_its_tkv(step, stepped))


def reports_its_tkv(step: Step, stepped: Stepped) -> Any:
    """Return whether a decode step reports the largest tkv of its requests, at the lengths that
    they have after the step."""
    if stepped.decision.kind != "decode":
        return z3.BoolVal(True)
    members = {f"r{number}": member for number, member in enumerate(step.members)}
    if not members.keys() >= {*stepped.computed.scheduled}:
        return z3.BoolVal(False)
    before = [members[name].computed for name in stepped.computed.scheduled]
    return any_of(
        [
            all_of(
                stepped.computed.tkv == tkv,
                *(length - 1 == had for length, had in zip(lengths, before, strict=True)),
            )
            for lengths, tkv in stepped.tkvs
            if len(lengths) == len(before)
        ]
    )


def keeps_order(step: Step, more: int, stepped: Stepped) -> Any:
    """Return whether a step that pauses requests leaves a state that the lemmas allow."""
    once = len({request.id for request in stepped.after.admitted}) == len(stepped.after.admitted)
    decoded = {f"r{number}" for number in range(step.size)}
    paused = {request.id for request in stepped.after.paused} <= decoded
    others = stepped._replace(after=stepped.after._replace(paused=()))
    fresh = [request.paused_steps == 0 for request in stepped.after.running]
    joined = [_joins_whole(step, 0, request) for request in _others(step, stepped.after)]
    return all_of(
        once, paused, *fresh, *joined, *_kept(step, more, stepped), one_prefills(step, more, others)
    )


def _kept(step: Step, more: int, stepped: Stepped) -> Iterator[Any]:
    """Yield claims about each decoding or paused request: if it ran, it has one token more; if it
    left, it had ended or was aborted; if it stays, it has a token left to generate."""
    after = {request.id: request for request in stepped.after.admitted}
    for number, member in enumerate(step.members):
        name = f"r{number}"
        ran, request = name in stepped.computed.scheduled, after.get(name)
        if request is None:
            ended = ran and member.generated + 1 == member.ends
            yield any_of(name in stepped.aborted, ended)
            continue
        yield request.computed - ran - more == member.computed
        yield request.generated - ran == member.generated
        yield request.generated < member.ends
        yield from keeps_lengths(request, member)


def remembered_tkv_covers(step: Step, more: int, stepped: Stepped) -> Any:
    after = stepped.after
    may_be_apart = step.configuration.interleave and not more
    apart = condition(after.last_step_was_prefill) if may_be_apart else False
    return all_of(
        [
            implies(
                request.computed >= request.prompt,
                any_of(
                    apart,
                    all_of(
                        request.computed + more <= after.tkv,
                        request.computed + more <= after.runner_tkv,
                    ),
                ),
            )
            for request in after.running
        ]
    )


def one_prefills(step: Step, more: int, stepped: Stepped) -> Any:
    after, claims = stepped.after, []
    others = _others(step, after)
    known = {request.id: request for request in stepped.before.waiting}
    waits = [request.id for request in after.waiting]
    kept = all(known.get(request.id) is request for request in after.waiting)
    in_line = [name for name in known if name in waits] == waits
    names = [*waits, *(request.id for request in after.running)]
    admitted = {request.id for request in stepped.before.admitted}
    once = len({*names}) == len(names) and {*names} <= admitted | known.keys()
    if len(others) > 1 or after.paused or not kept or not in_line or not once:
        return z3.BoolVal(False)
    for name in {request.id for request in (*stepped.before.running, *stepped.before.waiting)}:
        if name in step.newcomers and name not in {*waits, *stepped.aborted}:
            still_runs = [request.id == name for request in others]
            # A request of one token has ended with its last chunk.
            claims.append(any(still_runs) or step.newcomers[name].ends == 1)
    for request in others:
        own, computed = step.newcomers[request.id], request.computed
        at_border = request in (after.running[0], after.running[-1])
        prefilling = all_of(
            at_border,
            computed >= 1,
            request.generated == more,
            computed >= own.hit_tokens,
        )
        claims.append(any_of(computed >= own.prompt, prefilling))
        claims.append(request.generated < own.ends)
        claims += keeps_lengths(request, own)
    return all_of(claims)


def is_uninterrupted(step: Step, more: int, stepped: Stepped) -> Any:
    ongoing = [request.id for request in stepped.before.running if request.id == "p"]
    going_on = [request.id for request in stepped.decision.members] == ongoing
    ends = [request.generated > 0 for request in _others(step, stepped.after)]
    return any_of(not ongoing, all_of(stepped.decision.kind == "prefill", going_on, *(ends * more)))


def _others(step: Step, state: State) -> list[Request]:
    return [request for request in state.running if request.id in step.newcomers]
