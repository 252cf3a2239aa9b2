"""The volumetric check: hand-computed numbers, soundness by brute force, published faults."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from schedproof.model.spyre import documented, volumetric
from schedproof.model.spyre.documented import max_tkv, request_tkvs
from schedproof.model.spyre.release_2_1_2 import RELEASE_2_1_2
from schedproof.model.spyre.volumetric import (
    FORMULAS,
    ByFormula,
    Decoding,
    Newcomer,
    Projection,
    accepts,
    formula_named,
)

from ...golden_tables import Arrival, play

SOUND = ("2.1.2", "common_base")
UNSOUND = tuple(name for name in FORMULAS if name not in SOUND)

# Block 4. The batch is wider than the prompt: 10 and 3 tokens, tkv 10 and 11.
WIDE_BATCH = (11, [Decoding(10, 5, 10, 2), Decoding(3, 2, 11, 1)], Newcomer(6, 4))
# The prompt is wider than the batch.
WIDE_PROMPT = (3, [Decoding(3, 2, 3, 1)], Newcomer(9, 2))


@pytest.mark.parametrize(
    ("formula", "wide_batch", "wide_prompt"),
    [
        # new: prompt + remaining; each: own tkv + remaining + block
        ("document_own_tkv", Projection(9, [19, 17]), Projection(10, [9])),
        # from the second full block (8) on: new 10 + 3; 10 + 5 + 4, 11 + 2 + 4
        ("document_realigned", Projection(13, [19, 17]), Projection(10, [17])),
        # new: prompt + remaining; the others from the batch's max-tkv
        ("document_max_tkv", Projection(9, [20, 17]), Projection(10, [9])),
        # new: 6 + 4 tokens in blocks; 10 + 5 + 1 in blocks and one more, 3 + 2 + 1 likewise;
        # beside the wide prompt two blocks of padding and 3 + 2 + 1
        ("document_figure", Projection(12, [20, 12], True), Projection(12, [14], True)),
        # new: 11 + 3; 11 + 5 - 2, 11 + 2 - 1; the tkv of 3 moved by two blocks to 11 first
        ("0.8.0", Projection(14, [14, 12]), Projection(12, [12])),
        ("1.10.0", Projection(13, [15, 13]), Projection(10, [13])),
        ("2.0.1", Projection(13, [20, 17]), Projection(10, [15])),
        ("2.1.0", Projection(16, [16, 16]), Projection(12, [12])),
        ("2.1.2", Projection(20, [20, 20]), Projection(16, [16])),
        ("common_base", Projection(16, [16, 16]), Projection(12, [12])),
    ],
)
def test_formulas_on_numbers_computed_by_hand(formula, wide_batch, wide_prompt):
    assert FORMULAS[formula](*WIDE_BATCH, 4) == wide_batch
    assert FORMULAS[formula](*WIDE_PROMPT, 4) == wide_prompt


def test_the_figure_counts_the_last_token_of_who_decodes():
    # 4 tokens and one make two blocks of 4; a prompt of four blocks pads them with two.
    batch = (4, [Decoding(4, 5, 4)], Newcomer(13, 2))
    assert FORMULAS["document_figure"](*batch, 4) == Projection(16, [18], True)


@pytest.mark.parametrize(("remaining", "tkv"), [(2, 16), (3, 20), (6, 20), (7, 24)])
def test_the_figure_counts_the_last_token_of_the_newcomer(remaining, tkv):
    # A prompt of 13: with 2 steps and the last token it has 16, which is whole blocks of 4.
    newcomer = Newcomer(13, remaining + 1)
    assert FORMULAS["document_figure"](4, [], newcomer, 4).newcomer == tkv


def test_a_member_s_prompt_is_left_out_where_no_formula_asks_for_it():
    assert Decoding(10, 5, 10) == (10, 5, 10, 0)


@pytest.mark.parametrize("name", ["2.1.0+", "2.1.0+x", "2.1.0+²", "2.1.3", "+1", "2.1.0+-1"])
def test_a_name_that_means_nothing_is_no_formula(name):
    assert formula_named(name) is None


def test_slack_gives_everyone_as_many_tokens_more():
    assert formula_named("2.1.0+3")(*WIDE_BATCH, 4) == Projection(19, [19, 19])  # type: ignore[misc]
    assert formula_named("2.1.0") is FORMULAS["2.1.0"]


@pytest.mark.parametrize(
    ("projection", "min_limit"),
    [
        (Projection(10, []), 0),  # a lone newcomer is never checked
        (Projection(10, [20, 30]), 30),  # the newcomer is the first to end: 3 x 10
        (Projection(10, [10, 30]), 30),  # a tie stops the walk
        (Projection(25, [30, 20]), 60),  # 3 x 20, then 2 x 25
        (Projection(40, [20, 30]), 60),  # 3 x 20, 2 x 30; alone it is not checked
        (Projection(40, [10, 35]), 70),  # 3 x 10, 2 x 35
        (Projection(10, [20, 30], True), 40),  # to the end: 3 x 10, 2 x 20, 30
        (Projection(10, [10, 50], True), 50),  # the last one alone
        (Projection(25, [], True), 25),
    ],
)
def test_the_walk_shrinks_the_batch_as_members_end(projection, min_limit):
    assert accepts(projection, min_limit)
    assert min_limit == 0 or not accepts(projection, min_limit - 1)


class Join(NamedTuple):
    """A newcomer in front of a decode batch; `gone` tokens finished since the last decode."""

    members: list[tuple[int, int]]
    newcomer: Newcomer
    gone: int
    block: int

    def projection(self, formula):
        lengths = [computed for computed, _ in self.members]
        tkvs = request_tkvs(lengths, self.block)
        members = [Decoding(*member, own) for member, own in zip(self.members, tkvs, strict=True)]
        # What releases go by may still count a member that has finished.
        reported = max_tkv(lengths + [self.gone] * (self.gone > 0), self.block)
        return FORMULAS[formula](reported, members, self.newcomer, self.block)

    def volumes(self):
        """Batch x tkv of every decode step that the newcomer shares, no request stopping early."""
        all_requests = [*self.members, (self.newcomer.prompt, self.newcomer.remaining)]
        batches = (
            [computed + step for computed, remaining in all_requests if remaining >= step]
            for step in range(1, self.newcomer.remaining + 1)
        )
        return [len(b) * max_tkv(b, self.block) for b in batches if len(b) > 1]


@st.composite
def joins(draw, block, stale=True):
    tokens = st.integers(1, 4 * block) | st.integers(1, 4).map(lambda blocks: blocks * block)
    members = draw(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=5))
    newcomer = Newcomer(draw(tokens), draw(tokens))
    return Join(members, newcomer, draw(st.just(0) | tokens) if stale else 0, block)


@pytest.mark.parametrize("block", [4, 64])
@pytest.mark.parametrize("formula", SOUND)
def test_sound_formulas_never_underestimate_the_peak(formula, block):
    """Peak against estimate, not against a limit: a limit that binds is rarely met."""

    @given(joins(block))
    def check(join):
        projection = join.projection(formula)
        peak = max(join.volumes(), default=0)
        assert peak == 0 or not accepts(projection, peak - 1)

    check()


@pytest.mark.parametrize(
    ("formula", "block"),
    [
        *((formula, 4) for formula in UNSOUND),
        # The search for 2.1.0 at the published size is long; a run that exceeds is below.
        *((formula, 64) for formula in UNSOUND if formula != "2.1.0"),
    ],
)
def test_unsound_formulas_have_a_counterexample(formula, block):
    def underestimated(join):
        return max(join.volumes(), default=1) > 1 and accepts(
            join.projection(formula), max(join.volumes()) - 1
        )

    search = settings(max_examples=20_000, database=None, derandomize=True, phases=[Phase.generate])
    case = find(joins(block, stale=False), underestimated, settings=search)
    assert underestimated(case)


@pytest.mark.parametrize("block", [4, 64])
def test_volume_is_monotone_in_the_members_early_eos_never_hurts(block):
    @given(joins(block), st.data())
    def check(join, data):
        early = [
            (computed, data.draw(st.integers(0, remaining))) for computed, remaining in join.members
        ]
        fewer = join._replace(members=early)
        assert max(fewer.volumes(), default=0) <= max(join.volumes(), default=0)

    check()


READINGS = ("document_own_tkv", "document_realigned", "document_max_tkv")
LONG = [*(Arrival(0, str(n), 59, 30000) for n in range(4)), Arrival(0, "4", 1, 26176)]
SHORT_2_0_1 = [
    *(Arrival(0, "0", 26031, 210), Arrival(53, "1", 26083, 158), Arrival(155, "2", 26135, 106)),
    *(Arrival(259, "3", 26187, 54), Arrival(363, "4", 26177, 2)),
]
SHORT_2_1_0 = [
    *(Arrival(0, "0", 25967, 249), Arrival(53, "1", 26019, 197), Arrival(156, "2", 26071, 145)),
    *(Arrival(258, "3", 26123, 93), Arrival(362, "4", 26113, 41)),
]
LITERAL = [*(Arrival(0, str(n), 100, 2000) for n in range(31)), Arrival(0, "31", 32000, 500)]


@pytest.mark.parametrize(
    ("formula", "arrivals", "first_over", "stated"),
    [
        *((name, LONG, (26122, 131200), 131200) for name in ("2.0.1", "2.1.0", *READINGS)),
        ("2.0.1", SHORT_2_0_1, (466, 131200), 131200),
        ("document_realigned", SHORT_2_0_1, (466, 131200), 131200),
        ("document_max_tkv", SHORT_2_0_1, (466, 131200), 131200),
        ("2.1.0", SHORT_2_1_0, (502, 131075), 131075),
        # 32 x 32512: the short requests fill the last block of the long one.
        ("document_own_tkv", LITERAL, (1368, 1024992), 1040384),
        ("1.10.0", SHORT_2_0_1, (466, 131200), 131200),
        ("1.10.0", SHORT_2_1_0, (502, 131075), 131075),
    ],
)
def test_counterexamples_at_production_scale(formula, arrivals, first_over, stated, start_revision):
    """Block 64, chunk 512, limit 131072, from an empty system, no request stops early. Steps from
    0."""
    target = start_revision(replace(RELEASE_2_1_2, volume_check=ByFormula(FORMULAS[formula])))
    over = [volume for volume in volumes_of(target, arrivals) if volume[1] > 131072]
    assert over[0] == first_over
    assert stated in {volume for _, volume in over}


@pytest.mark.parametrize(
    ("formula", "limit", "arrivals", "volume"),
    [
        ("2.1.0", 8, [Arrival(0, "0", 1, 5), Arrival(3, "1", 2, 3)], 12),
        ("2.0.1", 6, [Arrival(0, "0", 1, 4), Arrival(3, "1", 2, 2)], 8),
        ("document_own_tkv", 5, [Arrival(0, "0", 1, 3), Arrival(0, "1", 1, 2)], 8),
        ("document_max_tkv", 5, [Arrival(0, "0", 1, 3), Arrival(0, "1", 1, 2)], 8),
        ("document_realigned", 6, [Arrival(0, "0", 2, 3), Arrival(0, "1", 2, 2)], 8),
        ("1.10.0", 6, [Arrival(0, "0", 1, 3), Arrival(0, "1", 1, 2)], 8),
    ],
)
def test_smallest_counterexamples(formula, limit, arrivals, volume, start_revision):
    """Block 2, chunk 2."""
    config = {"block_size": 2, "chunk_size": 2, "max_model_len": 8, "max_batch_tkv": limit}
    revision = replace(RELEASE_2_1_2, volume_check=ByFormula(FORMULAS[formula]))
    target = start_revision(revision, **config)
    assert max(volume for _, volume in volumes_of(target, arrivals, block=2)) == volume > limit


@pytest.mark.parametrize("arrivals", [SHORT_2_0_1, SHORT_2_1_0])
@pytest.mark.parametrize("formula", SOUND)
def test_sound_formulas_keep_the_limit_where_others_do_not(formula, arrivals, start_revision):
    target = start_revision(replace(RELEASE_2_1_2, volume_check=ByFormula(FORMULAS[formula])))
    assert all(volume <= 131072 for _, volume in volumes_of(target, arrivals))


@pytest.mark.parametrize("formula", ["2.0.1", "common_base"])
def test_the_rest_of_a_run_is_what_the_scheduler_does(formula, start_revision):
    """A guard of `volumes_of`: the same run, played to its end."""
    revision = replace(RELEASE_2_1_2, volume_check=ByFormula(FORMULAS[formula]))
    steps = enumerate(play(start_revision(revision), SHORT_2_0_1))
    played = [
        (number, len(seen["scheduled"]) * seen["tkv"])
        for number, seen in steps
        if seen["kind"] == "decode"
    ]
    assert volumes_of(start_revision(revision), SHORT_2_0_1) == played


def volumes_of(target, arrivals, block=64):
    """Each decode step of a run with its batch x tkv.

    Once every request has joined nothing is left to decide, and 26 000 steps follow from the
    dynamics.
    """
    volumes: list[tuple[int, int]] = []
    arrived = 0
    for number, seen in enumerate(play(target, arrivals)):
        arrived += sum(arrival.step == number for arrival in arrivals)
        if seen["kind"] == "decode":
            volumes.append((number, len(seen["scheduled"]) * seen["tkv"]))
        if arrived == len(arrivals) and not seen["waiting"] and not seen["prefilling"]:
            break
    ends = {arrival.id: arrival.prompt + arrival.max_tokens - 1 for arrival in arrivals}
    members = [(tokens, ends[name]) for name, tokens in seen["computed"].items()]
    while members := [(tokens + 1, end) for tokens, end in members if tokens < end]:
        number += 1
        tkv = max_tkv([tokens for tokens, _ in members], block)
        volumes.append((number, len(members) * tkv))
    return volumes


def test_round_up():
    assert [volumetric.round_up(tokens, 4) for tokens in (0, 1, 4, 5)] == [0, 4, 4, 8]


@given(st.integers(2, 64), st.integers(0, 5), st.integers(0, 5), st.data())
def test_realigned_is_the_true_tkv_of_a_member_that_does_not_end_on_a_border(
    block, own, wider, data
):
    length = own * block + data.draw(st.integers(1, block - 1))
    width = own + wider
    widest = width * block + data.draw(st.integers(1, block))
    assert (
        volumetric.realigned(length, width, block)
        == documented.request_tkvs([length, widest], block)[0]
    )


@pytest.mark.parametrize(("tokens", "position"), [(63, 191), (64, 128), (65, 129), (128, 128)])
def test_realigned_places_a_member_on_a_border_in_the_block_as_if_it_had_no_token_there(
    tokens, position
):
    """The releases' border case: `realigned` gives 128 where the tkv is 192."""
    assert volumetric.realigned(tokens, 2, 64) == position
