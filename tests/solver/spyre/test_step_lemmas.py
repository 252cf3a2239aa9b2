"""A fault anywhere in the scheduler's step that lets a batch overrun the limit makes a lemma fail.

Each fault is planted in the code that the model runs. Of the lemmas that `--prove` lists only those
are tried that the fault should break.
"""

import inspect
import textwrap
from dataclasses import replace

import pytest

from schedproof.model.pool import free_blocks
from schedproof.model.scenario import Request
from schedproof.model.spyre import documented, forward, peak, release_2_5_2, scheduler, volumetric
from schedproof.model.spyre import model as model_of
from schedproof.model.spyre.model import REVISIONS
from schedproof.model.systems import make_model
from schedproof.solver.smt.obligation import discharge
from schedproof.solver.spyre import step_lemmas, symbolic_state
from schedproof.solver.spyre.admission_sequences import ADMITS_BY, Setting
from schedproof.solver.spyre.proofs_by_rule import JOIN, LIMIT, limit_lemmas, proven_for
from schedproof.solver.spyre.step_lemmas import obligations
from schedproof.solver.spyre.symbolic_state import StepConfiguration


def statuses(revision, *names, rule=JOIN, formula=None, interleave=True, block=64):
    setting = Setting(
        *(formula or ADMITS_BY[revision], 0, block, 8 * block),
        revision=revision,
        interleave=interleave,
    )
    lemmas = {
        lemma.name: lemma for group in limit_lemmas(rule, setting, block) for lemma in group.lemmas
    }
    return [found.status for found in discharge([lemmas[name] for name in names])]


def refuted(revision, name, **setting):
    return statuses(revision, name, **setting) == ["refuted"]


def plant(monkeypatch, revision, **functions):
    monkeypatch.setitem(REVISIONS, revision, replace(REVISIONS[revision], **functions))


def rewrite(monkeypatch, module, name, line, instead):
    """Plant a change of text, so that the function still runs by the names of its module."""
    source = textwrap.dedent(inspect.getsource(getattr(module, name)))
    assert source.count(line) == 1
    monkeypatch.setattr(module, name, getattr(module, name))
    exec(source.replace(line, instead), vars(module))


def skips_check(monkeypatch, condition):
    """Skip every constraint on a request that joins where a condition holds."""
    line = "    if revision.is_empty(state):"
    rewrite(monkeypatch, documented, "may_prefill", line, f"{line[:-1]} or {condition}:")


SKIPPED = [
    ("len(state.decoding) == 3", 3),
    ("len(state.waiting) >= 4", 1),
    ("config.num_blocks is not None", 1),
    ("config.pausing", 1),
]
SLOWLY = [
    ("len(state.decoding) == 4", 4),
    ("len(state.decoding) == 17", 5),
    ("len(state.running) > 40", 5),
    ("len(state.waiting) == 1", 1),
    ("not state.waiting[1:]", 1),
    ("config.num_blocks is None", 1),
    ("config.num_blocks == 100", 1),
    ("not config.prefix_caching", 1),
]


@pytest.mark.parametrize(
    ("condition", "size"),
    [*SKIPPED, *(pytest.param(*plan, marks=pytest.mark.slow) for plan in SLOWLY)],
)
def test_a_check_that_is_skipped_under_a_condition_is_refuted(monkeypatch, condition, size):
    skips_check(monkeypatch, condition)
    assert refuted("sound", f"joining_request_was_accepted_{size}")


@pytest.mark.parametrize(("count", "name"), [(3, "3"), (4, "4"), (5, "5"), (17, "any")])
def test_a_walk_that_counts_short_beside_one_number_of_members_is_refuted(monkeypatch, count, name):
    line = "to_come = len(projection.decoding) + 1"
    instead = f"{line} - (len(projection.decoding) == {count})"
    rewrite(monkeypatch, volumetric, "accepts", line, instead)
    assert refuted("sound", f"walk_counts_every_request_{name}")


@pytest.mark.parametrize(("count", "size"), [(3, 3), (17, 5)])
def test_a_formula_that_forgets_a_member_of_one_number_is_refuted(monkeypatch, count, size):
    source = textwrap.dedent(inspect.getsource(volumetric.Formula.__call__))
    line, names = "    prompt, max_tokens = newcomer\n", {}
    assert line in source
    forgets = f"    decoding = decoding[1:] if len(decoding) == {count} else decoding\n"
    exec(source.replace(line, forgets + line), vars(volumetric), names)
    monkeypatch.setattr(volumetric.Formula, "__call__", names["__call__"])
    assert refuted("sound", f"formula_projects_every_member_{size}")


def test_a_formula_that_forgets_the_terms_of_one_number_is_refuted(monkeypatch):
    source = textwrap.dedent(inspect.getsource(volumetric.Formula.__call__))
    line, names = "    if self.slack:", {}
    forgets = "    if len(ends) == 17:\n        ends = [0 for _ in ends]\n"
    exec(source.replace(line, forgets + line), vars(volumetric), names)
    monkeypatch.setattr(volumetric.Formula, "__call__", names["__call__"])
    assert refuted("sound", "formula_projects_every_member_5")


def test_an_ongoing_prefill_that_goes_unasked_is_refuted(monkeypatch):
    whole = documented.candidate
    unasked = lambda config, revision, state: state.prefilling or whole(config, revision, state)  # noqa: E731
    plant(monkeypatch, "sound", candidate=unasked)
    assert refuted("sound", "joining_request_was_accepted_1")


@pytest.mark.slow
def test_an_admission_that_forgets_members_is_refuted(monkeypatch):
    whole = documented.fits_volume

    def first_only(config, revision, current, decoding, newcomer):
        return whole(config, revision, current, decoding[:1], newcomer)

    monkeypatch.setattr(documented, "fits_volume", first_only)
    assert refuted("sound", "joining_request_was_accepted_2")


def test_an_admission_that_leaves_the_newcomer_out_is_refuted(monkeypatch):
    whole = documented.fits_volume

    def no_newcomer(config, revision, current, decoding, newcomer):
        return whole(config, revision, current, decoding, newcomer._replace(max_tokens=1))

    monkeypatch.setattr(documented, "fits_volume", no_newcomer)
    assert refuted("sound", "joining_request_was_accepted_1")


def test_a_walk_that_leaves_the_newcomer_out_is_refuted(monkeypatch):
    whole = volumetric.accepts

    def no_newcomer(projection, limit):
        return whole(projection._replace(newcomer=0), limit)

    monkeypatch.setattr(volumetric, "accepts", no_newcomer)
    assert refuted("sound", "walk_counts_every_request_1")


@pytest.mark.slow
def test_a_decode_that_reports_the_first_member_s_tkv_is_refuted(monkeypatch):
    whole = forward.compute_decode

    def first(config, state):
        after, computed = whole(config, state)
        tkv = after.running[0].computed
        return after._replace(tkv=tkv, runner_tkv=tkv), computed._replace(tkv=tkv)

    monkeypatch.setattr(forward, "compute_decode", first)
    assert refuted("2.1.2", "remembered_tkv_covers_every_member_2")


def test_an_abort_that_forgets_the_tkv_is_refuted(monkeypatch):
    whole = scheduler.abort

    def forgets(*given, **options):
        return whole(*given, **options)._replace(tkv=0)

    monkeypatch.setattr(scheduler, "abort", forgets)
    assert refuted("2.1.2", "abort_only_removes_5")


@pytest.mark.slow
def test_a_last_chunk_that_ignores_the_prefix_hit_is_refuted(monkeypatch):
    computed = lambda config, state, request: request.computed  # noqa: E731
    monkeypatch.setattr(documented, "computed_or_hit", computed)
    assert refuted("sound", "joining_request_was_accepted_1")


@pytest.mark.slow
def test_a_decision_that_ignores_who_is_paused_is_refuted(monkeypatch):
    def ignores(config, revision, state):
        release_2_5_2.pause_and_resume(config, state)
        return documented.decide(config, revision, state)

    plant(monkeypatch, "2.5.2", decide=ignores)
    assert refuted("2.5.2", "decoding_requests_were_kept_1_0", rule=LIMIT)


@pytest.mark.slow
def test_a_fault_for_one_size_of_block_is_refuted_there(monkeypatch):
    whole = documented.fits_volume

    def accepts_16(config, revision, current, decoding, newcomer):
        asked = (config, revision, current, decoding, newcomer)
        return config.block_size == 16 or whole(*asked)

    monkeypatch.setattr(documented, "fits_volume", accepts_16)
    assert refuted("sound", "joining_request_was_accepted_1", block=16)
    assert statuses("sound", "joining_request_was_accepted_1") == ["proven"]


@pytest.mark.slow
def test_a_fault_from_five_members_on_is_refuted(monkeypatch):
    whole = documented.fits_volume

    def accepts_five(config, revision, current, decoding, newcomer):
        asked = (config, revision, current, decoding, newcomer)
        return len(decoding) >= 5 or whole(*asked)

    monkeypatch.setattr(documented, "fits_volume", accepts_five)
    assert refuted("sound", "joining_request_was_accepted_5")


def test_a_third_request_that_stays_after_its_last_token_is_refuted(monkeypatch):
    line = "for request in leaving:"
    rewrite(monkeypatch, scheduler, "complete", line, "for request in leaving[:2]:")
    assert refuted("sound", "decoding_requests_run_together_3")


# What the state of a step may say besides the lengths of its requests.
@pytest.mark.parametrize(
    "condition",
    [
        "state.aborted",
        pytest.param("state.lost_blocks > 3", marks=pytest.mark.slow),
        pytest.param("free_blocks(state.pool) == 0", marks=pytest.mark.slow),
        pytest.param("request.paused_steps", marks=pytest.mark.slow),
        pytest.param(
            "state.decoding and len(state.decoding[0].blocks) > 3", marks=pytest.mark.slow
        ),
    ],
)
def test_a_check_that_is_skipped_in_a_state_is_refuted(monkeypatch, condition):
    monkeypatch.setattr(documented, "free_blocks", free_blocks, raising=False)
    skips_check(monkeypatch, condition)
    assert refuted("sound", "joining_request_was_accepted_1")


def test_a_request_that_remembers_an_earlier_answer_ends_the_proof(monkeypatch):
    monkeypatch.setitem(symbolic_state.KNOWN, symbolic_state.Request, ("id",))
    assert statuses("sound", "joining_request_was_accepted_0") == ["unknown"]


def test_members_that_are_told_apart_by_their_content_end_the_proof(monkeypatch):
    line = "    joining = volumetric.Newcomer("
    once = "    assert not decoding or {request.content for request in decoding}\n"
    rewrite(monkeypatch, documented, "fits_volume", line, once + line)
    assert statuses("sound", "joining_request_was_accepted_2") == ["unknown"]


def test_members_that_are_told_apart_by_their_ids_end_the_proof(monkeypatch):
    """Of two ids that differ only in case, the check would see one."""
    line = "    tkvs = request_tkvs([request.computed for request in decoding], config.block_size)"
    merged = "    decoding = [*{request.id.casefold(): request for request in decoding}.values()]"
    rewrite(monkeypatch, documented, "fits_volume", line, f"{merged}\n{line}")
    assert statuses("sound", "joining_request_was_accepted_1") == ["unknown"]


def test_a_tkv_that_is_kept_between_steps_ends_the_proof(monkeypatch):
    known, of = {}, documented.batch_tkv

    def remembered(config, running):
        names = tuple([request.id for request in running])
        return known.setdefault(names, of(config, running))

    monkeypatch.setattr(documented, "known", known, raising=False)
    monkeypatch.setattr(documented, "batch_tkv", remembered)
    assert statuses("sound", "joining_request_was_accepted_1") == ["unknown"]


def test_a_model_that_is_not_the_revision_of_its_name_is_refuted(monkeypatch):
    def make_model_of_another(revision, config):
        read = model_of.read_config(config, revision)
        chosen = "documented" if read.prefix_caching else revision
        return model_of.SpyreModel(read, REVISIONS[chosen])

    monkeypatch.setattr(step_lemmas, "make_model", make_model_of_another)
    assert refuted("sound", "model_decides_by_its_revision")


@pytest.mark.slow
def test_two_aborts_in_one_step_that_cost_another_request_a_token_are_refuted(monkeypatch):
    line = "    state, emitted, finished = complete("
    forgets = "    if [*abort_inside][1:]:\n        computed = replace(computed, scheduled={})\n"
    rewrite(monkeypatch, scheduler, "step", line, forgets + line)
    assert refuted("sound", "decoding_requests_run_together_2")


@pytest.mark.slow
def test_an_early_end_beside_two_others_that_forgets_the_tkv_is_refuted(monkeypatch):
    line = "    return state, emitted, finished"
    forgets = "    if 'eos' in finished.values() and len(state.running) > 1:\n"
    forgets += "        state = replace(state, tkv=0)\n"
    rewrite(monkeypatch, scheduler, "complete", line, forgets + line)
    assert refuted("2.1.2", "remembered_tkv_covers_every_member_3")


def test_a_fault_for_chunks_of_one_block_is_refuted(monkeypatch):
    skips_check(monkeypatch, "config.chunk_size == config.block_size")
    assert refuted("sound", "joining_request_was_accepted_1_in_chunks_of_64")


def test_a_seventh_member_that_is_left_out_is_refuted(monkeypatch):
    line = "    joining = volumetric.Newcomer("
    forgets = "    members = members[:6] + members[7:]\n"
    rewrite(monkeypatch, documented, "fits_volume", line, forgets + line)
    assert refuted("sound", "joining_request_was_accepted_32")


# Lists of what was computed for each request count as many as the requests do.
@pytest.mark.parametrize(
    ("module", "name", "line", "forgets", "lemma"),
    [
        (
            *(documented, "max_tkv", "    filled = max("),
            *("    if len(lengths) == 17:\n        return 0\n", "no_length_exceeds_its_tkv_5"),
        ),
        pytest.param(
            *(documented, "fits_volume", "    joining = volumetric.Newcomer("),
            *(
                "    if len(members) == 17:\n        return True\n",
                "joining_request_was_accepted_5",
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(forward, "compute_decode", "    running = (*grown, *prefilling)"),
            "    if len(grown) == 17:\n        grown = [*state.running]\n",
            "decoding_requests_run_together_5",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_fault_for_lists_of_one_length_is_refuted(
    monkeypatch, module, name, line, forgets, lemma
):
    rewrite(monkeypatch, module, name, line, forgets + line)
    assert refuted("sound", lemma)


def test_a_tkv_of_a_batch_that_leaves_the_eleventh_out_is_refuted(monkeypatch):
    line, instead = "max(lengths)", "max([*lengths[:10], *lengths[11:]])"
    rewrite(monkeypatch, documented, "max_tkv", line, instead)
    assert refuted("sound", "no_length_exceeds_its_tkv_32_from_11")


def test_a_seventh_turn_of_a_decode_step_that_is_left_out_is_refuted(monkeypatch):
    line = "if request.computed < request.prompt:"
    instead = line[:-1] + " or len(grown) == 6:"
    rewrite(monkeypatch, forward, "compute_decode", line, instead)
    assert refuted("sound", "decoding_requests_run_together_32")


def test_a_walk_that_ends_after_six_turns_is_refuted(monkeypatch):
    line = "        to_come -= 1\n"
    ends = "        if len(projection.decoding) - to_come == 5:\n            return True\n"
    rewrite(monkeypatch, volumetric, "accepts", line, line + ends)
    assert refuted("sound", "walk_counts_every_request_32")


def test_an_exact_check_that_accepts_all_beside_a_member_is_refuted(monkeypatch):
    whole = peak.accepts_exactly
    accepts = lambda decoding, *given: bool(decoding) or whole(decoding, *given)  # noqa: E731
    monkeypatch.setitem(peak.CHECKS, "exact", accepts)
    assert refuted("sound", "check_compares_each_end_1", formula="exact")


@pytest.mark.slow
def test_an_idle_step_beside_a_full_pool_forgets_the_tkv_without_interleaving():
    def status(*, interleave):
        configuration = StepConfiguration(REVISIONS["2.1.2"], interleave, bounded=True)
        name = "remembered_tkv_covers_every_member_1"
        [lemma] = [lemma for lemma in obligations(configuration, (1,)) if lemma.name == name]
        return next(discharge([lemma])).status

    assert status(interleave=False) == "refuted"
    assert status(interleave=True) == "proven"


@pytest.mark.slow
def test_a_refusal_in_front_of_the_formula_lets_nothing_join(monkeypatch):
    whole = documented.fits_volume

    def refuses_early(config, revision, current, decoding, newcomer):
        if newcomer.prompt > 4096 or (decoding and decoding[0].remaining > 20_000):
            return False
        return whole(config, revision, current, decoding, newcomer)

    monkeypatch.setattr(documented, "fits_volume", refuses_early)
    assert statuses("sound", "joining_request_was_accepted_1") == ["proven"]


@pytest.mark.slow
def test_the_check_may_get_the_members_in_any_order(monkeypatch):
    line = "    joining = volumetric.Newcomer("
    rewrite(monkeypatch, documented, "fits_volume", line, f"    members = members[::-1]\n{line}")
    assert statuses("sound", "joining_request_was_accepted_2") == ["proven"]


def test_that_tkv_lets_a_batch_overrun_the_limit():
    """`b` finds no room, so that the tkv is forgotten; once it is aborted, `c` is asked by none."""
    config = {"block_size": 2, "chunk_size": 2, "max_num_seqs": 4, "max_model_len": 60}
    config |= {"max_batch_tkv": 60, "interleave": False, "num_blocks": 22}
    model = make_model("spyre", "2.1.2", config)

    def arrives(state, name, prompt, tokens):
        request = Request(id=name, arrival=0, prompt=((name, prompt),), max_tokens=tokens)
        return model.arrive(state, request)

    state, volumes = arrives(model.initial(), "a", 21, 12), []
    for number in range(28):
        if number == 12:
            state = arrives(arrives(state, "b", 24, 1), "c", 1, 12)
        if number == 15:
            state = model.abort(state, "b")
        state, seen = model.step(state)
        if seen["kind"] == "decode":
            volumes.append(len(seen["scheduled"]) * seen["tkv"])
    assert max(volumes) == 64


@pytest.mark.parametrize(("interleave", "assumed"), [(True, False), (False, True)])
def test_without_interleaving_the_answer_assumes_room_for_every_prompt(interleave, assumed):
    setting = Setting("2.1.2", 0, revision="2.1.2", interleave=interleave)
    assert ("if the pool has room for every prompt" in proven_for(JOIN, setting, 64)) == assumed
