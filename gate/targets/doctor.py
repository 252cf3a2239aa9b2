"""Check an adapter before any gate: does it follow the protocol, and does a repeated run give the
same answers?"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from ...model.errors import InputError
from ...model.faults import ConfigRefused
from ...model.observation import FIELDS, REQUIRED, Step
from ...model.replies import Started, read_control, read_ok, read_started, read_step
from ...model.scenario import CONTROLS, Request, Scenario
from ...model.systems import full_config
from ...model.target import Target
from ...properties.checking.lockstep import differences
from ...properties.checking.replay import replay
from ...properties.rules.registry import FOLLOW_NOTHING, applies
from ..processes.watchdog import run_watched
from .overrides import Override
from .probe import Capabilities, ProbeRequest, probe, undeclared
from .release_adapter import OVERRIDES
from .scales import scales_of

SIGNATURES = "schedproof.gate.targets.signatures"
PATIENCE = 120.0  # seconds that importing an adapter may take
MAX_STEPS = 200
FEW_BLOCKS = 4
# Rules that plain requests break only if the adapter is faulty, each with the way to fix it.
MENDS = {
    "ALL-R03": (
        "the queues must show the state after the step, with each unfinished request in "
        "one of them; aborting a request that has ended must change nothing"
    ),
    "ALL-R04": (
        "`finished` must contain each request in the step of its last token, with reason length "
        "or eos, and an aborted request in the next step, with reason aborted"
    ),
    "ALL-R09": (
        "free_blocks must count all blocks of the pool that no request holds, including "
        "cached blocks"
    ),
    "GEN-R08": "a token must be emitted in the step that completes its decision",
    "GEN-R15": "a request must emit as many drafts as `accepted` says, and one more token",
    "GEN-R14": "`emitted_at` must be the position of the first emitted token in the output, from 0",
    "ALL-R13": "`kind` must be prefill if no scheduled request is generating, decode if all are, "
    "else mixed; a preempted request has no computed tokens",
}
# Optional features that are tried one at a time, by configuration key.
OPTIONAL = {
    "async_scheduling": "steps in flight",
    "pipeline_parallel_size": "a pipeline",
    "num_speculative_tokens": "drafts",
    "kv_connector": "a connector",
}

Says = Literal["ok", "wrong", "note"]


class Remark(NamedTuple):
    """The result of one check. Only "wrong" means that the adapter has a fault."""

    says: Says
    what: str
    why: str = ""


Remarks = Iterator[Remark]


def examine(query: ProbeRequest, module: str | None) -> Remarks:
    """Run all checks and yield their results. `module` is the module of the user's adapter, or
    None."""
    if module is not None:
        yield from signatures(module)
    capabilities = probe(query)
    started, scales = capabilities.started, ", ".join(capabilities.scales)
    yield Remark("ok", "starts", f"{started.name} {started.version}, scales {scales}")
    for line in capabilities.notices():
        yield Remark("note", line)
    for what, (_, crash) in capabilities.crashes.items():
        yield Remark("wrong", f"start with {what}", str(crash))
    scenario = sample(query, capabilities)
    yield from overridden(query.target, scenario)
    yield from fields(query.target, scenario)
    yield from answers(query.target, scenario)
    yield from repeats(query.target, scenario)
    yield from keeps_the_common_rules(query, scenario, "accounting", "four plain requests")
    yield from with_features(query, scenario, capabilities.started)
    yield from with_aborts(query, scenario)
    yield from with_few_blocks(query, scenario, capabilities)
    yield from judgeable(query.rules, query.revision, capabilities.shows)


def sample(query: ProbeRequest, capabilities: Capabilities) -> Scenario:
    """Return a scenario of four plain requests, with prompts of one token, one block or several
    blocks. One of the requests stops before max_tokens."""
    scale = capabilities.scales[0]
    values = {**scales_of(query.system).scales[scale], **capabilities.fixed[scale]}
    config = full_config(query.system, query.revision, values)
    block = config["block_size"]
    shapes = ((block + 1, 4, 4, 0), (1, 3, 3, 0), (2 * block - 1, 5, 2, 1), (block, 1, 1, 4))
    requests = tuple(
        Request(
            id=f"r{number}",
            arrival=arrival,
            prompt=((f"r{number}", prompt),),
            max_tokens=most,
            output_len=emits,
        )
        for number, (prompt, most, emits, arrival) in enumerate(shapes)
    )
    return Scenario(system=query.system, revision=query.revision, config=config, requests=requests)


def fields(target: Target, scenario: Scenario) -> Remarks:
    declared = target_declares(target, scenario)
    for name in sorted(declared - FIELDS):
        yield Remark("wrong", "observes", f"{name!r}; valid: {', '.join(sorted(FIELDS))}")
    sent: set[str] = set()
    for reply in _replies(target, scenario):
        step = reply.get("step")
        sent |= step.keys() if isinstance(step, Mapping) else set()
    unknown, silent = sent - FIELDS, (sent & FIELDS) - declared - REQUIRED
    for name in sorted(unknown):
        yield Remark(
            "wrong", "step", f"{name!r} is not a field; valid: {', '.join(sorted(FIELDS))}"
        )
    for name in sorted(silent):
        yield Remark(
            "wrong", "step", f"{name} is sent but not declared in observes, so it is ignored"
        )
    if declared <= FIELDS and not unknown and not silent:
        yield Remark("ok", "fields", f"declared and sent: {', '.join(sorted(declared))}")


def overridden(target: Target, scenario: Scenario) -> Remarks:
    """Check that the methods of a user's scheduler class accept every call that the release's own
    methods accept."""
    reply = target.start(scenario.system, scenario.revision or "", scenario.config)
    methods = msgspec.convert(reply.get(OVERRIDES, []), list[Override])
    for method in methods:
        if not (problem := method.fails or method.may_fail):
            continue
        file = Path(method.file)
        shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
        base = f"{method.base} of the release has {method.expected}"
        yield Remark(
            "wrong" if method.fails else "note",
            method.method,
            f"{shown}, line {method.line}: has {method.signature}, but {base}; {problem}",
        )
    if methods and not any(method.fails or method.may_fail for method in methods):
        names = ", ".join(method.method for method in methods)
        yield Remark("ok", "overrides", f"{names}: every call that the release's class accepts")


def target_declares(target: Target, scenario: Scenario) -> set[str]:
    """Return all names that the target lists in `observes`, including unknown ones."""
    reply = target.start(scenario.system, scenario.revision or "", scenario.config)
    read_started(reply)
    return set(reply["observes"]) | REQUIRED


def answers(target: Target, scenario: Scenario) -> Remarks:
    odd = {**scenario.config, "no_such_key": 1}
    try:
        read_started(target.start(scenario.system, scenario.revision or "", odd))
        yield Remark(
            "wrong",
            "start",
            "accepts the unknown key no_such_key; it must refuse it (error: config)",
        )
    except ConfigRefused:
        yield Remark("ok", "start", "refuses a key that it does not know")
    read_started(target.start(scenario.system, scenario.revision or "", scenario.config))
    most = max(scenario.config.get("max_model_len") or 0, 10**6)
    endless = Request(id="endless", arrival=0, prompt=(("endless", most),), max_tokens=most)
    if read_ok("add", target.add(endless.for_target())) is None:
        yield Remark(
            "note",
            "add",
            f"accepts a prompt of {most:,} tokens; only a gate shows what happens to such a "
            "request",
        )
    else:
        yield Remark("ok", "add", "refuses requests that can never run")
    read_started(target.start(scenario.system, scenario.revision or "", scenario.config))
    if read_ok("abort", target.abort("no such request")) is not None:
        yield Remark("note", "abort", "not supported, so no request will be aborted")
    elif read_ok("abort", target.abort("no such request", True)) is not None:
        yield Remark("note", "abort", "supported, but not inside a step")
    else:
        yield Remark("ok", "abort", "supported, inside a step as well; an unknown id is ignored")
    yield from _controls(target, scenario)


def _controls(target: Target, scenario: Scenario) -> Remarks:
    started = read_started(target.start(scenario.system, scenario.revision or "", scenario.config))
    for kind in CONTROLS:
        if kind in started.controls:
            read_control(target.control(kind))
    if started.controls:
        kinds = ", ".join(kind for kind in CONTROLS if kind in started.controls)
        yield Remark("ok", "control", f"answers {kinds}")


def repeats(target: Target, scenario: Scenario) -> Remarks:
    """Check that the same requests always give the same steps: after a complete run, after a run
    that a `start` interrupted, and after a stop."""
    first = _steps(target, scenario)
    for what, before in BEFORE.items():
        before(target, scenario)
        again = _steps(target, scenario)
        pairs = enumerate(zip(first, again, strict=False))
        difference = next(((n, d) for n, (a, b) in pairs if (d := differences(a, b))), None)
        if difference:
            number, different = difference
            differences_text = (
                "; ".join(different).replace("target ", "first ").replace("model ", "then ")
            )
            yield Remark("wrong", what, f"step {number} differs: {differences_text}")
        elif len(first) != len(again):
            yield Remark("wrong", what, f"{len(first)} steps the first time, then {len(again)}")
        else:
            yield Remark("ok", what, f"the same {len(first)} steps")


def keeps_the_common_rules(
    query: ProbeRequest, scenario: Scenario, what: str, requests: str
) -> Remarks:
    """Check the rules of every system on a few plain requests. A broken rule is probably the
    adapter's fault."""
    common = [rule for rule in query.rules if rule.id.startswith(FOLLOW_NOTHING)]
    outcome = replay(query.target, scenario, common)
    for failure in outcome.broken:
        is_wrong = failure.rule in MENDS or what in ("accounting", *OPTIONAL.values())
        # With few blocks or aborts, the scheduler itself may break other rules; leave those to the
        # gate.
        says: Says = "wrong" if is_wrong else "note"
        mend = f" ({MENDS[failure.rule]})" if failure.rule in MENDS else ""
        mend = (
            mend or ""
            if is_wrong
            else "; if it is the scheduler that does this, the gate will report it"
        )
        yield Remark(says, failure.rule, f"{what}, step {failure.step}: {failure.message}{mend}")
    refused = outcome.session.rejected
    if outcome.broken:
        return
    if len(refused) == len(scenario.requests):
        name, why = next(iter(refused.items()))
        yield Remark("wrong", what, f"every request is refused: {name}: {why}")
    elif refused:
        name, why = next(iter(refused.items()))
        many = f"{len(refused)} of {len(scenario.requests)} requests are refused"
        only = "a gate judges only the other requests"
        yield Remark("note", what, f"{many}, such as {name}: {why}; {only}")
    elif "finished" in outcome.session.started.observes:
        yield Remark("ok", what, f"{requests} finish in {outcome.steps} steps")
    else:
        yield Remark(
            "note",
            what,
            "the target does not show `finished`, so it is unknown whether requests end",
        )


def with_features(query: ProbeRequest, scenario: Scenario, started: Started) -> Remarks:
    """Repeat the plain requests once with each optional feature that the target declares and
    accepts."""
    features = {next(iter(some)): some for some in reversed(scales_of(query.system).features)}
    block = scenario.config["block_size"]
    uses: dict[str, Any] = {"accepted": (1, 0, 2), "external_tokens": block, "load_steps": 1}
    requests = tuple(msgspec.structs.replace(request, **uses) for request in scenario.requests)
    unused = undeclared(query.system, started)
    for key, what in OPTIONAL.items():
        if key in unused:
            continue
        with suppress(ConfigRefused, InputError):
            values = {**scenario.config, **features.get(key, {key: None})}
            config = full_config(query.system, query.revision, values)
            changed = msgspec.structs.replace(scenario, config=config, requests=requests)
            yield from keeps_the_common_rules(query, changed, what, "four plain requests")


def with_aborts(query: ProbeRequest, scenario: Scenario) -> Remarks:
    target = query.target
    read_started(target.start(scenario.system, scenario.revision or "", scenario.config))
    if read_ok("abort", target.abort("no such request")) is not None:
        return
    given_up = {
        "r0": 1,
        "r2": 1,
        "r1": 4,
    }  # before step 4 r1 has ended, so this abort must have no effect
    requests = tuple(
        msgspec.structs.replace(request, abort_at=given_up.get(request.id))
        for request in scenario.requests
    )
    aborting = msgspec.structs.replace(scenario, requests=requests)
    yield from keeps_the_common_rules(
        query, aborting, "aborts", "four requests, two of which are aborted,"
    )


def with_few_blocks(query: ProbeRequest, scenario: Scenario, capabilities: Capabilities) -> Remarks:
    scale = capabilities.scales[0]
    if (
        capabilities.fixed[scale].get("num_blocks", ...) is None
        or "num_blocks" not in scenario.config
    ):
        return  # the target does not accept a bounded pool
    block = scenario.config["block_size"]
    requests = tuple(
        Request(id=name, arrival=0, prompt=((name, block),), max_tokens=2 * block + 1)
        for name in ("r0", "r1", "r2")
    )
    try:
        config = full_config(
            query.system, query.revision, {**scenario.config, "num_blocks": FEW_BLOCKS}
        )
        crowded = msgspec.structs.replace(scenario, config=config, requests=requests)
        yield from keeps_the_common_rules(
            query, crowded, "few blocks", f"three requests that need 9 blocks of {FEW_BLOCKS}"
        )
    except (ConfigRefused, InputError) as refusal:
        yield Remark("note", f"no check with {FEW_BLOCKS} blocks", str(refusal))


def judgeable(rules: Any, revision: str, observes: frozenset[str]) -> Remarks:
    checked = [rule for rule in rules if rule.checked and applies(rule, revision)]
    seen = [rule for rule in checked if observes.issuperset(rule.needs)]
    yield Remark("ok", "rules", f"{len(seen)} of {len(checked)} can be judged")
    missing = Counter[str]()
    for rule in checked:
        missing.update(["+".join(sorted(set(rule.needs) - observes))])
    for names, number in missing.most_common():
        if names:
            fields = "these fields" if "+" in names else "this field"
            what = "rule" if number == 1 else "rules"
            more = f"{number} more {what} could be judged if the target showed {fields}"
            yield Remark("note", names.replace("+", ", "), more)


def signatures(module: str) -> Remarks:
    command = [sys.executable, "-P", "-m", SIGNATURES, module]
    stderr = b""
    try:
        ran = run_watched(command, stderr=subprocess.PIPE, timeout=PATIENCE)
        stderr = ran.stderr
        compared = json.loads(ran.stdout) if ran.returncode == 0 else ...
    except subprocess.TimeoutExpired:
        compared, stderr = ..., f"the import took longer than {PATIENCE:g} s".encode()
    except ValueError:
        compared = ...
    if compared is None:
        yield Remark(
            "note",
            "signatures",
            "none to check; list the signatures that the adapter relies on in RELIES_ON",
        )
    elif compared is ...:
        last = (stderr.decode(errors="replace").strip().splitlines() or ["no answer"])[-1]
        yield Remark("wrong", "signatures", f"RELIES_ON cannot be read: {last}")
    else:
        for name, expected, found in compared:
            same = expected == found
            why = found if same else f"is {found}, but the adapter relies on {expected}"
            yield Remark("ok" if same else "wrong", name, why)


def _half(target: Target, scenario: Scenario) -> None:
    for _, _ in zip(range(2), _replies(target, scenario), strict=False):
        pass


def _stop(target: Target, _: Scenario) -> None:
    read_ok("stop", target.stop())


BEFORE: Mapping[str, Callable[[Target, Scenario], None]] = {
    "two identical runs": lambda _, __: None,
    "start during a run": _half,
    "start after a stop": _stop,
}


def _steps(target: Target, scenario: Scenario) -> list[Step]:
    started = frozenset(target_declares(target, scenario)) & FIELDS
    return [read_step(reply, started) for reply in _replies(target, scenario)]


def _replies(target: Target, scenario: Scenario) -> Iterator[Mapping[str, Any]]:
    read_started(target.start(scenario.system, scenario.revision or "", scenario.config))
    live: set[str] = set()
    for number in range(MAX_STEPS):
        for request in scenario.requests:
            if request.arrival == number and _add(target, request):
                live.add(request.id)
        reply = target.step()
        read_step(reply, REQUIRED)
        yield reply
        live -= (reply["step"].get("finished") or {}).keys()
        if not live and number >= max(request.arrival for request in scenario.requests):
            return


def _add(target: Target, request: Request) -> bool:
    return read_ok("add", target.add(request.for_target())) is None
