"""`schedproof gate NAME --path DIR` for LLMServingSim and nano-vLLM.

The checkout is one that the test writes; a real one is judged where the variable of its system,
SCHEDPROOF_LLMSERVINGSIM or SCHEDPROOF_NANO_VLLM, names its folder.
"""

import os
from pathlib import Path

import pytest

from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.targets.checkouts import known_checkouts

from ..toys import gate_json, statuses
from .llmservingsim.stand_in import write_1_0_0, write_1_1_0
from .nano_vllm.test_target import written

pytestmark = pytest.mark.usefixtures("folder")
# Nothing refuses a prompt beyond the budget, which waits for ever where prompts are not cut.
PLAIN = ("--config", "num_blocks=null", "--exclude", "ALL-R05,ALL-R06,ALL-R10")
UNCUT = ("--config", "enable_chunked_prefill=false", "--config", "long_prefill_token_threshold=0")
# Rules that the gate may find broken in a real checkout, by the version that it reports, as
# docs/findings/ tells; what a release does on purpose is among them.
WAITS = {"ALL-R05", "ALL-R06", "ALL-R10", "LSS-R09", "LSS-P03"}
CACHED_WHOLE = {"LSS-R16", "LSS-R32"}
MAY_BREAK = {
    "llmservingsim 1.0.0": WAITS
    | CACHED_WHOLE
    | {"ALL-R01", "LSS-R05", "LSS-R08", "LSS-R11", "LSS-R17", "LSS-R18", "LSS-R36"},
    "llmservingsim 1.1.0": WAITS
    | CACHED_WHOLE
    | {"ALL-R01", "ALL-R04", "LSS-R07", "LSS-R08", "LSS-R11", "LSS-R17", "LSS-R18", "LSS-R20"},
    "llmservingsim after 1.1.0": WAITS | {"LSS-R32"},
    "nano-vllm before 0.2.0": {"ALL-R01", "ALL-R10", "NAN-R04", "NAN-R29", "NAN-R35", "NAN-R38"}
    | {"NAN-R40"},
    "nano-vllm 0.2.0": {"ALL-R01", "NAN-R04", "NAN-R40"},
}


@pytest.mark.parametrize("write", [write_1_1_0, write_1_0_0])
def test_a_checkout_that_does_as_the_page_says_breaks_no_rule(run, tmp_path, write):
    folder = write(tmp_path / "checkout")
    words = PLAIN if write is write_1_1_0 else (*PLAIN, *UNCUT)
    _, data = gate_json(run, "llmservingsim", "--path", str(folder), *words)
    assert data["target"]["version"] in ("1.1.0", "1.0.0")
    assert "violated" not in statuses(data).values()
    assert statuses(data)["LSS-R06"] == "held"


def test_a_checkout_that_forgets_the_budget_is_caught(run, tmp_path):
    folder = write_1_1_0(tmp_path / "checkout")
    scheduler = folder / "serving" / "core" / "scheduler.py"
    code = scheduler.read_text()
    assert code.count("left -= batch[-1][1]") == 1
    scheduler.write_text(code.replace("left -= batch[-1][1]", "pass"))
    words = ("llmservingsim", "--path", str(folder), *PLAIN, "--rule", "LSS-R06")
    result, data = gate_json(run, *words)
    assert (result.code, statuses(data)["LSS-R06"]) == (1, "violated")


def test_a_checkout_that_takes_every_request_at_once_is_caught(run, tmp_path):
    folder = written(tmp_path / "checkout")
    words = ("nano-vllm", "--path", str(folder), "--rule", "NAN-R08,NAN-R11")
    _, data = gate_json(run, *words)
    assert (statuses(data)["NAN-R08"], statuses(data)["NAN-R11"]) == ("violated", "held")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llmservingsim", "nano-vllm"])
def test_a_real_checkout_breaks_only_what_the_findings_tell(run, monkeypatch, name):
    path = os.environ.get(known_checkouts()[name].variable, "")
    if not Path(path).is_dir() or not path:
        pytest.skip(f"${known_checkouts()[name].variable} names no checkout of {name}")
    monkeypatch.setitem(PROFILES, "quick", Profile(60, 30, 60, corpus_steps=2_000))
    _, data = gate_json(run, name, "--path", path)
    version = f"{data['target']['name']} {data['target']['version']}"
    broken = {rule for rule, status in statuses(data).items() if status == "violated"}
    assert broken <= MAY_BREAK[version]
