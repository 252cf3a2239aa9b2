"""A target that is watched is asked for what it would be asked for without."""

from schedproof.gate.campaign.margins import Watched
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget


class Begins(ModelTarget):
    def ask_ahead(self, steps: int) -> int:
        return min(steps, 4)


def test_steps_that_follow_are_told() -> None:
    assert Watched(Begins()).ask_ahead(9) == 4
    assert Watched(ModelTarget()).ask_ahead(9) == 1


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
