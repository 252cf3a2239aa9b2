"""Replaces <!-- struct: NAME --> by a table of the fields of a format, from the code that reads it.

Types and defaults come from the msgspec structs, descriptions from docs/formats.toml. A field
without a description, or a description without a field, fails the build. <!-- config: SYSTEM --> is
replaced by the keys of a system's configuration with their defaults by revision.
<!-- keys: CLASS --> is replaced by what docs/vllm-keys.toml says of each key of a class of vLLM.
"""

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from mkdocs.exceptions import PluginError
from msgspec import inspect as types

from schedproof.gate.corpus import folder as corpus_folder
from schedproof.gate.judging import coverage, deviations, verdict
from schedproof.gate.reports.options import FoundLine
from schedproof.gate.traces import verdict as trace_verdict
from schedproof.model import observation, replies, scenario
from schedproof.model.systems import full_config, revisions_of
from schedproof.properties.search.state import Reach

STRUCTS: dict[str, type[msgspec.Struct]] = {
    "Scenario": scenario.Scenario,
    "Request": scenario.Request,
    "Turn": scenario.Turn,
    "Event": scenario.Event,
    "Expectation": scenario.Expectation,
    "Step": observation.Step,
    "Sent": observation.Sent,
    "CacheEvents": observation.CacheEvents,
    "CacheEvent": observation.CacheEvent,
    "Verdict": verdict.Verdict,
    "Change": verdict.Change,
    "TargetInfo": verdict.TargetInfo,
    "EngineRun": verdict.EngineRun,
    "RuleVerdict": verdict.RuleVerdict,
    "Finding": verdict.Finding,
    "StartUp": replies.StartUp,
    "Refusal": verdict.Refusal,
    "Coverage": coverage.Coverage,
    "Reach": Reach,
    "FileCoverage": coverage.FileCoverage,
    "FunctionCoverage": coverage.FunctionCoverage,
    "Fault": verdict.Fault,
    "Deviation": deviations.Deviation,
    "Entry": deviations.Entry,
    "Began": verdict.Began,
    "Notice": verdict.Notice,
    "Differed": verdict.Differed,
    "Progress": verdict.Progress,
    "Found": FoundLine,
    "Concluded": verdict.Concluded,
    "Origin": corpus_folder.Origin,
    "FoundOn": corpus_folder.FoundOn,
    "TraceVerdict": trace_verdict.TraceVerdict,
    "Part": trace_verdict.Part,
}
NAMES = {struct: name for name, struct in STRUCTS.items()}
WORDS = Path(__file__).resolve().parents[1] / "formats.toml"
KEYS = WORDS.with_name("vllm-keys.toml")
MARKER = re.compile(r"<!-- (struct|config|keys): (\w+) -->")
PLAIN: dict[type[types.Type], str] = {
    types.StrType: "text",
    types.BoolType: "true or false",
    types.FloatType: "number",
    types.DateType: "date",
    types.NoneType: "null",
    types.AnyType: "anything",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the tables."""
    fill: dict[str, Callable[[str], str]] = {"struct": table, "config": config, "keys": keys}
    return MARKER.sub(lambda found: fill[found[1]](found[2]), markdown)


def table(name: str) -> str:
    """Return a table with a row for each field.

    Raises:
        PluginError: a field without a description, or a description without a field.
    """
    info = types.type_info(STRUCTS[name])
    assert isinstance(info, types.StructType)
    words = _words().get(name, {})
    tag = {info.tag_field: repr(info.tag)} if info.tag_field else {}
    fields = [*tag, *(field.encode_name for field in info.fields)]
    if wrong := {*fields} ^ words.keys():
        raise PluginError(f"docs/formats.toml: [{name}] and the struct differ in {sorted(wrong)}")
    rows = [f"| `{key}` | `{value}` | | {words[key]} |" for key, value in tag.items()]
    rows += [
        f"| `{name}` | {kind(field.type)} | {_default(field)} | {words[name]} |"
        for field in info.fields
        for name in [field.encode_name]
    ]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])


def keys(name: str) -> str:
    """Return a table with a row for each key of a configuration class of vLLM."""
    entries = tomllib.loads(KEYS.read_text(encoding="utf-8"))[name]
    rows = [
        f"| `{key}` | {', '.join(entry['releases'])} | {entry['status']} | {entry['why']} |"
        for key, entry in entries.items()
    ]
    return "\n".join(["| key | releases | status | how, or why not |", "|---|---|---|---|", *rows])


def kind(shape: types.Type) -> str:
    """Return a type in words."""
    if isinstance(shape, types.IntType):
        least, most = shape.ge, shape.le
        return "integer" + (f", {least:,} to {most:,}" if most is not None else "")
    if isinstance(shape, types.LiteralType):
        return ", ".join(f"`{value}`" for value in shape.values)
    if isinstance(shape, types.UnionType):
        return " or ".join(kind(part) for part in shape.types)
    if isinstance(shape, types.StructType):
        return f"[{NAMES[shape.cls]}](#{NAMES[shape.cls].lower()})"
    if isinstance(shape, types.DictType):
        return f"object: {kind(shape.key_type)} → {kind(shape.value_type)}"
    if isinstance(shape, types.VarTupleType | types.ListType):
        return f"list of {kind(shape.item_type)}"
    if isinstance(shape, types.TupleType):
        return f"[{', '.join(kind(part) for part in shape.item_types)}]"
    return PLAIN[type(shape)]


def config(system: str) -> str:
    """Return a table with a row for each key and a column for each revision."""
    revisions = revisions_of(system)
    defaults = {revision: full_config(system, revision, {}) for revision in revisions}
    keys = dict.fromkeys(key for values in defaults.values() for key in values)
    rows = [
        f"| `{key}` | {' | '.join(_value(defaults[revision], key) for revision in revisions)} |"
        for key in keys
    ]
    head = f"| key | {' | '.join(f'`{revision}`' for revision in revisions)} |"
    return "\n".join([head, f"|---|{'---|' * len(revisions)}", *rows])


def _default(field: types.Field) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default_factory()).decode()}`"
    return f"`{msgspec.json.encode(field.default).decode()}`"


def _value(values: Any, key: str) -> str:
    return f"`{msgspec.json.encode(values[key]).decode()}`" if key in values else "–"


@cache
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))
