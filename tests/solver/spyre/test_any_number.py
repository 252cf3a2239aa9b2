"""The lemmas for any number of requests are about the code: a fault in it makes one fail."""

from schedproof.model.spyre import volumetric
from schedproof.model.spyre.model import SpyreModel
from schedproof.model.spyre.state import Sequence
from schedproof.solver.smt.obligation import Obligation, discharge
from schedproof.solver.spyre.any_number import door, later, leaves, walk


def status(lemma: Obligation) -> str:
    [one] = discharge([lemma])
    return one.status


def test_each_is_proven_and_guarded():
    assert [status(one()) for one in (walk, door, leaves, later)] == ["proven"] * 4


def test_a_walk_that_counts_one_less_accepts_all_or_stops_early_is_refuted(monkeypatch):
    whole = volumetric.answer_at
    for planted in (
        lambda tkv, to_come, newcomer, limit: whole(tkv, to_come - 1, newcomer, limit),
        lambda *_: True,
        lambda *_: None,
        lambda tkv, to_come, newcomer, limit: to_come * tkv <= limit,
        lambda tkv, to_come, newcomer, limit: whole(tkv, to_come, newcomer, limit + 1),
    ):
        monkeypatch.setattr(volumetric, "answer_at", planted)
        assert status(walk()) == "refuted", planted


def test_a_door_that_lets_in_a_token_too_many_is_refuted(monkeypatch):
    whole = SpyreModel.refusal

    def shorter(self, request):
        return whole(self, request._replace(max_tokens=request.max_tokens - 1))

    monkeypatch.setattr(SpyreModel, "refusal", shorter)
    assert status(door()) == "refuted"


def test_a_request_that_counts_a_step_too_few_is_refuted(monkeypatch):
    remaining = property(lambda self: self.max_tokens - 2 * self.generated)
    monkeypatch.setattr(Sequence, "remaining", remaining)
    assert status(later()) == "refuted"
