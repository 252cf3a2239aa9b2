"""How a counterexample of a search is shown."""

import io

from rich.console import Console

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.search.counterexample import show
from schedproof.model.scenario import Request, Scenario
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.properties.spyre.predicates.volume import volume
from schedproof.spec.catalogue import load, select

SMALL = {"block_size": 2, "chunk_size": 2, "max_model_len": 8, "max_batch_tkv": 8}
[LIMIT] = select(load("spyre"), ["SPY-R07"])


def test_the_worst_run_is_shown_at_its_worst_step_not_at_its_first(tmp_path):
    long = Request(id="r0", arrival=0, prompt=(("r0", 1),), max_tokens=7)
    short = Request(id="r1", arrival=4, prompt=(("r1", 1),), max_tokens=4)
    scenario = Scenario(system="spyre", revision="documented", config=SMALL, requests=(long, short))
    told = io.StringIO()
    code = show(
        *(Console(file=told, width=200), scenario, LIMIT, "document_own_tkv", tmp_path, None),
        found_by="this test",
        most=volume,
    )
    assert code == 1
    assert "step 7:  2 requests x tkv 8 = 16 > 8 (by 8 tokens)" in told.getvalue()
    assert told.getvalue().endswith("step 5 breaks it first; replay stops there\n")
    [written] = tmp_path.iterdir()
    again = replay(ModelTarget("document_own_tkv"), read_scenario(written), [LIMIT])
    assert again.broken[0].step == 5
