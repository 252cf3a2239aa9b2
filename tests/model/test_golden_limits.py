"""The releases' published run-to-completion property, at production scale."""

from collections import Counter

import pytest

from .. import golden_tables

OF_2_1_2 = "2.1.2_scheduler_tkv_limits.json"
OF_2_5_2 = "2.5.2_scheduler_tkv_limits.json"

# `documented` does not have the property: see the last test.
HOLDS = ((OF_2_1_2, "2.1.2"), (OF_2_1_2, "sound"), (OF_2_5_2, "2.5.2"))
RUNS = [
    pytest.param(revision, *case.values, id=f"{revision}-{case.id}", marks=case.marks)
    for file, revision in HOLDS
    for case in golden_tables.cases(file)
]


@pytest.mark.slow
@pytest.mark.parametrize(("revision", "table"), RUNS)
def test_volume_stays_within_the_limit_until_the_run_ends(revision, table):
    config = golden_tables.config_of(table)
    assert config["prefix_caching"]
    generated: Counter[str] = Counter()
    finished: dict[str, str] = {}
    hits: set[str] = set()
    paused: set[str] = set()
    for seen in steps(revision, table):
        assert volume(seen) <= config["max_batch_tkv"], seen
        generated.update(seen["emitted"])
        finished.update(seen["finished"])
        hits.update(name for name, tokens in seen["prefix_hit"].items() if tokens)
        paused.update(seen.get("paused", ()))
    max_tokens = {request["id"]: request["max_tokens"] for request in added(table)}
    assert generated == max_tokens
    assert finished == dict.fromkeys(max_tokens, "length")
    assert seen["free_blocks"] == config["num_blocks"]
    # The run is the one that is meant: prompts of one seed are prefixes of each other, and the
    # later release keeps the limit by pausing.
    assert hits == sharing(table)
    assert bool(paused) == (revision == "2.5.2")


@pytest.mark.slow
@pytest.mark.parametrize("table", golden_tables.cases(OF_2_1_2))
def test_the_documents_formula_exceeds_the_limit(table):
    """It does not round up to whole blocks, so a realignment can cost more than it projects."""
    limit = golden_tables.config_of(table)["max_batch_tkv"]
    assert any(volume(seen) > limit for seen in steps("documented", table))


def volume(seen):
    """Requests of a forward times its tkv, in tokens."""
    return len(seen["scheduled"]) * (seen["tkv"] or 0)


def added(table):
    return [event["request"] for event in table["events"] if event["op"] == "add"]


def sharing(table):
    """Requests whose prompt begins like an earlier one, for a block at least."""
    seeds: set[tuple[str, int]] = set()
    later = set()
    for request in added(table):
        [segment] = request["prompt"]
        if (segment["source"], segment["key"]) in seeds:
            later.add(request["id"])
        seeds.add((segment["source"], segment["key"]))
    return later


def steps(revision, table):
    """The steps of the run that the table's events describe."""
    target = golden_tables.started(revision, **golden_tables.config_of(table))
    generated: Counter[str] = Counter()
    # Each request alone, an idle step after each of its chunks.
    remaining = sum(2 * request["prompt_len"] + request["max_tokens"] for request in added(table))
    for event in table["events"]:
        if event["op"] == "add":
            golden_tables.add(target, golden_tables.arrival_of(event["request"]))
            continue
        assert event["op"] in {"run_until_generated", "run_until_no_running"}
        goes_on = True
        while goes_on:
            seen = target.step()["step"]
            yield seen
            remaining -= 1
            assert remaining, "the run does not end"
            generated.update(seen["emitted"])
            if event["op"] == "run_until_generated":
                goes_on = generated[event["request"]] < event["tokens"]
            else:
                goes_on = bool(seen["running"] or seen["waiting"] or seen.get("paused"))
