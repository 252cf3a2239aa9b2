"""A run in domain words: queues with who has come and gone since, limits, and how far one is."""

import json
import re

import pytest

from schedproof.gate.web.base.page import render_page
from schedproof.gate.web.base.words import progress, queues
from schedproof.model.observation import Step
from schedproof.model.scenario import Request
from schedproof.model.systems import full_config
from schedproof.properties.explanations.measures import Measure, measures
from schedproof.properties.history.run_history import RunHistory

CONFIG = full_config("spyre", "sound", {"block_size": 4, "chunk_size": 8, "prefix_caching": False})


def history(*names, **seen):
    """The client's book after one step, in which `r0` computed its prompt of 3 tokens."""
    book = RunHistory(CONFIG, "sound", "spyre")
    for name in names:
        book.accept(Request(id=name, arrival=0, prompt=((name, 3),), max_tokens=4))
    book.observe(Step(kind="prefill", scheduled={"r0": 3}, emitted={"r0": 1}, **seen))  # type: ignore[arg-type]
    return book


def test_who_has_arrived_since_waits_last_and_who_gave_up_is_gone():
    book = history("r0", "r1", "r2", waiting=("r1", "r2"), running=("r0",), prefilling=())
    book.accept(Request(id="r3", arrival=1, prompt=(("r3", 1),), max_tokens=1))
    book.abort("r1", inside=False)
    assert queues(book) == {"waiting": ["r2", "r3"], "running": ["r0"], "prefilling": []}


def test_whom_a_target_lists_is_shown_whoever_that_is():
    book = history("r0", waiting=("ghost",), running=("r0",))
    assert queues(book)["waiting"] == ["ghost"]


def test_before_the_first_step_everybody_waits():
    book = RunHistory(CONFIG, "sound", "spyre")
    book.accept(Request(id="r0", arrival=0, prompt=(("r0", 1),), max_tokens=1))
    assert queues(book) == {"waiting": ["r0"]}
    assert measures(None, book.config) == []


def test_how_far_a_request_is():
    book = history("r0", left_pad_blocks={"r0": 1}, blocks={"r0": tuple(range(1, 21))})
    assert progress(book, "r0") == (
        "computed 3, generated 1, left padding 1 block, blocks 1 2 3 4 5 6 7 … 20 (20 of them)"
    )


def test_each_limit_that_the_step_shows_is_measured():
    config = {"max_num_batched_tokens": 8, "max_num_seqs": 4, "num_blocks": 10}
    step = Step(kind="mixed", scheduled={"a": 5, "b": 1}, running=("a", "b"), free_blocks=7)
    assert measures(step, config) == [
        Measure("tokens of the step", 6, 8, "tokens"),
        Measure("running", 2, 4, "requests"),
        Measure("blocks held", 3, 10, "blocks"),
    ]
    decode = Step(kind="decode", scheduled={"a": 1, "b": 1}, tkv=9)
    assert measures(decode, {"max_batch_tkv": 16}) == [Measure("batch × tkv", 18, 16, "tokens")]
    assert measures(decode, {"max_batch_tkv": 16, "max_num_seqs": 0, "num_blocks": None}) == [
        Measure("batch × tkv", 18, 16, "tokens")
    ]


DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.mark.parametrize("name", ["graph", "step"])
def test_hostile_words_come_out_as_they_went_in(name):
    words = {"title": "</script><script>alert(1)</script> & <!-- @script@ @data@ \u2028 ü"}
    page = render_page(name, words)
    [found] = DATA.findall(page)
    assert json.loads(found) == words
    assert "alert(1)</script>" not in page


@pytest.mark.parametrize("name", ["graph", "step"])
def test_every_part_is_in_it_and_nothing_is_loaded(name):
    page = render_page(name, {})
    assert not re.search(r"@\w+@", page)
    assert "default-src 'none'" in page
    assert "connect-src 'none'" in page
    assert "connect-src 'self'" in render_page(name, {}, connect="'self'")
    assert "color-scheme: light dark" in page
    assert set(re.findall(r"(?:src|href)=[\"']?([^\"' >]*)", page)) == {"data:,"}
