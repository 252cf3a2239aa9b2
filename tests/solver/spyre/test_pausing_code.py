"""A release that pauses keeps the limit, and pauses no request without need."""

import pytest

from schedproof.model.spyre import documented, release_2_5_2
from schedproof.solver.obligation import discharge
from schedproof.solver.spyre.pausing_code import any_number, few, no_pause


def failing() -> set[str]:
    return {one.name for one in discharge([*any_number(), *few()]) if one.status != "proven"}


@pytest.mark.slow
def test_every_lemma_is_proven_and_guarded():
    assert failing() == set()
    assert [one.name for one in few()][-1] == no_pause().name == "no_pause"


def test_a_limit_that_is_asked_of_one_request_alone_is_refuted(monkeypatch):
    whole = release_2_5_2.fits_limit
    monkeypatch.setattr(
        release_2_5_2, "fits_limit", lambda config, batch: whole(config, batch[-1:])
    )
    assert failing() == {"stay_1_1", "stay_2_0", "stay_2_1", "no_pause"}


def test_a_turn_that_forgets_one_that_stays_is_refuted(monkeypatch):
    whole = release_2_5_2.settled
    alone = lambda asked, fits: whole(asked, lambda batch: fits(batch[-1:]))  # noqa: E731
    monkeypatch.setattr(release_2_5_2, "settled", alone)
    assert {"turn", "stay_2_0"} <= failing()


@pytest.mark.slow
def test_a_tkv_that_counts_no_padding_is_refuted(monkeypatch):
    monkeypatch.setattr(documented, "rectangle_tkv", lambda longest, filled, block: longest)
    assert {"rectangle", "stay_2_0"} <= failing()


@pytest.mark.slow
def test_a_batch_that_is_asked_about_as_it_was_is_refuted(monkeypatch):
    def before_the_step(config, batch):
        reached = documented.max_tkv([one.computed for one in batch], config.block_size)
        return len(batch) * reached <= config.max_batch_tkv

    monkeypatch.setattr(release_2_5_2, "fits_limit", before_the_step)
    assert {"stay_1_0", "stay_2_0"} <= failing()
