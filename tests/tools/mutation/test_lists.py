"""Every change in the lists of survivors can still be made in today's models."""

import tomllib
from pathlib import Path

import pytest

from schedproof.tools.mutation import rule_coverage
from schedproof.tools.mutation.operators import MODEL

LISTS = ("survivors.toml", "rule_survivors.toml")


def survivors():
    for name in LISTS:
        text = Path(rule_coverage.__file__).with_name(name).read_text(encoding="utf-8")
        for survivor in tomllib.loads(text)["survivor"]:
            yield pytest.param(survivor, id=f"{survivor['file']}:{survivor['before']:.40}")


@pytest.mark.parametrize("survivor", [*survivors()])
def test_a_listed_change_starts_from_a_line_that_the_model_has(survivor):
    source = (MODEL / survivor["file"]).read_text(encoding="utf-8")
    assert "".join(survivor["before"].split()) in "".join(source.split())
    assert survivor["before"] != survivor["after"]


@pytest.mark.parametrize("judging", rule_coverage.JUDGED, ids=lambda it: it.revision)
def test_the_files_whose_decisions_are_changed_exist(judging):
    for name in judging.files:
        assert (MODEL / judging.system / f"{name}.py").is_file()
