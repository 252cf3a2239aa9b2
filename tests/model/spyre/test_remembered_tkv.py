"""A release that goes by a tkv it remembers may admit what its own formula refuses."""

from schedproof.model.scenario import Request, Scenario
from schedproof.model.spyre.volumetric import Decoding, Newcomer, accepts, release_2_1_2
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay

LIMIT = 96
CONFIG = {
    "block_size": 4,
    "chunk_size": 8,
    "max_num_seqs": 4,
    "max_model_len": 64,
    "max_batch_tkv": LIMIT,
    "pausing": False,
    "interleave": False,
}


def request(name: str, arrival: int, prompt: int, max_tokens: int) -> Request:
    return Request(
        id=name,
        arrival=arrival,
        prompt=((name, prompt),),
        max_tokens=max_tokens,
        output_len=max_tokens,
    )


def test_2_5_2_without_pausing_admits_by_a_tkv_below_that_of_a_member_and_then_pauses() -> None:
    requests = (request("r0", 2, 20, 16), request("r1", 2, 4, 23), request("r2", 4, 11, 28))
    scenario = Scenario(system="spyre", revision="2.5.2", config=CONFIG, requests=requests)
    steps = []
    replay(ModelTarget(), scenario, [], watch=lambda _, step: steps.append(step))
    # r0 decodes with 20 tokens when r2 starts, and the step before reports a tkv of 4.
    assert (steps[5].tkv, dict(steps[6].scheduled)) == (4, {"r2": 4})
    # Pausing is off, and only a pause keeps the limit.
    assert steps[20].paused == ("r0",)


def test_the_formula_with_the_current_tkv_refuses_it() -> None:
    batch = [Decoding(20, 15, 20), Decoding(4, 22, 20)]
    accepted = {
        tkv: accepts(release_2_1_2(tkv, batch, Newcomer(11, 28), 4), LIMIT) for tkv in (4, 20)
    }
    assert accepted == {4: True, 20: False}
