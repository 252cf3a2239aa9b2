"""From the word on the command line to a revision."""

import pytest

from schedproof.gate.targets.target_spec import parse_target


@pytest.mark.parametrize(
    ("spec", "revision"),
    [
        ("sendnn-inference==2.1.2", "2.1.2"),
        ("sendnn-inference==2.1.1", "2.1.2"),
        ("sendnn-inference==2.5.2", "2.5.2"),
        ("sendnn-inference==2.6.3", "2.5.2"),
        ("sendnn-inference==2.0.1", "documented"),
        ("vllm-spyre==1.10.0", "documented"),
        ("vllm==0.28.0", "documented"),
        ("model", None),
        ("toys:Toy", None),
        ("cmd:python toy.py", None),
    ],
)
def test_a_release_is_held_to_the_model_that_decides_as_it_does(spec, revision):
    assert parse_target(spec).default_revision() == revision


@pytest.mark.parametrize(
    ("spec", "system"),
    [
        ("vllm==0.28.0", "vllm"),
        ("vllm-spyre==1.10.0", "spyre"),
        ("sendnn-inference==2.6.3", "spyre"),
        ("model", "spyre"),
        ("toys:Toy", "spyre"),
    ],
)
def test_a_release_says_which_system_is_meant(spec, system):
    assert parse_target(spec).default_system == system


FACTORY = """
from schedproof.model.target import ModelTarget
def make(): return ModelTarget()
"""
