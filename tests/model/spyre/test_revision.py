"""What each revision does otherwise than the page, and that each difference by itself changes a
run."""

from dataclasses import fields, replace

import pytest

from schedproof.model.spyre import documented, release_2_1_2, release_2_5_2
from schedproof.model.spyre.documented import DOCUMENTED
from schedproof.model.spyre.model import REVISIONS, SpyreModel, admitting_by, with_formula
from schedproof.model.spyre.peak import CHECKS
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.release_2_5_2 import RELEASE_2_5_2
from schedproof.model.spyre.revision import Revision
from schedproof.model.spyre.sound import SOUND
from schedproof.model.spyre.volumetric import FORMULAS, ByFormula, Newcomer, Projection
from schedproof.spec.systems import SYSTEMS

from ...golden_tables import Arrival, request_of
from .build import config

RELEASES = {"2.1.2", "2.5.2"}
# Published behaviour (golden tables) and the target protocol: the revisions in which a function is
# not the page's.
OTHERWISE = {
    "name": {"sound", *RELEASES},
    "decide": RELEASES,
    "candidate": {"2.5.2"},
    "is_empty": {"2.5.2"},
    "is_held_to_last_chunk": RELEASES,
    "satisfies_last_chunk": {"2.5.2"},
    "fits_model_length": {"2.5.2"},
    "volume_check": {"sound", *RELEASES},
    "current_tkv": RELEASES,
    "tkv_after_chunk": RELEASES,
    "progress": RELEASES,
    "fits_pool": {"2.1.2"},
    "blocks_at_end": {"2.5.2"},
    "lost_blocks": {"2.5.2"},
    "give_back": {"2.1.2"},
    "shows": RELEASES,
}
FORMULA_OF = {
    "sound": "common_base",
    "documented": "document_realigned",
    "2.1.2": "2.1.2",
    "2.5.2": "2.1.2",
}
STALE_TKV = {
    "current_tkv": release_2_1_2.current_tkv,
    "tkv_after_chunk": release_2_1_2.tkv_after_chunk,
}
PAUSES = {
    "decide": release_2_5_2.decide,
    "satisfies_last_chunk": release_2_5_2.satisfies_last_chunk,
    "shows": RELEASE_2_5_2.shows,
}


@pytest.mark.parametrize("function", OTHERWISE)
def test_the_revisions_differ_as_published(function):
    of_the_page = getattr(DOCUMENTED, function)
    others = {name for name, own in REVISIONS.items() if getattr(own, function) != of_the_page}
    assert others == OTHERWISE[function]


def test_every_function_is_compared():
    assert [field.name for field in fields(Revision)] == [*OTHERWISE]


def test_the_published_revisions_project_as_published():
    checks = {name: revision.volume_check for name, revision in REVISIONS.items()}
    assert checks == {name: ByFormula(FORMULAS[formula]) for name, formula in FORMULA_OF.items()}


def test_a_revision_is_found_by_its_name():
    assert {name: revision.name for name, revision in REVISIONS.items()} == {
        name: name for name in REVISIONS
    }


def test_a_release_without_a_model_of_its_own_decides_like_one_that_has():
    """The projection of 2.1.1 is that of 2.1.2; 2.6.x decides like 2.5.2 (scenario format)."""
    assert SYSTEMS["spyre"].decides_as == {
        **{name: name for name in REVISIONS},
        **{"2.1.1": "2.1.2", "2.4.0": "2.5.2", "2.6.3": "2.5.2"},
    }


def test_the_sound_revision_is_the_page_but_for_its_projection():
    assert replace(SOUND, name="documented", volume_check=documented.VOLUME_CHECK) == DOCUMENTED


def steps(revision, arrivals, count, **changes):
    """The first `count` steps of a run, and what they show."""
    model = SpyreModel(config(**changes), revision)
    state = model.initial()
    shown = []
    for number in range(count):
        for arrival in arrivals:
            if arrival.step == number:
                state = model.arrive(state, request_of(arrival))
        state, seen = model.step(state)
        shown.append(seen)
    return shown


def with_and_without(functions, base, arrivals, count, **changes):
    """Two runs that differ in `functions` only, doing the same but for their last step."""
    runs = [
        steps(revision, arrivals, count, **changes)
        for revision in (replace(base, **functions), base)
    ]
    done = [[(seen["scheduled"], seen["blocks"], seen["finished"]) for seen in run] for run in runs]
    assert done[0][:-1] == done[1][:-1]
    return runs[0], runs[1]


def test_a_stale_tkv_holds_a_prefill_back_for_a_step():
    """In step 7 the long one finishes at tkv 22. With it the short one would end at
    20 + 2 + 19 = 41 of 32; without it nothing is in its way."""
    arrivals = [Arrival(0, "long", 20, 3), Arrival(0, "short", 6, 20)]
    stale, fresh = with_and_without(
        STALE_TKV, SOUND, arrivals, 9, chunk_size=4, max_model_len=32, max_batch_tkv=128
    )
    assert stale[7]["finished"] == {"long": "length"}
    assert (stale[8]["kind"], stale[8]["prefilling"]) == ("idle", ["short"])
    assert (fresh[8]["kind"], fresh[8]["scheduled"]) == ("prefill", {"short": 2})


def test_a_prefill_reports_its_prompt_or_the_batch_that_it_joins():
    """6 tokens are at tkv 7 after a decode step; 3 tokens in the same block reach 7."""
    reporting = replace(SOUND, **STALE_TKV)
    own = {"tkv_after_chunk": release_2_5_2.tkv_after_chunk}
    arrivals = [Arrival(0, "a", 6, 5), Arrival(0, "b", 3, 5)]
    prompt, joined = with_and_without(own, reporting, arrivals, 3)
    assert [seen["tkv"] for seen in prompt] == [6, 7, 3]
    assert [seen["tkv"] for seen in joined] == [6, 7, 7]


def test_checked_once_a_prompt_does_not_start_before_its_last_chunk_could_go():
    """Together they reach 24 each; b has three chunks, the first of 4 tokens."""
    arrivals = [Arrival(0, "a", 5, 4), Arrival(0, "b", 20, 8)]
    at_first = {"is_held_to_last_chunk": release_2_1_2.is_held_to_last_chunk}
    once, each = with_and_without(at_first, SOUND, arrivals, 2, max_batch_tkv=47, interleave=False)
    assert once[1]["scheduled"] == {"a": 1}
    assert each[1]["scheduled"] == {"b": 4}


def test_the_model_length_keeps_a_prompt_out_that_would_push_the_old_one_beyond_it():
    """With 5 tokens and 10 steps to go, from block 2 on a ends at 8 + 1 + 10 = 19."""
    arrivals = [Arrival(0, "a", 4, 12), Arrival(0, "b", 8, 2)]
    no_length = {"fits_model_length": release_2_5_2.fits_model_length}
    dropped, kept = with_and_without(no_length, SOUND, arrivals, 3, max_model_len=18)
    assert kept[2]["scheduled"] == {"a": 1}
    assert dropped[2]["scheduled"] == {"b": 8}


def test_counting_ahead_a_chunk_that_starts_in_a_cached_prefix_counts_whole():
    """4 tokens of 16 are cached; the first chunk ends at 8."""
    arrivals = [
        Arrival(0, "a", 5, 1, content=(("s", 5),)),
        Arrival(1, "b", 16, 2, content=(("s", 4), ("b", 12))),
    ]
    whole = {"progress": release_2_5_2.progress}
    ahead, exact = with_and_without(whole, SOUND, arrivals, 2, prefix_caching=True)
    assert (ahead[1]["computed"], ahead[1]["blocks"]) == ({"b": 12}, {"b": [1, 2, 3]})
    assert (exact[1]["computed"], exact[1]["blocks"]) == ({"b": 8}, {"b": [1, 2]})
    for seen in (ahead[1], exact[1]):
        assert (seen["prefix_hit"], seen["scheduled"]) == ({"b": 4}, {"b": 4})


def test_a_whole_first_chunk_has_blocks_for_its_padding():
    """12 tokens behind a block of padding: 4 tokens in the first chunk."""
    ahead = replace(SOUND, progress=release_2_5_2.progress)
    padded = {"progress": release_2_1_2.progress}
    whole, real = with_and_without(padded, ahead, [Arrival(0, "a", 12, 2)], 1)
    assert whole[0]["blocks"] == {"a": [1, 2]}
    assert real[0]["blocks"] == {"a": [1]}
    assert whole[0]["computed"] == real[0]["computed"] == {"a": 4}


def test_reserving_blocks_a_newcomer_waits_for_those_that_it_may_need():
    """a may grow to 16 tokens, b to 8: 6 blocks of 5."""
    arrivals = [Arrival(0, "a", 4, 13), Arrival(0, "b", 4, 5)]
    no_promise = {"fits_pool": release_2_1_2.fits_pool, "shows": ()}
    careless, careful = with_and_without(no_promise, SOUND, arrivals, 3, num_blocks=5)
    assert careful[2]["scheduled"] == {"a": 1}
    assert careful[2]["reserved_blocks"] == 2
    assert careless[2]["scheduled"] == {"b": 4}
    assert "reserved_blocks" not in careless[2]


def test_for_the_last_token_a_block_may_be_reserved_that_is_never_used():
    """5 + 4 tokens, of which 8 are computed: 2 blocks, both held after the prefill."""
    for_all = {"blocks_at_end": release_2_5_2.blocks_at_end}
    last, computed = with_and_without(for_all, SOUND, [Arrival(0, "a", 5, 4)], 1)
    assert last[0]["blocks"] == computed[0]["blocks"] == {"a": [1, 2]}
    assert (last[0]["reserved_blocks"], computed[0]["reserved_blocks"]) == (1, 0)


def test_a_leaked_reservation_stays_when_its_request_is_aborted_between_two_steps():
    """5 + 8 tokens: 3 blocks, 2 held. Inside a step nothing leaks."""
    leaking = replace(SOUND, lost_blocks=release_2_5_2.lost_blocks)
    for revision, lost in ((leaking, 1), (SOUND, 0)):
        model = SpyreModel(config(), revision)
        state = model.arrive(model.initial(), request_of(Arrival(0, "a", 5, 8)))
        state, seen = model.step(state)
        assert seen["reserved_blocks"] == 1
        assert model.step(model.abort(state, "a"))[1]["reserved_blocks"] == lost
        assert model.step(state, ("a",))[1]["reserved_blocks"] == 0


def test_nameless_blocks_are_handed_out_again_first_or_last():
    """a gives back blocks 2 and 1; the pool has no end."""
    arrivals = [Arrival(0, "a", 5, 1), Arrival(1, "b", 5, 2)]
    in_order = {"give_back": release_2_1_2.give_back}
    last, first = with_and_without(in_order, SOUND, arrivals, 2)
    assert first[1]["blocks"] == {"b": [2, 1]}
    assert last[1]["blocks"] == {"b": [3, 4]}


def test_who_pauses_admits_more_than_the_limit_lets_decode():
    """7 tokens beside 6 are a volume of 14 in the next step already, of 13."""
    arrivals = [Arrival(0, "a", 5, 5), Arrival(0, "b", 5, 5)]
    pausing, waiting = with_and_without(PAUSES, SOUND, arrivals, 3, max_batch_tkv=13)
    assert (pausing[2]["scheduled"], pausing[2]["paused"]) == ({"b": 5}, [])
    assert waiting[2]["scheduled"] == {"a": 1}
    after = steps(replace(SOUND, **PAUSES), arrivals, 4, max_batch_tkv=13)[3]
    assert (after["scheduled"], after["running"], after["paused"]) == ({"b": 1}, ["b"], ["a"])


def test_forgetting_the_paused_a_newcomer_starts_before_they_return():
    """The three steps of a are over while b, which took turns with it, is paused."""
    pausing = replace(SOUND, **PAUSES)
    forgets = {"is_empty": release_2_5_2.is_empty}
    arrivals = [Arrival(0, "a", 5, 4), Arrival(0, "b", 5, 4), Arrival(3, "c", 3, 2)]
    forgetful, mindful = with_and_without(forgets, pausing, arrivals, 8, max_batch_tkv=13)
    assert forgetful[6]["finished"] == {"a": "length"}
    assert (forgetful[7]["scheduled"], forgetful[7]["paused"]) == ({"c": 3}, ["b"])
    assert (mindful[7]["scheduled"], mindful[7]["paused"]) == ({"b": 1}, [])


def test_behind_a_request_that_is_refused_another_one_may_go():
    """From 6 tokens on, old ends at 15: 2 x 16 with a, which ends later, of 31; b ends at 8."""
    arrivals = [Arrival(0, "old", 5, 11), Arrival(0, "a", 3, 28), Arrival(0, "b", 3, 2)]
    scan = {"candidate": release_2_5_2.candidate}
    skipping, strict = with_and_without(scan, SOUND, arrivals, 3, max_batch_tkv=31)
    assert skipping[2]["scheduled"] == {"b": 3}
    assert skipping[2]["waiting"] == ["a"]
    assert strict[2]["scheduled"] == {"old": 1}


def test_a_single_fault_of_a_release_is_put_right_by_one_function():
    """The run above, in 2.5.2 itself: with the page's `candidate` the queue stops at a."""
    arrivals = [Arrival(0, "old", 5, 11), Arrival(0, "a", 3, 28), Arrival(0, "b", 3, 2)]
    repaired = replace(RELEASE_2_5_2, candidate=documented.candidate)
    limits = {"max_batch_tkv": 31, "pausing": False}
    assert steps(RELEASE_2_5_2, arrivals, 3, **limits)[2]["scheduled"] == {"b": 3}
    assert steps(repaired, arrivals, 3, **limits)[2]["scheduled"] == {"old": 1}


def test_another_volumetric_check_is_put_in_place_by_name():
    formula = ByFormula(FORMULAS["2.1.0"])
    assert admitting_by(SOUND, "2.1.0") == replace(SOUND, volume_check=formula)
    for name, check in CHECKS.items():
        assert admitting_by(SOUND, name) == replace(SOUND, volume_check=check)
    slack = admitting_by(SOUND, "2.1.0+64")
    assert slack is not None
    assert isinstance(slack.volume_check, ByFormula)
    assert slack.volume_check.formula(64, [], Newcomer(1, 2), 64) == Projection(192, [])
    assert admitting_by(SOUND, "2.1.9") is None


def test_a_model_gets_another_volumetric_check_and_keeps_all_else():
    model = SpyreModel(config(), RELEASE_2_1_2)
    exact = with_formula(model, "exact")
    assert exact == SpyreModel(config(), replace(RELEASE_2_1_2, volume_check=CHECKS["exact"]))
    assert with_formula(model, "2.1.9") is None
