"""The rule catalogue: one TOML file per system, and its loader.

A file is a list of `[[rule]]` tables. Reports list broken rules in file order. A file therefore
lists a rule before the rules that break as its consequence.
"""

from __future__ import annotations

import difflib
import re
import reprlib
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from .systems import OWN_RULES, SYSTEMS, Readable

KINDS = ("safety", "progress", "decision")
# Why a rule has no predicate of its own.
REASONS = (
    "definition",  # it defines a word or a value
    "consequence",  # it breaks only if one of the rules in `stands_in` breaks
    "hardware",  # no scheduling decision shows whether it holds
    "refuted",  # a run shows that the statement is false
    "missing",  # scenarios or the protocol cannot express it yet
)
ENGINES = ("hypothesis", "corpus", "explore", "z3", "crosshair")
# The optional fields of a step. `kind` and `scheduled` are not among them: every step has both.
FIELDS = (
    *("emitted", "tkv", "left_pad_blocks", "waiting", "running", "prefilling", "paused"),
    *("preempted", "finished", "computed", "prefix_hit", "blocks", "free_blocks"),
    *("reserved_blocks", "slot_blocks", "prompt_throughput", "decode_throughput"),
    *("emitted_at", "parked", "encoder_inputs", "encoder_dropped", "group_blocks", "sent"),
    *("deferred", "handed_over", "over", "cache_events", "masks", "grammars"),
    "group_free_blocks",
    "completes",
)
# Parts of the reply to `start` that a rule may need.
STARTED = ("defaults",)
# R: a statement of a document, I: an invariant numbered in a document, P: a promise of progress
# that no document states.
_ID = re.compile(r"[A-Z][A-Z0-9]*-([RP][0-9]{2}|I[0-9])")


class CatalogueError(ValueError):
    """Invalid catalogue file, system or rule id; the message is one line."""


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new statement of a rule, for releases that changed the behaviour on purpose and documented
    the change.

    `since`: the first release whose wheel contains the change. `source`: where that release
    documents it. `change`: the pull request, with the date on which it was merged or opened.
    """

    since: str
    statement: str
    source: str
    change: str

    def applies_to(self, version: str) -> bool:
        """Return whether the change applies to `version`, a release or the revision named after
        it."""
        own, first = _release(version), _release(self.since)
        return own is not None and first is not None and own >= first


class Divergence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A known case in which some releases, or another part of the document, contradict the rule.

    `releases`: "2.1.2", "2.0.0 and 2.0.1", "2.0.0 to 2.1.0", "2.4.0 and later", "2.4.0 and before"
    or "all releases"; or a description of code that was not released ("after 1.1.0", "before
    0.2.0"). `change`: the pull request that introduced or removed the difference, if known.
    `system`: the system of these releases; "" means the rule's own system. `only_with`:
    configuration keys without which the difference cannot occur; a numeric key at its default
    counts as absent.
    """

    releases: str
    statement: str
    change: str = ""
    system: str = ""
    only_with: tuple[str, ...] = ()

    def covers(self, version: str) -> bool:
        if version.startswith(("after ", "before ")):
            return version in self.releases.split(" and ") or self.releases == "all releases"
        own = _release(version)
        words = self.releases.replace(" and ", " ").split()
        named = [_release(word) for word in words]
        if own is None or not named:
            return False
        if self.releases == "all releases":
            return True
        first, last = named[0], named[-1]
        if first is None:
            return False
        if words[-1] == "later":
            return own >= first
        if words[-1] == "before":
            return own <= first
        if "to" in words:
            return last is not None and first <= own <= last
        return own in named


def _release(version: str) -> Version | None:
    """Parse the number of a published release. Return None for a development build and for anything
    else."""
    try:
        release = Version(version)
    except InvalidVersion:
        return None
    published = version[:1].isdecimal() and not release.is_devrelease and release.local is None
    return release if published else None


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule: its statement, the document that states it, and the fields needed to check it.

    `changes`: the rule's new statements in later releases, oldest first; `worded` applies them.
    `planned`: why the rule has no predicate yet. `unchecked`: why the rule has no predicate of its
    own; `reason` is then one of `REASONS`, and `stands_in` names the rules that are checked
    instead. `beside`: in lockstep, the revision whose model runs alongside the target.
    """

    id: str
    title: str
    statement: str
    source: str
    kind: str
    revisions: tuple[str, ...]
    needs: tuple[str, ...]
    witness: str = ""
    engines: tuple[str, ...] = ()
    planned: str = ""
    reason: str = ""
    unchecked: str = ""
    stands_in: tuple[str, ...] = ()
    changes: tuple[Change, ...] = msgspec.field(default=(), name="change")
    divergences: tuple[Divergence, ...] = msgspec.field(default=(), name="divergence")
    beside: str = ""

    @property
    def checked(self) -> bool:
        return not self.planned and not self.unchecked

    def worded(self, revision: str) -> Rule:
        """Return the rule as it is stated for `revision`. The result's `changes` are those of later
        revisions."""
        made = [change for change in self.changes if change.applies_to(revision)]
        if not made:
            return self
        later = self.changes[len(made) :]
        return replace(self, statement=made[-1].statement, source=made[-1].source, changes=later)

    def divergences_of(self, version: str) -> tuple[Divergence, ...]:
        """Return the known divergences of this release.

        If the release is judged by an older statement of the rule, the newer statement counts as a
        divergence.
        """
        made = [change for change in self.changes if change.applies_to(version)]
        if made:
            last = made[-1]
            return (Divergence(f"{last.since} and later", last.statement, last.change),)
        return tuple(row for row in self.divergences if row.covers(version))


def names_of_revisions() -> tuple[str, ...]:
    """Return the names by which a rule can refer to a revision: first every REVISION, then every
    SYSTEM/REVISION. Rules that all systems share need the second form.
    """
    plain = [revision for system in SYSTEMS.values() for revision in system.revisions]
    named = [
        f"{system.name}/{revision}" for system in SYSTEMS.values() for revision in system.revisions
    ]
    return (*dict.fromkeys(plain), *named)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rule: tuple[Rule, ...]


_ROWS = {"divergence": Divergence, "change": Change}  # the tables inside a rule, by key


def load(system: str, revision: str = "") -> tuple[Rule, ...]:
    """Return the rules: first those that all systems share, then those of `system` in file order,
    then the user's own.

    Leave out shared rules that name no revision of this system, and divergences of other systems.
    Each rule has the statement that applies to `revision`. Without a revision, each rule has the
    statement of the documents.

    Raise CatalogueError if the system has no catalogue or a file is not valid.
    """
    if system not in SYSTEMS:
        known = ", ".join(SYSTEMS)
        raise CatalogueError(
            f"system {system!r} has no rule catalogue; systems that have one: {known}"
        )
    rules = _common() + _rules_of(SYSTEMS[system].catalogue, f"{system}.toml")
    rules += tuple(own.rule for own in OWN_RULES.values())
    here = (
        replace(
            rule.worded(revision),
            revisions=_own(rule.revisions, system),
            divergences=tuple(row for row in rule.divergences if row.system in ("", system)),
        )
        for rule in rules
    )
    return tuple(rule for rule in here if rule.revisions)


def read(text: str, name: str) -> tuple[Rule, ...]:
    """Return the rules in the TOML `text` of the file `name`.

    Raise CatalogueError for the first fault, with the file, the path of the value, the value, and
    the valid values.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"{name}: not TOML: {error}") from None
    try:
        rules = msgspec.convert(data, _File).rule
    except msgspec.ValidationError as error:
        raise _misshapen(error, data, name) from None
    first: dict[str, int] = {}
    for number, rule in enumerate(rules):
        for fault in _faults(rule, f"rule[{number}]"):
            raise CatalogueError(f"{name}: {fault}")
        if (other := first.setdefault(rule.id, number)) != number:
            fault = _fault(f"rule[{number}].id", rule.id, f"an id that rule[{other}] does not have")
            raise CatalogueError(f"{name}: {fault}")
    return rules


def planned(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.planned)


def select(rules: Sequence[Rule], ids: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules with these ids, in catalogue order. Raise CatalogueError for an unknown
    id."""
    wanted, known = set(ids), [rule.id for rule in rules]
    for unknown in sorted(wanted.difference(known)):
        owner = next((name for name in SYSTEMS if _has(name, unknown)), None)
        if owner is not None:
            raise CatalogueError(f"no rule {unknown!r} here: it is a rule of {owner}")
        close = [rule for rule in known if _bare(rule) == _bare(unknown)]
        close = close or difflib.get_close_matches(unknown.upper(), known)
        hint = f"; did you mean {' or '.join(close)}?" if close else ";"
        raise CatalogueError(f"no rule {unknown!r}{hint} `schedproof rules` lists the rules")
    return tuple(rule for rule in rules if rule.id in wanted)


def _bare(rule_id: str) -> str:
    """Return the id without leading zeros in its number, so that SPY-R7 can stand for SPY-R07."""
    return re.sub(r"(?<!\d)0+(?=\d)", "", rule_id.upper())


def _has(system: str, rule_id: str) -> bool:
    return any(rule.id == rule_id for rule in load(system))


def selected(rules: Sequence[Rule], words: Iterable[str]) -> dict[str, bool]:
    """Return the ids of the rules that `words` select. An id maps to True if it is one of the
    words, and to False if only a pattern matches it.

    A word is either an id or a pattern such as ALL-*. A pattern selects every checked rule whose id
    it matches. Raise CatalogueError for an unknown id, and for a pattern that matches nothing.
    """
    options: dict[str, bool] = {}
    for word in words:
        if "*" not in word and "?" not in word:
            options[select(rules, [word])[0].id] = True
            continue
        matches = [rule.id for rule in rules if rule.checked and fnmatchcase(rule.id, word)]
        if not matches:
            raise CatalogueError(f"no rule matches {word!r}; `schedproof rules` lists the rules")
        options = {**dict.fromkeys(matches, False), **options}
    return options


@cache
def _common() -> tuple[Rule, ...]:
    # The resource may lie in a zip file, where it has no file path.
    return _rules_of(resources.files("schedproof.spec") / "common.toml", "common.toml")


_known: dict[str, tuple[Readable, tuple[Rule, ...]]] = {}


def _rules_of(file: Readable, name: str) -> tuple[Rule, ...]:
    known = _known.get(name)
    if known is None or known[0] is not file:
        known = _known[name] = file, read(file.read_text("utf-8"), name)
    return known[1]


def _own(revisions: Sequence[str], system: str) -> tuple[str, ...]:
    return tuple(
        name.removeprefix(f"{system}/")
        for name in revisions
        if "/" not in name or name.startswith(f"{system}/")
    )


def _misshapen(error: msgspec.ValidationError, data: Any, name: str) -> CatalogueError:
    problem, _, place = str(error).partition(" - at `$")
    path = place.strip(".`")
    for step in re.findall(r"\w+", path):
        data = data[int(step) if isinstance(data, list) else step]
    if key := re.search(r"field `(.*)`", problem):
        table = next((table for part, table in _ROWS.items() if part in path), None)
        table = table or (Rule if path else _File)
        path = f"{path}.{key[1]}" if path else key[1]
        keys = [key for key in table.__struct_encode_fields__ if key != "beside"]
        problem += f"; valid keys: {', '.join(keys)}"
        data = data.get(key[1])
    value = "missing" if data is None else reprlib.repr(data)
    return CatalogueError(f"{name}: {path} is {value}: {problem}")


def _faults(rule: Rule, path: str) -> Iterator[str]:
    if not _ID.fullmatch(rule.id):
        form = "a prefix, then '-R' or '-P' and two digits, or '-I' and one digit, as in 'SPY-R09'"
        yield _fault(f"{path}.id", rule.id, form)
    yield from _empty(rule, ("title", "statement", "source"), path)
    yield from _foreign(f"{path}.kind", rule.kind, KINDS)
    if not rule.revisions:
        yield _fault(f"{path}.revisions", [], f"'*' or some of {', '.join(names_of_revisions())}")
    star = ("*",) if len(rule.revisions) == 1 else ()
    for key, valid in (
        ("revisions", star + names_of_revisions()),
        ("needs", FIELDS + STARTED),
        ("engines", ENGINES),
    ):
        for index, value in enumerate(getattr(rule, key)):
            yield from _foreign(f"{path}.{key}[{index}]", value, valid)
    if rule.beside:
        yield _fault(f"{path}.beside", rule.beside, "absent")
    yield from _check_faults(rule, path)
    yield from _change_faults(rule, path)
    for index, row in enumerate(rule.divergences):
        place = f"{path}.divergence[{index}]"
        yield from _empty(row, ("releases", "statement"), place)
        yield from _foreign(f"{place}.system", row.system, ("", *SYSTEMS))


def _check_faults(rule: Rule, path: str) -> Iterator[str]:
    """Yield the faults in the fields that say how the rule is checked, or why it is not."""
    reasons = [key for key in ("planned", "unchecked") if getattr(rule, key)]
    if len(reasons) > 1:
        yield _fault(f"{path}.unchecked", rule.unchecked, "absent, because the rule is planned")
    if reasons:
        yield from _empty(rule, reasons, path)
        if rule.engines:
            expected = f"[], because the rule is {reasons[0]}"
            yield _fault(f"{path}.engines", list(rule.engines), expected)
    else:
        yield from _empty(rule, ("witness",), path)
        if not rule.engines:
            expected = f"some of {', '.join(ENGINES)}, or say `planned` or `unchecked`"
            yield _fault(f"{path}.engines", [], expected)
    if rule.unchecked:
        yield from _foreign(f"{path}.reason", rule.reason, REASONS)
    elif rule.reason:
        yield _fault(f"{path}.reason", rule.reason, "absent, because the rule is checked")
    if rule.reason == "consequence" and not rule.stands_in:
        yield _fault(f"{path}.stands_in", [], "the rules that it follows from")
    if rule.stands_in and not rule.unchecked:
        yield _fault(f"{path}.stands_in", list(rule.stands_in), "[], because the rule is checked")


def _change_faults(rule: Rule, path: str) -> Iterator[str]:
    newest = None
    for index, change in enumerate(rule.changes):
        place = f"{path}.change[{index}]"
        yield from _empty(change, ("statement", "source", "change"), place)
        since = _release(change.since)
        if since is None or (newest is not None and since <= newest):
            after = f", after {newest}" if newest is not None else ""
            yield _fault(f"{place}.since", change.since, f"a release, such as '0.31.0'{after}")
        newest = since or newest


def _foreign(path: str, value: str, valid: tuple[str, ...]) -> Iterator[str]:
    if value not in valid:
        yield _fault(path, value, ", ".join(valid))


def _empty(table: msgspec.Struct, keys: Sequence[str], path: str) -> Iterator[str]:
    for key in keys:
        if not (value := getattr(table, key)).strip():
            yield _fault(f"{path}.{key}", value, "a sentence or a few words")


def _fault(path: str, value: object, valid: str) -> str:
    return f"{path} is {value!r}; valid: {valid}"


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic: the ids of its rules in each system, and how the systems differ."""

    title: str
    rules: dict[str, tuple[str, ...]]
    differs: str


class _Topics(msgspec.Struct, forbid_unknown_fields=True):
    topic: tuple[Topic, ...]


def topics() -> tuple[Topic, ...]:
    text = resources.files("schedproof.spec").joinpath("shared.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), _Topics).topic
