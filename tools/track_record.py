"""In which published releases, from the first to the last, does each fault of the track record
exist?

Writes three pages:

- the table of `docs/findings/track-record.md`;
- `track-record/details.md`, with a section for each fault;
- `track-record/red-lines.md`, with every rule that gates of some releases report as broken, each
  with its fault or decision.

The data are in the same folder. `faults.toml` contains the faults, `releases.json` the results of
their scenarios on each release, and `red-lines.toml` the causes of broken rules:

    make tool NAME=track_record
    make tool NAME=track_record OPTIONS="--replay vllm sendnn-inference"

`--replay` first replays every scenario on each release of these names; a name may include a
version. Results that are already recorded are not replayed. A release is installed once (70 MB),
and takes one or two minutes.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from packaging.version import Version

from ..gate.files.scenario_file import read_scenario
from ..gate.judging.rule_choice import NO_LOCKSTEP, rules_to_judge
from ..gate.targets.factory import opened
from ..gate.targets.releases import releases_of
from ..gate.targets.supported_releases import ReleaseError
from ..gate.targets.target_spec import TargetSpec, parse_target
from ..model.errors import InputError
from ..model.faults import ConfigRefused, TargetFault
from ..model.target import Target
from ..properties.checking.replay import replay
from ..properties.rules.registry import LOCKSTEP
from .pages import DOCS, put

ROOT, FINDINGS = DOCS.parent, DOCS / "findings"
PAGE, DETAILS = FINDINGS / "track-record.md", FINDINGS / "track-record" / "details.md"
DATA, RECORDED = (
    FINDINGS / "track-record" / "faults.toml",
    FINDINGS / "track-record" / "releases.json",
)
LINES, RED_LINES = DETAILS.with_name("red-lines.toml"), DETAILS.with_name("red-lines.md")
MARK = "tools/track_record.py: faults"
CHECKS = {"vllm": "`get_kv_cache_configs`", "sendnn-inference": "`check_and_update_config`"}
BROKEN, HOLDS = "broken", "holds"
IDLE, UNKNOWN = "not exercised", "not replayed"
CRASHES = "crashes"  # the state for a run that another fault ends first
NO_START, NO_OPTION = REFUSED = "does not start", "has no such option"
STEP_LIMIT = 90.0  # seconds; a release imports many modules in its first step

States = Mapping[str, str]  # for each version: BROKEN, HOLDS, or the reason why it was not judged
Record = dict[str, dict[str, dict[str, str]]]  # states by name, version and fault


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fault, and the scenario that shows it by breaking `rule`."""

    id: str
    releases: tuple[str, ...]
    what: str
    sees: str
    rule: str
    scenario: str
    where: str
    found_by: str
    reported: str = ""
    fix: str = ""
    finding: str = ""

    @property
    def page(self) -> str:
        """Return the name of the findings page that explains the fault."""
        return self._explained[0]

    @property
    def heading(self) -> str:
        return self._explained[1]

    @property
    def _explained(self) -> tuple[str, str]:
        """Return the page that explains the fault, among those for its `releases`, and the
        heading there."""
        pages = ("vllm", "vllm-features") if self.releases == ("vllm",) else ("sendnn",)
        begins = f"## {self.finding or f'{self.id}.'}"
        return next(
            (page, line.removeprefix("## "))
            for page in pages
            for line in (FINDINGS / f"{page}.md").read_text(encoding="utf-8").splitlines()
            if line.startswith(begins)
        )

    @property
    def link(self) -> str:
        """Return the address of that heading, relative to `DETAILS`."""
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", self.heading.lower()).strip())
        return f"../{self.page}.md#{slug}"


class RedLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules that a gate of the release `target` reports as broken, with their cause and the line
    of code behind them. The cause is a fault of the track record, or a decision of upstream."""

    target: str
    rules: tuple[str, ...]
    code: str
    fault: str = ""
    why: str = ""
    change: str = ""


class Span(NamedTuple):
    """The first and the last release with a fault. `before` and `after` are the states of the
    neighbouring releases, or None."""

    first: str
    last: str
    before: str | None
    after: str | None


def faults() -> tuple[Fault, ...]:
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return msgspec.convert(data["fault"], tuple[Fault, ...])


def red_lines() -> tuple[RedLine, ...]:
    data = tomllib.loads(LINES.read_text(encoding="utf-8"))
    return msgspec.convert(data["line"], tuple[RedLine, ...])


def recorded() -> Record:
    return msgspec.json.decode(RECORDED.read_bytes(), type=Record)


def span_of(states: States) -> Span | None:
    """Return the first and the last release with a fault, or None if no release has it."""
    versions = sorted(states, key=Version)
    broken = [number for number, version in enumerate(versions) if states[version] == BROKEN]
    if not broken:
        return None
    first, last = broken[0], broken[-1]
    return Span(
        versions[first],
        versions[last],
        states[versions[first - 1]] if first else None,
        states[versions[last + 1]] if last + 1 < len(versions) else None,
    )


def table(record: Record) -> Iterator[str]:
    """Yield the lines of the table, one for each fault and package."""
    yield "| | what goes wrong | configuration | releases | smallest | found by | upstream |"
    yield "|---|---|---|---|---|---|---|"
    for fault in faults():
        requests = len(read_scenario(ROOT / fault.scenario).requests)
        for name in fault.releases:
            if not (releases := lasts(name, _states(record, name, fault))):
                continue
            yield (
                f"| [{fault.id}](track-record/details.md#{fault.id.lower()}) | {fault.what} "
                f"| {fault.where} | {releases} "
                f"| {requests} request{'s' * (requests > 1)} | {fault.found_by} "
                f"| {_upstream(fault)} |"
            )


def lasts(name: str, states: States) -> str:
    """Say which releases have a fault, as exactly as the replays can tell; "" if none has it."""
    tried = [version for version in sorted(states, key=Version) if states[version] != UNKNOWN]
    span = span_of({version: states[version] for version in tried})
    neighbours = span_of(states)
    if span is None or neighbours is None:
        return ""
    first, last = tried.index(span.first), tried.index(span.last)
    since = f"{span.first} or before"
    if span.before in (HOLDS, IDLE):
        follows = neighbours.before == span.before
        since = span.first if follows else f"after {tried[first - 1]}"
    if neighbours.after is None:
        return f"{name} {since}, **still**"
    ended = f" ({neighbours.after} later)"
    if neighbours.after == UNKNOWN:
        gone = span.after in (HOLDS, IDLE)
        ended = f", not in {tried[last + 1]}" if gone else " or later"
    elif neighbours.after in (HOLDS, IDLE):
        ended = ""
    return f"{name} {since} to {span.last}{ended}"


def _upstream(fault: Fault) -> str:
    is_its_own_report = fault.reported in fault.fix
    reported = fault.reported if not is_its_own_report else ""
    return "; ".join(filter(None, [reported, fault.fix and f"fix: {fault.fix}"]))


def details(record: Record) -> Iterator[str]:
    """Yield the lines of the page with a section for each fault."""
    yield "# Track record in detail"
    yield ""
    yield "This page is for readers of the [track record](../track-record.md) who want to know"
    yield "what a fault does on each release. Every release that could be installed replayed the"
    yield "scenario. *Does not start* means that the release's own start-up checks refuse the"
    yield "configuration. *Not exercised* means that the situation that the rule is about did not"
    yield "occur. The commands need a checkout of this repository."
    for fault in faults():
        yield ""
        yield f"## {fault.id} {{ #{fault.id.lower()} }}"
        yield ""
        yield f"{fault.what}. What a user sees: {fault.sees}."
        yield ""
        yield f"- [Cause and history]({fault.link})"
        yield f"- Rule: {fault.rule}"
        yield f"- Configuration: {fault.where}"
        yield f"- Found by: {fault.found_by}"
        if fault.reported:
            yield f"- Report upstream: {fault.reported}"
        if fault.fix:
            yield f"- Fix upstream: {fault.fix}"
        for name in fault.releases:
            for words, versions in _results(_states(record, name, fault)).items():
                yield f"- {name}, {words}: {', '.join(versions)}"
        newest = _newest_broken(record, fault)
        if newest:
            command = f"schedproof replay {fault.scenario} --target {newest} --rule {fault.rule}"
            yield f"- To replay it: `{command}`"


def red_lines_page(record: Record) -> Iterator[str]:
    """Yield the lines of the page with every rule that gates of some releases report as broken."""
    yield "# Every red line"
    yield ""
    yield "This page is for readers who want to know whether a rule that a gate reports as broken"
    yield "points to a fault. The table lists every rule that gates of these releases report as"
    yield "broken, and the line of the release's code that makes the decision. The gates ran with"
    yield "the profiles `quick` and `ci` and seed 0; for 0.33.0, gates with the profile `quick`"
    yield "also ran with seeds 3 and 7. The lines of V20 and V21 come from an earlier gate of"
    yield "0.19.1, before schedproof drew sessions. To repeat one of these gates:"
    yield ""
    yield "```sh"
    yield "schedproof gate vllm==0.33.0 --profile ci --seed 0"
    yield "```"
    yield ""
    yield "Each configuration passes the start-up checks of the release, apart from the block size;"
    yield "the table names the last of these checks. Gates also run with small blocks, so the"
    yield "track record's scenarios repeat the faults with blocks of 16 (vLLM) or 64 tokens. A"
    yield "*decision* is intended: the release documents it, and the gate says *diverges*."
    yield ""
    yield "| release | rules | start-up check | fault or decision | code | releases | upstream |"
    yield "|---|---|---|---|---|---|---|"
    by_id = {fault.id: fault for fault in faults()}
    for line in red_lines():
        name = line.target.partition("==")[0]
        if fault := by_id.get(line.fault):
            what = f"[{fault.id}](details.md#{fault.id.lower()}): {fault.what}"
            releases, upstream = lasts(name, _states(record, name, fault)), _upstream(fault)
        else:
            what, releases, upstream = f"decision: {line.why}", f"{name} {line.change}", ""
        cells = (line.target, ", ".join(line.rules), CHECKS[name], what)
        yield f"| {' | '.join(cells)} | `{line.code}` | {releases} | {upstream} |"


def _results(states: States) -> dict[str, list[str]]:
    """Map each result to the ranges of versions with this result. Broken ones come first."""
    results: dict[str, list[str]] = {_words(BROKEN): []}
    for words, group in groupby(sorted(states, key=Version), key=lambda v: _words(states[v])):
        first, *rest = group
        results.setdefault(words, []).append(f"{first} to {rest[-1]}" if rest else first)
    return {words: versions for words, versions in results.items() if versions}


def _words(state: str) -> str:
    known = {BROKEN: "**broken**", HOLDS: "not broken", NO_OPTION: "no such option"}
    return known.get(state, state)


def _newest_broken(record: Record, fault: Fault) -> str | None:
    for name in reversed(fault.releases):
        if (span := span_of(_states(record, name, fault))) is not None:
            return f"{name}=={span.last}"
    return None


def _states(record: Record, name: str, fault: Fault) -> States:
    releases = record.get(name, {})
    return {version: states.get(fault.id, UNKNOWN) for version, states in releases.items()}


def state_of(target: Target, spec: TargetSpec, fault: Fault) -> str:
    """Replay the scenario of a fault. Return "broken", "holds", or the reason why it is neither."""
    scenario = read_scenario(ROOT / fault.scenario)
    beside = None if fault.rule == LOCKSTEP else NO_LOCKSTEP
    rules = rules_to_judge(scenario.system, [fault.rule], scenario.revision or "", spec, beside)
    try:
        outcome = replay(target, scenario, rules)
    except (ConfigRefused, InputError) as refusal:
        return next((state for state in REFUSED if state in str(refusal)), "refused")
    if outcome.broken:
        return BROKEN if fault.rule in {broken.rule for broken in outcome.broken} else CRASHES
    if not outcome.exercised[fault.rule]:
        return IDLE
    return HOLDS if outcome.finished else "not finished"


def replay_on(target: str, missing: Sequence[Fault], known: dict[str, str]) -> None:
    """Replay the scenarios of faults on a release. Add the results to `known`."""
    spec = parse_target(target)
    with opened(spec, step_limit=STEP_LIMIT) as open_target:
        # The first fault twice, because the first start may be too slow.
        for fault in [*missing[:1], *missing]:
            try:
                known[fault.id] = state_of(open_target.target, spec, fault)
            except TargetFault as error:
                print(f"{target}: {fault.id}: {error}", file=sys.stderr)


def replay_all(names: Sequence[str], record: Record) -> None:
    """Replay the scenarios that are not recorded yet, and save the record after each release."""
    for word in names:
        for target in [word] if "==" in word else releases_of(word):
            name, _, version = target.partition("==")
            known = record.setdefault(name, {}).setdefault(version, {})
            missing = [
                fault for fault in faults() if name in fault.releases and fault.id not in known
            ]
            try:
                replay_on(target, missing, known)
            except ReleaseError as error:
                print(f"{target}: {error}", file=sys.stderr)
            print(target, flush=True)
            write(record)


def write(record: Record) -> None:
    """Write the record, one line per release."""
    in_order: dict[str, Any] = {
        name: {version: versions[version] for version in sorted(versions, key=Version)}
        for name, versions in record.items()
    }
    lines = msgspec.json.format(msgspec.json.encode(in_order), indent=1).decode()
    one_line = re.sub(r"\{\s*((?:\"[^\"]*\": \"[^\"]*\",?\s*)+)\}", _joined, lines)
    RECORDED.write_text(f"{one_line}\n", encoding="utf-8")


def _joined(found: re.Match[str]) -> str:
    return "{" + " ".join(found[1].split()) + "}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replay", nargs="+", default=[], metavar="NAME[==VERSION]")
    record = recorded()
    replay_all(parser.parse_args().replay, record)
    put(PAGE, MARK, table(record))
    DETAILS.write_text("\n".join(details(record)) + "\n", encoding="utf-8")
    RED_LINES.write_text("\n".join(red_lines_page(record)) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
