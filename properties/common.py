"""Rules of every system: conservation of requests and tokens, and progress.

Source: target protocol, "The step observation" and "Fine points".
"""

from collections import Counter

from ..model.observation import Step
from .content import in_common, said_by
from .ledger import Account, Ledger
from .predicate import Predicate


def request_lost(ledger: Ledger, step: Step) -> str | None:
    """Every unfinished request is in exactly one queue, and nothing else is (ALL-R03)."""
    if not step.scheduled.keys() <= ledger.live.keys():
        strangers = [name for name in step.scheduled if name not in ledger.live]
        return f"{_names(strangers)} scheduled, but finished, aborted or never accepted"
    finished = step.finished or {}
    foreign = [n for n in finished if n not in ledger.live and n not in ledger.aborts_to_report]
    if foreign:
        return f"{_names(foreign)} reported as finished, but not unfinished before this step"
    places = (*(step.waiting or ()), *(step.running or ()), *(step.paused or ()))
    queued = set(places)
    if len(queued) < len(places):
        doubled = [name for name, count in Counter(places).items() if count > 1]
        return f"{_names(doubled)} in more than one place of waiting, running and paused"
    unfinished = set(ledger.live).difference(finished, ledger.aborts_inside)
    if queued != unfinished:
        lost, kept = sorted(unfinished - queued), sorted(queued - unfinished)
        if lost:
            return f"{_names(lost)} unfinished, but neither waiting nor running nor paused"
        return f"{_names(kept)} still queued, but finished, aborted or never accepted"
    misplaced = [name for name in step.prefilling or () if name not in queued]
    if misplaced:
        return f"{_names(misplaced)} prefilling, but neither running nor waiting"
    return None


def requests_meet(ledger: Ledger, step: Step) -> bool:
    """A request finishes, or is aborted, while another one is unfinished."""
    return bool(step.finished) and len(ledger.live) > 1


def tokens_wrong(ledger: Ledger, step: Step) -> str | None:
    """Exactly min(output_len, max_tokens) tokens, then the right reason at once (ALL-R04)."""
    emitted = step.emitted or {}
    finished = step.finished or {}
    for name, tokens in emitted.items():
        if name not in step.scheduled:
            return f"{name} emitted {tokens} without being scheduled"
        if name in ledger.aborts_inside:
            return f"{name} emitted {tokens} although it was aborted inside the step"
    aborts_inside = ledger.aborts_inside
    for name, account in ledger.live.items():
        total = account.emitted + emitted.get(name, 0)
        reason = finished.get(name)
        if name in aborts_inside:
            if reason != "aborted":
                return f"{name} was aborted inside the step, finished says {reason}"
            continue
        if total == 0 and reason is None:
            continue
        due = account.output_len
        open_ended = due is None
        if due is None:  # only the end itself tells
            at_once = reason == "eos" and name in emitted
            due = min(total, account.max_tokens) if at_once else account.max_tokens
        if total > due:
            return f"{name} emitted {total} tokens of {due}"
        if total < due:
            if reason is not None:
                return f"{name} finished ({reason}) after {total} tokens of {due}"
            continue
        expected = "eos" if due < account.max_tokens else "length"
        if open_ended and reason == "eos":
            continue  # the last token that is allowed may be an EOS as well
        if reason != expected:
            return (
                f"{name} emitted its last token ({total} of {due}), "
                f"finished says {reason}, expected {expected}"
            )
    unreported = [n for n in ledger.aborts_to_report if finished.get(n) != "aborted"]
    if unreported:
        names = _names(sorted(unreported))
        return f"{names} aborted before the step, not reported as aborted in it"
    return None


def token_due(ledger: Ledger, step: Step) -> bool:
    """A request finishes by itself."""
    return any(reason != "aborted" for reason in (step.finished or {}).values())


def waits_too_long(ledger: Ledger, step: Step) -> str | None:
    """First in line, a request is scheduled before the work in front of it is over (ALL-R05)."""
    if ledger.first_in_line is None:
        return None
    name, since, allowance = ledger.first_in_line
    waited = ledger.step - since
    if name in step.scheduled or waited < allowance:
        return None
    return (
        f"{name} is first in line since step {since}: {waited} steps, at most {allowance} allowed"
    )


def someone_waits(ledger: Ledger, step: Step) -> bool:
    """The first in line is not scheduled in this step."""
    return ledger.first_in_line is not None and ledger.first_in_line[0] not in step.scheduled


def never_ends(ledger: Ledger, step: Step) -> str | None:
    """All accepted requests together take no more steps than their work (ALL-R06)."""
    allowance = ledger.most_steps
    if ledger.busy_steps < allowance:
        return None
    left = [n for n in ledger.live if n not in (step.finished or {})]
    if not left:
        return None
    return (
        f"{_names(left)} unfinished after {ledger.busy_steps} busy steps; "
        f"all work together takes at most {allowance}"
    )


def everything_ends(ledger: Ledger, step: Step) -> bool:
    """The last unfinished request finishes."""
    return bool(ledger.live) and all(n in (step.finished or {}) for n in ledger.live)


def hit_never_computed(ledger: Ledger, step: Step) -> str | None:
    """A prefix hit covers only what some request has computed (ALL-R08)."""
    for name, hit in first_hits(ledger, step).items():
        if hit <= 0:
            continue
        own, known = ledger.accounts[name], 0
        for other in ledger.accounts.values():
            computed = other.most_computed if other is own else _reaches(ledger, step, other)
            if computed:
                shared = in_common(said_by(own), said_by(other))
                known = max(known, min(shared, computed))
        if hit > known:
            return f"{name} takes {hit} tokens from the cache, of which {known} were ever computed"
    return None


def _reaches(ledger: Ledger, step: Step, account: Account) -> int:
    """Tokens of a request that were computed by the end of this step, at any time."""
    if account.id not in step.scheduled:
        return account.most_computed
    hit = 0 if account.started else ledger.hit_now(step, account)
    if hit is None:
        hit = ledger.most_hit(account)
    return max(account.most_computed, account.computed + hit + step.scheduled[account.id])


def something_cached(ledger: Ledger, step: Step) -> bool:
    """A request starts with a prefix hit."""
    return any(hit > 0 for hit in first_hits(ledger, step).values())


def first_hits(ledger: Ledger, step: Step) -> dict[str, int]:
    """Hits of the requests that start in this step, in tokens."""
    return {
        name: hit
        for name in step.scheduled
        if (one := ledger.live.get(name)) is not None and not one.started
        if (hit := ledger.hit_now(step, one)) is not None
    }


def blocks_lost(ledger: Ledger, step: Step) -> str | None:
    """Held and free blocks are together the pool (ALL-R09)."""
    size = ledger.config["num_blocks"]
    if size is None or step.free_blocks is None:
        return None
    held = {block for blocks in (step.blocks or {}).values() for block in blocks}
    if len(held) + step.free_blocks == size:
        return None
    return f"{len(held)} blocks held and {step.free_blocks} free, the pool has {size}"


def blocks_come_back(ledger: Ledger, step: Step) -> bool:
    """A request that held blocks leaves, with a bounded pool."""
    held_before = (ledger.last.blocks or {}) if ledger.last is not None else {}
    leaving = [*(step.finished or {})]
    return ledger.config["num_blocks"] is not None and any(n in held_before for n in leaving)


def no_progress(ledger: Ledger, step: Step) -> str | None:
    """Of three steps in a row, one computes a token while a request is unfinished (ALL-R10)."""
    if not ledger.live or any(step.scheduled.values()) or ledger.barren_steps < 2:
        return None
    return f"no token was computed in {ledger.barren_steps + 1} steps in a row"


def someone_is_behind(ledger: Ledger, step: Step) -> bool:
    """A step leaves an unfinished request without a token."""
    return any(name not in step.scheduled for name in ledger.live)


def _names(ids: list[str]) -> str:
    shown = ", ".join(ids[:5])
    return shown if len(ids) <= 5 else f"{shown} and {len(ids) - 5} more"


PREDICATES = {
    "ALL-R03": Predicate(request_lost, requests_meet),
    "ALL-R04": Predicate(tokens_wrong, token_due),
    "ALL-R05": Predicate(waits_too_long, someone_waits),
    "ALL-R06": Predicate(never_ends, everything_ends),
    "ALL-R08": Predicate(hit_never_computed, something_cached),
    "ALL-R09": Predicate(blocks_lost, blocks_come_back),
    "ALL-R10": Predicate(no_progress, someone_is_behind),
}
