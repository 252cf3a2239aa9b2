"""Schedulers that do too little: short runs in which a rule says so."""

from importlib import import_module
from pathlib import Path

import pytest

from schedproof.model.observation import Step
from schedproof.model.systems import full_config
from schedproof.properties.history.request_history import RequestHistory
from schedproof.properties.history.run_history import RunHistory
from schedproof.properties.spyre.predicates import admission, decode
from schedproof.tests.mutants.faults import mutants_of
from schedproof.tests.mutants.planting import imported_anew, planted
from schedproof.tests.properties.build import known

HERE = Path(__file__).parent / "too_little"


def broken(system, rule, file, does=""):
    """The rules that the run breaks with the fault of this rule planted, and without any."""
    faults = (fault for fault in mutants_of(system) if fault.rule == rule and not fault.bug)
    fault = next(fault for fault in faults if does in fault.does)
    with planted(fault) as target:
        with_it = _broken(target, fault, file)
    with imported_anew({}):
        target = import_module("schedproof.model.target").ModelTarget()
        return with_it, _broken(target, fault, file)


def _broken(target, fault, file):
    engines = import_module("schedproof.tests.mutants.engines")
    read = import_module("schedproof.gate.files.scenario_file").read_scenario
    run = engines.replace(read(HERE / file), revision=fault.revision)
    rules = [rule for rule in engines.checked(fault.system) if rule.id != "ALL-R07"]
    return {broken.rule for broken in engines.replay(target, run, rules).broken}


@pytest.mark.parametrize(
    ("system", "rule", "file"),
    [
        ("spyre", "SPY-R63", "drop_hash_on_free.json"),
        ("vllm", "V1CP-R36", "v_forget.json"),
        ("vllm", "V1CP-R36", "v_forget_ahead.json"),
        ("vllm", "V1CP-R36", "v_forget_drafts.json"),
        ("vllm", "V1CP-R36", "v_forget_eagle.json"),
        ("vllm", "V1CP-R36", "v_forget_connector.json"),
        ("vllm", "V1CP-R36", "v_forget_encoder.json"),
        ("vllm", "V1CP-R40", "v_evict_ahead.json"),
        ("vllm", "V1CP-R40", "v_evict_pipeline.json"),
        ("vllm", "V1CP-R40", "v_evict_connector.json"),
        ("vllm", "V1CP-R40", "v_evict_sessions.json"),
        ("nano_vllm", "NAN-R48", "nano_forget.json"),
        ("llmservingsim", "LSS-R35", "l_forget.json"),
    ],
)
def test_a_scheduler_that_does_too_little_is_named(system, rule, file):
    assert broken(system, rule, file) == ({rule}, set())


def test_windows_that_are_forgotten_with_decisions_ahead_are_named():
    does = "the blocks of windows are forgotten"
    found = broken("vllm", "V1-R93", "v_groups_forget_ahead.json", does)
    # What is forgotten is evicted first.
    assert found == ({"V1-R90", "V1-R93"}, set())


def test_last_chunk_constraints_at_the_first_chunk_are_named_with_a_cache():
    does = "with a prefix cache the last-chunk constraints hold"
    found = broken("spyre", "SPY-R42", "last_rules_at_first_if_cache.json", does)
    assert found == ({"SPY-R42"}, set())


def test_what_was_computed_in_the_last_step_of_a_request_must_be_found_too():
    does = "does not find what a request computed in the step in which it ended"
    assert broken("spyre", "SPY-R63", "forget_at_end.json", does) == ({"SPY-R63"}, set())


@pytest.mark.parametrize(("system", "rule"), [("vllm", "V1CP-R36"), ("generic", "GEN-R11")])
def test_a_block_taken_in_the_last_step_leaves_the_others_to_be_found(system, rule):
    does, file = "a request that takes a block in its last step", f"{system[0]}_block_at_end.json"
    assert broken(system, rule, file, does) == ({rule}, set())


def test_a_preempted_request_finds_what_it_held_although_others_may_have_gone_first():
    found = broken("generic", "GEN-R11", "g_comes_back.json", "a preempted request does not look")
    assert found == ({"GEN-R11"}, set())


def test_what_a_running_request_holds_must_be_found_while_its_next_token_is_in_flight():
    found = broken("vllm", "V1-R08", "v_share_ahead.json", "with decisions ahead")
    assert found == ({"V1-R08", "V1CP-R36"}, set())


def test_what_a_running_request_holds_in_every_group_must_be_found_with_a_token_in_flight_too():
    found = broken("vllm", "V1-R08", "v_groups_ahead.json", "with decisions ahead")
    assert found == ({"V1-R96", "V1-R93"}, set())


def test_with_decisions_ahead_too_a_request_with_an_invalid_grammar_must_end():
    with_it, without = broken("vllm", "V1-R43", "v_grammar_ahead.json", "waits for ever")
    assert "V1-R43" in with_it
    assert not without


@pytest.mark.parametrize(
    ("system", "rule", "file"),
    [
        ("nano_vllm", "NAN-R48", "nano_output.json"),
        ("vllm", "V1CP-R36", "v_output.json"),
        ("vllm", "V1CP-R36", "v_output_ahead.json"),
        ("vllm", "V1CP-R36", "v_output_pipeline.json"),
        ("vllm", "V1CP-R36", "v_output_drafts.json"),
        ("vllm", "V1CP-R36", "v_output_drafts_ahead.json"),
    ],
)
def test_generated_tokens_must_be_found_too(system, rule, file):
    assert broken(system, rule, file, "does not cache generated tokens") == ({rule}, set())


def test_a_request_must_be_admitted_although_another_was_aborted_before_the_step():
    does = "admits nothing in a step before which a sequence was aborted"
    assert broken("nano_vllm", "NAN-R10", "nano_abort.json", does) == ({"NAN-R10"}, set())


def test_generated_tokens_must_be_found_in_every_group():
    found = broken("vllm", "V1-R93", "v_groups_output.json", "generated tokens are not cached")
    assert found == ({"V1-R93"}, set())


def test_in_spyre_generated_tokens_must_be_found_although_their_request_has_ended():
    does = "does not find generated tokens once their request has ended"
    assert broken("spyre", "SPY-R63", "spyre_output.json", does) == ({"SPY-R63"}, set())


def test_a_clock_that_jumps_beyond_the_first_session_that_is_due_is_named():
    assert broken("llmservingsim", "LSS-R37", "l_clock.json") == ({"LSS-R37"}, set())


def test_a_needless_wait_in_a_step_in_which_a_request_ends_is_named():
    does = "no request joins in a step in which another one ends"
    assert broken("vllm", "V1-R07", "v_wait_at_end.json", does) == ({"V1-R07"}, set())


@pytest.mark.parametrize("does", ["no request starts in a step", "at HEAD, no request is admitted"])
def test_in_llmservingsim_too_a_needless_wait_in_such_a_step_is_named(does):
    assert broken("llmservingsim", "LSS-P03", "l_wait_at_end.json", does) == ({"LSS-P03"}, set())


def test_an_encoder_without_inputs_does_not_excuse_a_wrong_order_after_a_reset():
    does = "a reset puts the requests that ran in front in the opposite order"
    assert broken("vllm", "V1-R37", "v_reset_encoder.json", does) == ({"V1-R37", "V1-R01"}, set())


def test_blocks_that_a_parked_request_lacks_are_asked_for_although_others_join():
    does = "a load leaves blocks for one parked request only"
    assert broken("vllm", "V1-R21", "v_promises.json", does) == ({"V1-R21"}, set())


def test_an_encoder_output_is_kept_while_there_is_room():
    assert broken("vllm", "V1-R94", "v_outputs.json") == ({"V1-R94"}, set())


def test_a_block_held_ahead_of_need_is_named():
    found = broken("spyre", "SPY-R02", "extra_block.json", "holds a block before it is needed")
    assert found == ({"SPY-R02"}, set())


@pytest.mark.parametrize("file", ["budget_not_given_back.json", "share_of_a_victim.json"])
def test_a_share_of_the_budget_that_does_not_come_back_is_named(file):
    found = broken("vllm", "V1-R04", file, "the share of a preempted")
    assert found == ({"V1-R04"}, set())


@pytest.mark.parametrize(("interleave", "broken"), [(False, False), (True, True)])
def test_only_without_interleaving_may_the_volume_delay_the_first_of_several_chunks(
    interleave, broken
):
    """Release 2.1.2 and later: all constraints hold before the first chunk, which is the only one
    that is checked."""
    values = {"chunk_size": 128, "max_num_seqs": 4, "max_model_len": 512, "max_batch_tkv": 1534}
    config = full_config("spyre", "2.5.2", {**values, "pausing": False, "interleave": interleave})
    accounts = [RequestHistory(name, 1, 2, 2, computed=1, emitted=1) for name in "abc"]
    late = RequestHistory("d", 257, 1, 1, content=(("d", 257),))
    history = RunHistory(config, "2.5.2", "spyre", **known((*accounts, late)))
    assert (
        admission.needlessly_refused(history, Step(kind="decode", scheduled={"a": 1})) is not None
    ) is broken


@pytest.mark.parametrize(
    ("values", "decoding", "late", "refusable"),
    [
        # With two blocks of padding, a fills 16 positions; its last token would be in the 17th.
        ({"max_model_len": 16}, (1, 12, 3), (6, 3), True),
        ({"max_model_len": 17}, (1, 12, 3), (6, 3), False),
        # 4 + 3 blocks for the tokens that are computed, 4 + 4 with the last ones.
        ({"max_model_len": 64, "num_blocks": 7}, (1, 7, 3), (3, 4), True),
        ({"max_model_len": 64, "num_blocks": 8}, (1, 7, 3), (3, 4), False),
    ],
)
def test_a_scheduler_may_count_the_last_token_which_is_never_computed(
    values, decoding, late, refusable
):
    values = {"block_size": 2, "chunk_size": 8, "max_num_seqs": 3, "max_batch_tkv": 640, **values}
    prompt, tokens, computed = decoding
    accounts = [
        RequestHistory("a", prompt, tokens, tokens, computed=computed, emitted=computed),
        RequestHistory("b", *late, late[1]),
    ]
    config = full_config("spyre", "sound", values)
    history = RunHistory(config, "sound", "spyre", **known(accounts))
    accused = admission.needlessly_refused(history, Step(kind="decode", scheduled={"a": 1}))
    assert (accused is None) is refusable


@pytest.mark.parametrize(("blocks", "breaks"), [(2, False), (3, True)])
def test_release_2_1_2_holds_no_block_beyond_the_prompt_and_the_next_token_either(blocks, breaks):
    values = {"block_size": 4, "chunk_size": 8, "max_num_seqs": 2, "max_model_len": 64}
    config = full_config("spyre", "2.1.2", {**values, "max_batch_tkv": 256})
    account = RequestHistory("a", 6, 4, 4, content=(("a", 6),))
    history = RunHistory(config, "2.1.2", "spyre", **known((account,)))
    held = tuple(range(1, blocks + 1))
    step = Step(kind="prefill", scheduled={"a": 6}, prefix_hit={"a": 0}, blocks={"a": held})
    assert (decode.wrong_blocks(history, step) is not None) is breaks
