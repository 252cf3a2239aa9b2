"""The matrix as a page for readers, in Markdown."""

from collections.abc import Iterator, Sequence

from .table import Entry, Matrix, Row


def page_of(matrix: Matrix, command: str) -> str:
    """Return the page; `command` made the matrix."""
    return "\n".join(_lines(matrix, command)) + "\n"


def _lines(matrix: Matrix, command: str) -> Iterator[str]:
    names = list(dict.fromkeys(entry.name for entry in matrix.entries))
    judged = sum(not entry.problem for entry in matrix.entries)
    yield "# Track record"
    yield ""
    yield (
        f"Which rules published releases break, found by {judged} gates of profile "
        f"{matrix.profile}, seed {matrix.seed}: `{command}`. A rule that is not listed broke in no "
        "release, which proves nothing: a longer search may break it."
    )
    for name in names:
        yield from ["", f"## {name}", ""]
        yield from _broken([row for row in matrix.rows if row.name == name])
        yield from ["", "Rules held and broken in each release:", ""]
        entries = [entry for entry in matrix.entries if entry.name == name]
        yield from _counts(entries)
        yield from _problems(entries)


def _broken(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        yield "No rule was broken."
        return
    yield "| configuration | rule | broken in | smallest scenario, on | what it shows | known |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        broken = ", ".join(str(span) for span in row.broken)
        yield (
            f"| {row.configuration} | {row.rule} | {broken} | `{row.scenario}`, {row.version} | "
            f"{_cell(row.message)} | {_cell(row.known or '')} |"
        )


def _counts(entries: Sequence[Entry]) -> Iterator[str]:
    configurations = list(dict.fromkeys(entry.configuration for entry in entries))
    by_place = {(entry.version, entry.configuration): entry for entry in entries}
    yield f"| release | {' | '.join(configurations)} |"
    yield "|---" * (len(configurations) + 1) + "|"
    for version in dict.fromkeys(entry.version for entry in entries):
        counts = [_count(by_place[version, configuration]) for configuration in configurations]
        yield f"| {version} | {' | '.join(counts)} |"


def _problems(entries: Sequence[Entry]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for entry in entries:
        if entry.problem:
            by_reason.setdefault(entry.problem, []).append(entry.version)
    for reason, versions in by_reason.items():
        yield ""
        yield f"Not judged, {', '.join(dict.fromkeys(versions))}: {_cell(reason)}."


def _count(entry: Entry) -> str:
    if entry.problem:
        return "not judged"
    broken = f"**{entry.broken} broken**" if entry.broken else "0 broken"
    unclear = f", {entry.inconclusive} inconclusive" if entry.inconclusive else ""
    return f"{entry.held} held, {broken}{unclear}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
