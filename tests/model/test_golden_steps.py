"""The releases' published step tables, reproduced cell by cell by the models of the releases."""

from collections import Counter
from typing import Any

import pytest

from .. import golden_tables

STEPS = {
    "2.1.2": ("2.1.2_spyre_cp_scheduler_steps.json", "2.1.2_spyre_pc_scheduler_steps.json"),
    "2.5.2": (
        "2.5.2_spyre_cp_scheduler_steps.json",
        "2.5.2_spyre_decode_pause_scheduler_steps.json",
        "2.5.2_spyre_pc_scheduler_steps.json",
    ),
}
TABLES = [
    pytest.param(revision, *case.values, id=f"{revision}-{case.id}", marks=case.marks)
    for revision, files in STEPS.items()
    for file in files
    for case in golden_tables.cases(file)
]

# Columns of a step table, all of which `model_rows` writes.
COMPARED = {
    *("tkv", "waiting", "running", "request_outputs", "finished_requests", "n_used_blocks"),
    *("n_reserved_blocks", "n_prefix_hits", "n_cached_blocks"),
    *("block_tables", "block_ref_count", "prefill_slot_mappings"),
}
# In every row; the others are compared where the row has them.
ALWAYS = {"tkv", "waiting", "running", "request_outputs", "n_used_blocks"}
NOT_COMPARED = {
    "step": "number of the row: it drives the comparison",
    "listed": "whether upstream wrote the row out or the table filled it in: no behaviour",
}


@pytest.mark.parametrize(("revision", "table"), TABLES)
def test_every_cell_of_the_step_table_is_reproduced(revision, table):
    # `available_blocks` never binds where the table leaves it to the engine (null).
    not_enforced = {(step, key) for step, key in table["not_enforced"]}
    differences = []
    for expected, got in zip(table["all_steps"], model_rows(revision, table), strict=True):
        assert expected.keys() >= ALWAYS
        # An absent `finished_requests` means [].
        for key, wanted in {"finished_requests": [], **expected}.items():
            if key in NOT_COMPARED or (expected["step"], key) in not_enforced:
                continue
            if got[key] != wanted:
                differences.append(f"step {expected['step']} {key}: {got[key]}, not {wanted}")
    assert not differences


@pytest.mark.parametrize(("revision", "table"), TABLES)
def test_no_column_is_silently_ignored(revision, table):
    columns = {key for row in table["all_steps"] for key in row}
    assert columns - COMPARED - NOT_COMPARED.keys() == set()
    assert {key for _, key in table["not_enforced"]} <= COMPARED


def test_what_is_named_as_compared_or_not_compared_exists():
    tables = [
        table for files in STEPS.values() for file in files for table in golden_tables.load(file)
    ]
    columns = {key for table in tables for row in table["all_steps"] for key in row}
    assert columns == COMPARED | NOT_COMPARED.keys()


def test_the_comparison_notices_a_changed_cell():
    """A guard of the test itself: a table with one token more must not be reproduced."""
    table = golden_tables.load(STEPS["2.1.2"][0])[0]
    before = model_rows("2.1.2", table)
    table["requests"][0]["max_tokens"] += 1
    assert model_rows("2.1.2", table) != before


def model_rows(revision, table):
    """The model's rows: state after N steps, the arrivals of N added, before step N + 1."""
    model = golden_tables.model_of(revision, golden_tables.config_of(table))
    state = model.initial()
    seen: dict[str, Any] = {"waiting": [], "running": [], "emitted": {}, "finished": {}}
    # Tokens computed before each request's last forward.
    before: dict[str, int] = {}
    rows = []
    for row in table["all_steps"]:
        if row["step"] > 0:
            computed = seen.get("computed", {})
            state, seen = model.step(state)
            for sequence in state.admitted:
                if sequence.id in seen["scheduled"]:
                    before[sequence.id] = computed.get(sequence.id, sequence.prefix_hit)
        arrivals = [request for request in table["requests"] if request["add_step"] == row["step"]]
        for request in arrivals:
            state = model.arrive(state, golden_tables.request_of(golden_tables.arrival_of(request)))
        usable = {
            sequence.id: golden_tables.usable_blocks(model.config, sequence)
            for sequence in state.admitted
        }
        blocks = seen.get("blocks", {})
        holders = Counter(block for held in blocks.values() for block in held)
        rows.append(
            {
                "tkv": seen.get("tkv") or 0,
                "waiting": [*seen["waiting"], *(request["id"] for request in arrivals)],
                "running": seen["running"],
                "request_outputs": list(seen["emitted"]),
                "finished_requests": list(seen["finished"]),
                "n_used_blocks": len(holders),
                "n_reserved_blocks": seen.get("reserved_blocks", 0),
                "n_prefix_hits": sum(
                    count * model.config.block_size > before[name] for name, count in usable.items()
                ),
                "n_cached_blocks": sum(usable.values()),
                "block_tables": blocks,
                "block_ref_count": {str(block): count for block, count in holders.items()},
                "prefill_slot_mappings": seen.get("slot_blocks", {}),
            }
        )
    return rows
