"""Generated configurations and requests are accepted, and bring about what is worth checking."""

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from schedproof.model.llmservingsim.config import read_config
from schedproof.model.llmservingsim.model import make_model
from schedproof.model.scenario import Request, check_requests
from schedproof.model.target import ModelTarget
from schedproof.properties.llmservingsim import strategies as llmservingsim
from schedproof.properties.rules.registry import applies
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load

SCALES = ("small", "short", "tight")
REVISIONS = ("documented", "head")
RULES = [rule for rule in load("llmservingsim") if rule.checked]
CONFIG = {
    **{"block_size": 4, "num_blocks": 6, "max_num_seqs": 3, "max_num_batched_tokens": 9},
    **{"long_prefill_token_threshold": 0, "enable_chunked_prefill": True},
    **{"enable_prefix_caching": True, "prioritize_prefill": False, "pp_size": 1},
}
EARLIER = [
    Request(id="r0", arrival=0, prompt=(("r0", 8),), max_tokens=2),
    Request(id="r1", arrival=0, prompt=(("r1", 6),), max_tokens=2),
]


def found(strategy, condition):
    """An example with the condition; `find` raises where there is none."""
    unshrunk = settings(max_examples=2000, database=None, phases=(Phase.generate,))
    return find(strategy, condition, settings=unshrunk)


def request(name, content, shape):
    return Request(
        id=name,
        arrival=0,
        prompt=content,
        max_tokens=shape.max_tokens,
        output_len=shape.output_len,
        priority=shape.priority,
    )


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("scale", SCALES)
@given(data=st.data())
def test_every_configuration_can_be_modelled_and_takes_every_request(revision, scale, data):
    config = data.draw(llmservingsim.configs(scale, revision))
    assert list(config) == list(read_config(config, revision).__struct_fields__)
    model = make_model(revision, config)
    for strategy in (llmservingsim.shapes, llmservingsim.long_prompts):
        shape = data.draw(strategy(config))
        assert shape.priority == 0
        content = data.draw(llmservingsim.contents(config, EARLIER, "new", shape.prompt))
        one = request("new", content, llmservingsim.fitted(config, content, shape))
        check_requests((one,))
        if content[0][0] == "new":
            assert model.refusal(one) is None


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    "tried",
    [
        {"enable_chunked_prefill": False},
        {"enable_prefix_caching": False},
        {"max_num_seqs": 0},
        {"max_num_seqs": 1},
        {"num_blocks": None},
        {"long_prefill_token_threshold": 0},
    ],
)
def test_every_option_is_tried(revision, tried):
    def has(config):
        return all(config[key] == value for key, value in tried.items())

    assert found(llmservingsim.configs("small", revision), has)


def test_prefills_are_prioritised_by_the_page_alone():
    assert found(
        llmservingsim.configs("small", "documented"), lambda config: config["prioritize_prefill"]
    )

    @given(llmservingsim.configs("small", "head"))
    def never(config):
        assert config["prioritize_prefill"] is False

    never()


def test_a_budget_may_be_less_than_a_token_for_everybody():
    assert found(
        llmservingsim.configs("small", "head"),
        lambda config: config["max_num_batched_tokens"] < config["max_num_seqs"],
    )


def test_a_prompt_may_end_as_another_one_begins():
    contents = llmservingsim.contents(CONFIG, EARLIER, "new", 9)
    mixed = found(contents, lambda content: [name for name, _ in content] == ["r1", "r0"])
    assert mixed[0] == ("r1", 4)


def test_without_a_cache_prompts_are_repeated_as_well():
    config = CONFIG | {"enable_prefix_caching": False}
    contents = llmservingsim.contents(config, EARLIER, "new", 9)
    assert found(contents, lambda content: content == EARLIER[-1].prompt)
    assert found(contents, lambda content: content == (("new", 9),))


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_rule_of_a_revision_holds_on_its_model_at_the_published_block_size(revision):
    rules = [rule for rule in RULES if applies(rule, revision)]
    search = Search(SearchOptions(ModelTarget(), "llmservingsim", revision, rules, "short"))
    assert not run_search(search, 40, 0, 0), search.failure
    assert search.rejected == 0
    assert not search.refused
