"""A page of one file: nothing in its data can end the element that it stands in."""

import json
import re

import pytest

from schedproof.gate.web.base.page import render_page

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
