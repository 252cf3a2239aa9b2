"""Generated configurations and requests are accepted, and bring about what is worth checking."""

import pytest
from hypothesis import given

from schedproof.model.scenario import Request
from schedproof.model.target import ModelTarget
from schedproof.properties.llmservingsim import strategies as llmservingsim
from schedproof.properties.rules.registry import applies
from schedproof.properties.search.run import run_search
from schedproof.properties.search.state import Search, SearchOptions
from schedproof.spec.catalogue import load
from schedproof.tests.properties.drawn import find_example

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


def test_prefills_are_prioritised_by_the_page_alone():
    assert find_example(
        llmservingsim.configs("small", "documented"), lambda config: config["prioritize_prefill"]
    )

    @given(llmservingsim.configs("small", "head"))
    def never(config):
        assert config["prioritize_prefill"] is False

    never()


def test_a_budget_may_be_less_than_a_token_for_everybody():
    assert find_example(
        llmservingsim.configs("small", "head"),
        lambda config: config["max_num_batched_tokens"] < config["max_num_seqs"],
    )


def test_a_prompt_may_end_as_another_one_begins():
    contents = llmservingsim.contents(CONFIG, EARLIER, "new", 9)
    mixed = find_example(contents, lambda content: [name for name, _ in content] == ["r1", "r0"])
    assert mixed[0] == ("r1", 4)


def test_without_a_cache_prompts_are_repeated_as_well():
    config = CONFIG | {"enable_prefix_caching": False}
    contents = llmservingsim.contents(config, EARLIER, "new", 9)
    assert find_example(contents, lambda content: content == EARLIER[-1].prompt)
    assert find_example(contents, lambda content: content == (("new", 9),))


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_rule_of_a_revision_holds_on_its_model_at_the_published_block_size(revision):
    rules = [rule for rule in RULES if applies(rule, revision)]
    fixed = {"pp_size": 1} if revision == "head" else {}
    options = SearchOptions(ModelTarget(), "llmservingsim", revision, rules, "short", fixed=fixed)
    search = Search(options)
    assert not run_search(search, 40, 0, 0), search.failure
    assert search.rejected == 0
    assert not search.refused


@pytest.mark.slow
def test_with_a_pipeline_the_head_of_the_branch_emits_too_early():
    options = SearchOptions(
        *(ModelTarget(), "llmservingsim", "head", RULES, "short"), fixed={"pp_size": 2}
    )
    search = Search(options)
    assert run_search(search, 60, 0, 0)
    assert search.failure[1][0].rule == "LSS-R32"
