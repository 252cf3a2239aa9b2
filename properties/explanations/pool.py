"""Explain a block that is lost, listed as free twice, or read by mistake: show the pool block by
block."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ...model.observation import Step
from .cause import Cause, Cell, Row
from .failure import Failure, left

# A block of the pool, but not "block 1 of r0", which is a place in the table of a request.
BLOCK = re.compile(r"\bblock (\d+)\b(?! of (?!group\b|the pool\b))")
# The messages of rules that count the blocks of a request.
HOLDS = re.compile(r"\b(holds|shows)\b.*\bblocks?\b|\bblocks for\b")
GROUP, PLACE = re.compile(r"\bgroup (\d+)"), re.compile(r"\b(?:block|place) (\d+)")
PLACES = 16  # blocks of a table that are shown
ALONE = 48  # the largest pool whose blocks are drawn one by one
QUIET = ("held", "shared", "free", "named")


def pool_cause(failure: Failure) -> Cause | None:
    step, size = failure.last, failure.config.get("num_blocks")
    has_own_pool = step.group_free_blocks is not None and GROUP.search(failure.message)
    if step.blocks is None or has_own_pool:
        return None
    owners = _owners(step)
    named = {int(number) for number in BLOCK.findall(failure.message)}
    if HOLDS.search(failure.first.message):
        named |= {
            block for name, table in step.blocks.items() if failure.names(name) for block in table
        }
    named &= failure.holders.keys()
    missing = 0
    if size is not None and step.free_blocks is not None:
        missing = size - len(owners) - step.free_blocks
    if not {len(owners), step.free_blocks} <= failure.numbers:
        missing = 0
    if not named and not missing:
        return None
    marks, why, headline = _marked(failure, owners, named, missing)
    unknown = _unknown(failure, missing) if missing and not marks else []
    numbers = owners if unknown else _all_numbers(failure.holders, owners, size)
    cells = [_cell(failure, number, owners, marks) for number in numbers]
    return Cause(headline, tuple(why), cells=(*_merge_cells(cells), *unknown))


def table_cause(failure: Failure) -> Cause | None:
    """Draw the tables of a request if the message is about a place in the table of a group."""
    message, step = failure.first.message, failure.last
    group, place = GROUP.search(message), PLACE.search(message)
    name = next((name for name in step.group_blocks or {} if failure.names(name)), None)
    if group is None or place is None or name is None:
        return None
    tables = ((step.blocks or {}).get(name, ()), *(step.group_blocks or {})[name])
    number, marked = int(group[1]), int(place[1])
    longest = max(map(len, tables))
    if number >= len(tables) or marked > longest:
        return None
    first = max(marked - PLACES // 2, 0)
    places = range(first, min(first + PLACES, max(longest, marked + 1)))
    kinds = [group["kind"] for group in failure.config["kv_groups"]]
    rows = []
    for index, (table, kind) in enumerate(zip(tables, kinds, strict=False)):
        turns = [str(table[n] or "·") if n < len(table) else "·" for n in places]
        if index == number:
            turns[marked - first] = f"× {turns[marked - first]}".replace("·", "none")
        rows.append(Row(f"{name}, group {index}", kind, tuple(turns), (), index == number))
    return Cause("", rows=tuple(rows), first=first, columns="block")


def _marked(
    failure: Failure, owners: Mapping[int, list[str]], named: set[int], missing: int
) -> tuple[dict[int, tuple[str, bool]], list[str], str]:
    marks, why, headline = dict[int, tuple[str, bool]](), list[str](), ""
    if missing:
        marks, why, headline = _lost_or_doubled(failure, owners, missing)
    misread = {number: wrong for number in owners if (wrong := _misread(failure, number))}
    readers = {misread[number].reader for number in named & misread.keys()}
    # The other blocks of the same request show how its table is wrong: shifted, or in another order
    for number, wrong in misread.items():
        if number not in named and wrong.reader in readers:
            marks[number] = ("foreign" if wrong.present else "unwritten", False)
    for number in sorted(named):
        if number not in misread:
            marks.setdefault(number, ("named", False))
            continue
        reader, present, _ = misread[number]
        marks[number] = ("foreign" if present else "unwritten", False)
        holder = failure.holder(number, reader)
        other = failure.history.requests.get(holder[0]) if holder is not None else None
        if holder is not None and other is not None:
            why.append(
                f"step {holder[1]}: {other.id} holds block {number}, with "
                f"{other.max_computed} of its tokens computed{left(other)}"
            )
        does = f"holds {present}" if present else "was never written"
        why.append(f"step {failure.first.step}: {reader} reads block {number}, which {does}")
        headline = headline or f"{reader} reads block {number}, which {does}"
    return marks, why, headline


def _lost_or_doubled(
    failure: Failure, owners: Mapping[int, list[str]], missing: int
) -> tuple[dict[int, tuple[str, bool]], list[str], str]:
    step, last = failure.first.step, failure.last
    before = _owners(failure.before)
    given = {
        number: [name for name in names if name not in owners.get(number, ())]
        for number, names in before.items()
    }
    is_loss, many = missing > 0, abs(missing)
    is_held = bool(owners) or is_loss
    suspects = [n for n, names in given.items() if names and (n in owners) != is_loss]
    if not is_held:
        suspects = [n for n, names in given.items() if names]
    elif not is_loss and not suspects:
        suspects = list(owners)
    why = [
        f"step {step}: {name} {_does(failure, name)}, and gives up "
        f"{_blocks([n for n in suspects if name in given.get(n, ())])}{_taken_words(failure, name)}"
        for name in dict.fromkeys(name for number in suspects for name in given.get(number, ()))
    ]
    givers = {name for number in suspects for name in given.get(number, ())}
    if is_loss and any(_blocks_taken(failure, name) for name in givers):
        suspects = []  # some of these blocks were taken and given back in the same step
    if not givers:
        leaving = [f"{name} {_does(failure, name)}" for name in _unseen(last)]
        why += [f"step {step}: {words}, and its blocks are not shown" for words in leaving]
    if failure.before is not None and failure.before.free_blocks is not None:
        why.append(f"the free blocks go from {failure.before.free_blocks} to {last.free_blocks}")
    state = "lost" if is_loss else "twice" if is_held else "returned"
    marks = {number: (state, len(suspects) != many) for number in suspects}
    blocks, verb, them = (f"{many} blocks", "are", "them")
    if many == 1:
        blocks, verb, them = "1 block", "is", "it"
    if is_loss:
        why.append(f"{blocks} {verb} neither held nor free from this step on")
        return marks, why, f"{many} of {failure.config['num_blocks']} blocks {verb} lost"
    if not is_held:
        why.append(f"{blocks} {verb} given back twice: two requests can get {them}")
        return marks, why, f"{blocks} {verb} free twice, and none is held"
    why.append(f"{blocks} {verb} free and held: another request can get {them}")
    return marks, why, f"{blocks} {verb} free although a request holds {them}"


def _unseen(step: Step) -> list[str]:
    """Return the requests that run in a step but whose blocks are not shown after it."""
    return [name for name in step.scheduled if name not in tables(step)]


def _unknown(failure: Failure, missing: int) -> list[Cell]:
    """Return cells for the blocks that no request holds, when their count is known but not their
    numbers."""
    before, after = tables(failure.before), tables(failure.last)
    last = dict.fromkeys([*_unseen(failure.last), *(name for name in before if name not in after)])
    is_loss, free = missing > 0, failure.last.free_blocks or 0
    rest = free if is_loss else free + 2 * missing
    cells = [Cell(-1, -1, "free", count=rest)] if rest > 0 else []
    state = "lost" if is_loss else "returned"
    return [*cells, Cell(-1, -1, state, tuple(last), count=abs(missing))]


def _blocks_taken(failure: Failure, name: str) -> int:
    """Return how many blocks a request took in the step in which it gave back all of its blocks."""
    before, account = failure.before, failure.history.requests.get(name)
    if before is None or account is None or before.group_blocks or name in tables(failure.last):
        return 0
    blocks: int = -(-account.computed // failure.config["block_size"])
    return max(blocks - len((before.blocks or {}).get(name, ())), 0)


def _taken_words(failure: Failure, name: str) -> str:
    taken = _blocks_taken(failure, name)
    return f" and {taken} that it took in this step" if taken else ""


def _does(failure: Failure, name: str) -> str:
    if name in (failure.last.preempted or ()):
        return "is preempted"
    account = failure.history.requests.get(name)
    ended = (failure.last.finished or {}).get(name) or (account.ended if account else None)
    return f"leaves ({ended})" if ended else "continues"


class Misread(NamedTuple):
    """A block that a request reads by mistake: the request, the tokens in the block, and the tokens
    that the request expects there."""

    reader: str
    present: str
    expected: str


def _misread(failure: Failure, number: int) -> Misread | None:
    shadow, tables = failure.history.shadow, failure.last.blocks or {}
    if shadow is None:
        return None
    entry = shadow.holds.get(number)
    for name, table in tables.items():
        request = failure.history.requests.get(name)
        if request is None or number not in table:
            continue
        hidden = shadow.hidden_in(number)
        place = table.index(number)
        if place * shadow.block_size >= request.computed:
            continue
        if shadow.mismatch(request, request.computed, number, place, entry, hidden):
            present = "" if entry is None else _holds(failure, number)
            begin = place * shadow.block_size
            end = min(begin + shadow.block_size, request.computed)
            return Misread(name, present, f"{name} {spans(range(begin, end))}")
    return None


def _holds(failure: Failure, number: int) -> str:
    shadow = failure.history.shadow
    entry = shadow.holds.get(number) if shadow is not None else None
    return f"{entry.owner} {spans(range(entry.start, entry.end))}" if entry is not None else ""


def _cell(
    failure: Failure,
    number: int,
    owners: Mapping[int, list[str]],
    marks: Mapping[int, tuple[str, bool]],
) -> Cell:
    names = owners.get(number, [])
    state = "held" if len(names) == 1 else "shared" if names else "free"
    state, perhaps = marks.get(number, (state, False))
    if not names and number in failure.holders and state != "free":
        names = [*failure.holders[number]][-1:]
    holds = _holds(failure, number)
    if state in ("foreign", "unwritten") and (wrong := _misread(failure, number)):
        holds = f"{holds}, read as {wrong.expected}".removeprefix(", ")
    return Cell(number, number, state, tuple(names), holds, perhaps)


def spans(numbers: Iterable[int], dash: str = "–") -> str:
    """Return the numbers as text; consecutive ones are written like `3–5`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{low}" if low == high else f"{low}{dash}{high}" for low, high in ranges)


def _blocks(numbers: Sequence[int]) -> str:
    return f"block{'s' * (len(numbers) > 1)} {spans(numbers)}"


def tables(step: Step | None) -> dict[str, list[int]]:
    """Return the blocks that each request holds, in all groups, without blocks that have slid out
    of a window (shown as 0). If each group has its own pool, return the blocks of the first group
    only."""
    if step is None:
        return {}
    found = {name: [*table] for name, table in (step.blocks or {}).items()}
    if step.group_free_blocks is not None:
        return found
    for name, groups in (step.group_blocks or {}).items():
        found.setdefault(name, []).extend(number for table in groups for number in table if number)
    return found


def _owners(step: Step | None) -> dict[int, list[str]]:
    owners: dict[int, list[str]] = {}
    for name, table in tables(step).items():
        for number in dict.fromkeys(table):
            owners.setdefault(number, []).append(name)
    return owners


def _all_numbers(
    seen: Mapping[int, object], owners: Mapping[int, object], size: int | None
) -> Sequence[int]:
    """Return the numbers of the blocks of a pool. They begin at 1 if block 0 is never handed
    out."""
    known = sorted({*seen, *owners})
    if size is None:
        return known
    low = 0 if not known or known[0] == 0 else 1
    return range(low, max(low + size, known[-1] + 1 if known else 0))


def _merge_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells. In a large pool, merge neighbours that are in the same state."""
    if len(cells) <= ALONE:
        return list(cells)
    merged: list[Cell] = []
    for cell in cells:
        plain = msgspec.structs.replace(cell, holds="") if cell.state in QUIET else cell
        if merged and plain.state in QUIET and _alike(merged[-1], plain):
            merged[-1] = msgspec.structs.replace(merged[-1], last=plain.last)
        else:
            merged.append(plain)
    marked = [cell for cell in merged if cell.state not in QUIET]
    quiet = [cell for cell in merged if cell.state in QUIET]
    return sorted([*marked[:ALONE], *quiet[: max(ALONE - len(marked), 0)]], key=lambda c: c.first)


def _alike(cell: Cell, other: Cell) -> bool:
    return (cell.state, cell.owners) == (other.state, other.owners)
