"""The scheduler class for sendnn-inference decides as the exact check of the model."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.targets.factory import opened
from schedproof.gate.targets.supported_releases import ReleaseError
from schedproof.gate.targets.target_spec import parse_target
from schedproof.model.spyre.documented import max_tkv
from schedproof.model.spyre.peak import peak_volume
from schedproof.model.spyre.volumetric import Decoding, Newcomer
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

FILE = Path(__file__).resolve().parents[2] / "examples" / "exact_admission.py"


class Request:
    """A request of the release; no two are equal."""

    def __init__(self, computed):
        self.num_computed_tokens = computed


class Release:
    """What the class asks of the release's scheduler."""

    max_batch_tkv_limit = 131_072
    tkv = 32_000

    def __init__(self, lengths):
        self.running = [Request(length) for length in lengths]
        self.ongoing_prefills = self.running[:1]
        self.tkv_at_request = -1

    def _satisfies_last_chunk_constraints(self, request):
        self.tkv_at_request = self.tkv
        return request == "joins"


@pytest.fixture(scope="module")
def example():
    """The file, imported beside a release that has only this class."""
    name = "sendnn_inference.v1.core.scheduler"
    parts = [name.rsplit(".", up)[0] for up in range(3, 0, -1)] + [name]
    for part in parts:
        sys.modules[part] = ModuleType(part)
    sys.modules[name].ChunkedPrefillSpyreScheduler = Release  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("exact_admission", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for part in parts:
        del sys.modules[part]


LENGTHS = st.integers(1, 32_768) | st.integers(1, 200)
PAIRS = st.tuples(LENGTHS, st.integers(0, 300) | st.integers(0, 32_768))


@given(st.lists(PAIRS, max_size=8), LENGTHS, st.integers(1, 400))
def test_its_largest_volume_is_that_of_the_model(example, pairs, prompt, max_tokens):
    decoding = [Decoding(length, remaining, 0) for length, remaining in pairs]
    expected = peak_volume(decoding, Newcomer(prompt, max_tokens), 64)
    volume = example.largest_volume(
        [(remaining, length) for length, remaining in pairs], (max_tokens - 1, prompt)
    )
    assert volume == expected


def request(prompt, max_tokens, computed=0):
    return SimpleNamespace(
        num_prompt_tokens=prompt, max_tokens=max_tokens, num_computed_tokens=computed
    )


@pytest.mark.parametrize(("beyond", "joins"), [(0, True), (1, False)])
def test_it_refuses_from_the_first_token_beyond_the_limit(example, beyond, joins):
    # Four requests that end at 32,768 tokens use the limit; a token more begins another block.
    scheduler = example.ExactAdmission([])
    running = [request(100, 32_669 + beyond, 200) for _ in range(3)]
    newcomer = request(100, 32_569 + beyond)
    assert scheduler.check_batch_tkv_limit_cp(newcomer, -1, running) is joins


@given(st.lists(LENGTHS, min_size=1, max_size=6))
def test_the_rest_is_asked_by_the_batchs_own_tkv_and_what_is_remembered_stays(example, lengths):
    scheduler = example.ExactAdmission(lengths)
    assert scheduler._satisfies_last_chunk_constraints("joins") is True
    assert scheduler._satisfies_last_chunk_constraints("waits") is False
    assert scheduler.tkv_at_request == max_tkv(lengths[1:], 64)
    assert scheduler.tkv == 32_000


@pytest.mark.slow
def test_on_2_1_2_it_takes_the_decode_step_that_the_release_idles():
    """`corpus run` on the release says that it idles there."""
    scenario = read_scenario(
        FILE.parents[1] / "tests/corpus/idle-by-the-tkv-of-a-batch-that-left.json"
    )
    rules = [rule for rule in load("spyre") if rule.id == "SPY-R35"]
    spec = parse_target(f"sendnn-inference==2.1.2:{FILE}:ExactAdmission")
    try:
        with opened(spec, offline=True) as target:
            assert replay(target.target, scenario, rules).broken == []
    except ReleaseError:
        pytest.skip("sendnn-inference 2.1.2 is not installed")
