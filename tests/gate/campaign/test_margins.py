"""The nearest misses of limits that a watched target shows."""

from schedproof.gate.campaign.margins import Watched
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget


def test_the_nearest_miss_of_a_limit_is_kept_with_its_configuration() -> None:
    target = Watched(ModelTarget())
    config = full_config("spyre", "sound", {"max_num_seqs": 3})
    target.start("spyre", "sound", config)
    for name in ("a", "b"):
        target.add({"id": name, "prompt": [[name, 5]], "max_tokens": 4, "output_len": 4})
    for _ in range(3):
        target.step()
    assert target.near["max_num_seqs"].left == 1
    assert target.near["max_num_seqs"].config == config
