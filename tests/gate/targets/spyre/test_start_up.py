"""The start-up checks of a Spyre release, without one."""

from types import SimpleNamespace

from schedproof.gate.targets.spyre import release as spyre
from schedproof.gate.targets.vllm import start_up


def test_vllm_plans_the_cache_of_a_list_of_layers(monkeypatch):
    planned = []
    monkeypatch.setattr(spyre, "version_of", lambda name: "0.33.0")
    monkeypatch.setattr(spyre, "configure", lambda release, config, blocks: blocks)
    monkeypatch.setattr(start_up, "attention", lambda block_size: block_size)
    monkeypatch.setattr(start_up, "refusal", lambda config, layers: planned.append([*layers]))
    release = SimpleNamespace(name="sendnn-inference", version="2.6.3", platform=object())
    checked = spyre.check_start(release, {"num_blocks": 8, "block_size": 64})
    assert checked.starts
    assert planned == [[64]]
