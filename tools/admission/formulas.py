"""What does each volumetric check cost and gain on the same loads?

Runs the model of revision `sound` at production scale on the loads of `loads.py`, with each
published formula and each check of `model.spyre.peak`. Then tries the checks alone on random
batches. Every step counts as one, whatever its duration. Takes three minutes on one core:

    make tool NAME=admission.formulas
    make tool NAME=admission.formulas OPTIONS="--quick --json FILE"
"""

import argparse
import gc
import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from schedproof.model.spyre import peak, scheduler, volumetric
from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.model import SpyreModel, admitting_by
from schedproof.model.spyre.revision import Revision
from schedproof.model.spyre.sound import SOUND
from schedproof.model.spyre.volumetric import Decoding, Newcomer

from .loads import PRODUCTION, Load, all_loads, random_batch

NAMES = (*volumetric.FORMULAS, *peak.CHECKS)
BASE = "2.1.2"
RATIOS = ("steps", "chunk_mean", "chunk_p95", "token_mean", "token_p95", "batch")
HEADS = (
    *("steps", "wait for chunk, mean", "p95", "wait for token, mean", "p95", "mean batch"),
    *("refusals", "though safe", "unsafe joins", "largest volume", "beyond the limit"),
)


class Measured(NamedTuple):
    """What was measured for one load under one check.

    Attributes:
        steps: number of steps until every request has finished.
        chunk_mean, chunk_p95: steps from the arrival of a request to its first chunk; 0 if the
            request arrives just before the step with its first chunk.
        token_mean, token_p95: steps from the arrival of a request to the step that emits its first
            token.
        batch: mean number of requests in a decode step.
        refusals: number of steps in which a last chunk was refused only because of the check.
        needless: refusals of chunks that the exact check would have accepted.
        unsafe: number of last chunks accepted although they can lead to a volume above the limit.
        largest: largest batch x tkv of any decode step, in tokens.
        beyond: tokens by which `largest` exceeds the limit, or 0.
    """

    steps: int
    chunk_mean: float
    chunk_p95: int
    token_mean: float
    token_p95: int
    batch: float
    refusals: int
    needless: int
    unsafe: int
    largest: int
    beyond: int


class Counted:
    """A revision's volumetric check that also counts its right and wrong answers. Admission
    calls it at most once per step, after every other check has allowed the last chunk."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.refusals = self.needless = self.unsafe = 0

    def __call__(
        self, decoding: Sequence[Decoding], newcomer: Newcomer, block_size: int, limit: int, _: int
    ) -> bool:
        accepted = answer(self.revision, decoding, newcomer, block_size, limit)
        safe = peak.peak_volume(decoding, newcomer, block_size) <= limit
        self.refusals += not accepted
        self.needless += safe and not accepted
        self.unsafe += accepted and not safe
        return accepted


def checked_by(name: str) -> Revision:
    """Return the revision `sound` with the named check."""
    revision = admitting_by(SOUND, name)
    assert revision is not None, name
    return revision


def answer(
    revision: Revision,
    decoding: Sequence[Decoding],
    newcomer: Newcomer,
    block_size: int,
    limit: int,
) -> bool:
    """Return the answer of the revision's volumetric check, given the current tkv of the batch."""
    current = max((member.tkv for member in decoding), default=0)
    return revision.volume_check(decoding, newcomer, block_size, limit, current)


def run(config: SpyreConfig, name: str, load: Load) -> Measured:
    """Run the load under the named check until every request has finished.

    Raises:
        AssertionError: no request makes progress any longer.
    """
    counted = Counted(checked_by(name))
    revision = replace(counted.revision, volume_check=counted)
    model = SpyreModel(config, revision)
    state = model.initial()
    arriving = list(reversed(load.requests))
    arrival = {request.id: request.arrival for request in load.requests}
    to_chunk: dict[str, int] = {}
    to_token: dict[str, int] = {}
    step = decodes = members = largest = 0
    while arriving or state.waiting or state.running:
        while arriving and arriving[-1].arrival == step:
            state = model.arrive(state, arriving.pop())
        state, decision = revision.decide(config, revision, state)
        assert decision.kind != "idle" or not (state.waiting or state.running), (name, step)
        state, computed = scheduler.compute(config, revision, state, decision)
        state, emitted, _ = scheduler.complete(config, revision, state, computed)
        if decision.kind == "prefill":
            (prefilled,) = computed.scheduled
            to_chunk.setdefault(prefilled, step - arrival[prefilled])
            # The first token comes from the last chunk.
            to_token |= {emitter: step - arrival[emitter] for emitter in emitted}
        elif decision.kind == "decode":
            decodes += 1
            members += len(decision.members)
            largest = max(largest, len(decision.members) * computed.tkv)
        step += 1
    return Measured(
        step,
        *(sum(to_chunk.values()) / len(to_chunk), p95(to_chunk.values())),
        *(sum(to_token.values()) / len(to_token), p95(to_token.values())),
        members / max(decodes, 1),
        *(counted.refusals, counted.needless, counted.unsafe),
        largest,
        max(largest - config.max_batch_tkv, 0),
    )


def p95(waits: Iterable[int]) -> int:
    """Return the smallest wait that at least 95 % of the waits do not exceed."""
    ordered = sorted(waits)
    return ordered[-(-95 * len(ordered) // 100) - 1]


class Alone(NamedTuple):
    """The result of trying a check by itself, on batches whose largest volume is known.

    Attributes:
        batches: number of batches.
        permissive: batches that it accepts, although their volume is one token above the limit.
        needless: batches that it refuses, although their volume equals the limit.
    """

    batches: int
    permissive: int
    needless: int


def alone(name: str, batches: int, seed: int) -> Alone:
    """Try the named check on random batches, and count its wrong answers.

    Only batches with a volume above max_model_len are tried: every limit has room for one request
    of that length.
    """
    revision, chance, block = checked_by(name), random.Random(seed), PRODUCTION.block_size
    permissive = needless = tried = 0
    while tried < batches:
        decoding, newcomer = random_batch(chance)
        volume = peak.peak_volume(decoding, newcomer, block)
        if volume > PRODUCTION.max_model_len:
            tried += 1
            permissive += answer(revision, decoding, newcomer, block, volume - 1)
            needless += not answer(revision, decoding, newcomer, block, volume)
    return Alone(batches, permissive, needless)


def title(load: Load) -> str:
    return f"{load.name}, early EOS" if load.early_eos else load.name


def summary(loads: Sequence[Load], results: dict[str, dict[str, Measured]]) -> str:
    """Return a table of the steps that every load takes under every check. The base's column
    contains numbers; the other columns contain ratios to the base."""
    rows = [["load", f"{BASE}, steps", *(name for name in NAMES if name != BASE)]]
    for load in loads:
        found = results[title(load)]
        base = found[BASE].steps
        others = (found[name] for name in NAMES if name != BASE)
        ratios = (
            f"{measured.steps / base:.3f}{' !' if measured.beyond else ''}" for measured in others
        )
        rows.append([title(load), f"{base:,}", *ratios])
    return table(rows)


def details(found: dict[str, Measured]) -> str:
    """Return the table for one load. The base comes first, and checks with equal results share a
    row."""
    base = found[BASE]
    names: dict[Measured, list[str]] = {base: []}
    for name in NAMES:
        names.setdefault(found[name], []).append(name)
    return table([["check", *HEADS], *([", ".join(names[m]), *cells(m, base)] for m in names)])


def cells(measured: Measured, base: Measured) -> list[str]:
    """Return the cells of a row: ratios to the base where they make sense, and otherwise
    numbers. The base's own row contains only numbers."""
    shown = []
    for field, value in measured._asdict().items():
        reference = getattr(base, field)
        if field in RATIOS and measured is not base and reference:
            shown.append(f"{value / reference:.3f}")
        elif field in RATIOS and measured is not base:
            shown.append(f"{value:,} to 0" if value else "0 as well")
        else:
            shown.append(f"{value:,.1f}" if isinstance(value, float) else f"{value:,}")
    return shown


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def markdown(
    loads: Sequence[Load], results: dict[str, dict[str, Measured]], checks: dict[str, Alone]
) -> str:
    parts = [
        f"Steps until all have finished, as a ratio to {BASE}; `!`: the limit was exceeded.\n"
        "Early EOS: each output ends at a point drawn uniformly from 1 to max_tokens, and the\n"
        "check still plans for max_tokens.",
        summary(loads, results),
    ]
    for load in loads:
        parts += [f"**{title(load)}**: {load.about}", details(results[title(load)])]
    rows = [["check", "accepts one token beyond the limit", "refuses what just fits"]]
    for name, result in checks.items():
        rows.append(
            [
                name,
                f"{result.permissive:,}",
                f"{result.needless:,} ({result.needless / result.batches:.1%})",
            ]
        )
    batches = checks[BASE].batches
    parts += [f"The checks alone, on {batches:,} random batches with a newcomer:", table(rows)]
    return "\n\n".join(parts)


def plain(
    loads: Sequence[Load], results: dict[str, dict[str, Measured]], checks: dict[str, Alone]
) -> dict[str, Any]:
    """Return all results as plain data for JSON."""
    return {
        "base": BASE,
        "loads": [
            {
                "name": load.name,
                "about": load.about,
                "early_eos": load.early_eos,
                "checks": {n: measured._asdict() for n, measured in results[title(load)].items()},
            }
            for load in loads
        ],
        "alone": {name: result._asdict() for name, result in checks.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller loads, seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the numbers to this file"
    )
    given = parser.parse_args()
    # no data here is cyclic, so reference counting frees everything
    gc.disable()
    loads = all_loads(given.seed, given.quick)
    results = {}
    for load in loads:
        print(f"{title(load)} ...", file=sys.stderr, flush=True)
        results[title(load)] = {name: run(PRODUCTION, name, load) for name in NAMES}
    checks = {n: alone(n, 1_000 if given.quick else 10_000, given.seed) for n in NAMES}
    if given.json:
        options = {"seed": given.seed, "quick": given.quick}
        text = json.dumps(options | plain(loads, results, checks), indent=1)
        given.json.write_text(text + "\n", encoding="utf-8")
    print(markdown(loads, results, checks))


if __name__ == "__main__":
    main()
