"""A rule can be followed through the layers by its id."""

from schedproof.tools.follow import files_naming


def test_a_rule_is_named_from_its_sentence_to_its_proof():
    found = files_naming("SPY-R07")
    assert "spec/spyre.toml" in found["sentence"]
    assert found["model"]
    assert found["predicate"]
    assert found["proof"]


def test_an_id_that_begins_like_another_is_another():
    assert not any(files_naming("SPY-R0").values())
