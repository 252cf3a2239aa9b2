"""Releases of the Spyre plugin start, or not, as their servers do. Skipped where not installed."""

import pytest

from schedproof.gate.targets import releases
from schedproof.gate.targets.pipe import PipeTarget
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release
from schedproof.model.systems import full_config

SIZES = {"chunk_size": 128, "max_num_seqs": 4, "max_model_len": 1024, "max_batch_tkv": 2048}


@pytest.fixture(scope="module")
def spyre():
    release = parse_release("sendnn-inference==2.1.2")
    assert release is not None
    try:
        prepared = releases.prepare(release, offline=True)
    except ReleaseError as error:
        pytest.skip(str(error))

    def start(**changes):
        config = full_config("spyre", release.revision, SIZES | changes)
        return pipe.start("spyre", release.revision, config)

    with PipeTarget(prepared.command, env=prepared.env) as pipe:
        yield start


@pytest.mark.slow
def test_a_pool_that_warm_up_refuses_is_refused(spyre):
    """The limit allows 32 blocks, and one is padding; 35 are rounded down to 32."""
    for num_blocks in (16, 34):
        refused = spyre(num_blocks=num_blocks)
        assert refused["error"] == "config"
        assert refused["message"].startswith(
            f"$.config.num_blocks is {num_blocks}; sendnn-inference 2.1.2 does not start (warm-up: "
        )
    assert spyre(num_blocks=35)["start_up"] == {
        "starts": True,
        "why": "sendnn-inference 2.1.2 check_and_update_config, get_total_spyre_blocks, and "
        "vllm 0.19.1 get_kv_cache_configs",
    }


@pytest.mark.slow
def test_without_a_bound_the_release_chooses_its_pool(spyre):
    by = "sendnn-inference 2.1.2 check_and_update_config"
    assert spyre(num_blocks=None)["start_up"] == {"starts": True, "why": by}
