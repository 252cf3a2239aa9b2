"""Spin and the Python model: the same steps, the same states, the same verdicts."""

import random
import re
from dataclasses import replace
from itertools import combinations

import pytest

from schedproof.model.scenario import Request
from schedproof.model.spyre import release_2_1_2
from schedproof.model.spyre.model import admitting_by, make_model
from schedproof.tools.benchmarks import spin as run
from schedproof.tools.benchmarks.spin import (
    MISSING,
    REVISIONS,
    SIZES,
    SMALL,
    difference,
    read_run,
    read_search,
    replay_trail,
    scenario_of,
    simulate,
    verdict,
)

needs_spin = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {' and '.join(MISSING)}")

# Fewer prompts and tokens than SMALL, which Python visits in a second.
FEW = {**SMALL, "MAX_PROMPT": 4, "MAX_TOKENS": 3, "REQUESTS": 3, "LIMIT": 15}
# Stale, admitting by another formula than the release; not stale, by the release's.
CROSSED: list[dict[str, int]] = [
    {"FORMULA_COMMON_BASE": 1},
    {"FORMULA_2_1_2": 1},
    {"FORMULA_DOCUMENT_REALIGNED": 1, "STALE_TKV": 1},
]
# The end of what pan prints when it has visited everything.
COMPLETE = """
Full statespace search for:
	never claim         	- (none specified)
	assertion violations	+
	cycle checks       	- (disabled by -DSAFETY)
	invalid end states	+

State-vector 36 byte, depth reached 161, errors: 0
 43259722 states, stored
 72130384 states, matched
1.1539001e+08 transitions (= stored+matched)
3.9144271e+08 atomic steps

 2493.220	total actual memory usage

pan: elapsed time 79.7 seconds
"""


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch):
    """These searches are over before gcc has optimised anything."""
    monkeypatch.setattr(run, "PAN", ("-O0", *run.PAN[1:]))


def test_the_promela_model_reads_every_macro_that_it_may_be_given():
    """Without Spin, too: a name that the model does not know is an error only where Spin is."""
    header, _, code = run.MODEL.read_text(encoding="utf-8").partition("*/")
    known = {*SIZES, *run.OTHERS, *run.RULES, *run.FORMULAS}
    assert known - set(re.findall(r"\w+", header)) == set()
    assert known - set(re.findall(r"\w+", code)) == set()


def crowded(seed):
    """Any of the revisions or a cross of them, small and mostly with a limit that binds."""
    chance = random.Random(seed)
    block, longest = chance.randint(1, 3), chance.randint(12, 24)
    macros = {
        **chance.choice([*REVISIONS.values(), *CROSSED]),
        "BLOCK": block,
        "CHUNK": block * chance.randint(1, 4),
        "SLOTS": chance.randint(2, 4),
        "MAX_MODEL_LEN": longest,
        "LIMIT": chance.randint(longest, 3 * longest),
        "REQUESTS": chance.randint(4, 6),
        "MAX_PROMPT": chance.randint(2, 11),
        "MAX_TOKENS": chance.randint(4, 12),
    }
    switches = {"ABORTS": 0.3, "NO_EOS": 0.5, "LATE": 0.3}
    return macros | {name: 1 for name, often in switches.items() if chance.random() < often}


@pytest.mark.slow
@needs_spin
@pytest.mark.parametrize("group", range(4))
def test_both_models_take_the_same_steps_in_random_runs(group):
    padded = 0
    for seed in range(1 + 50 * group, 51 + 50 * group):
        macros = crowded(seed)
        ran = read_run(simulate(macros, seed))
        assert difference(ran, macros) is None, (seed, scenario_of(ran, macros))
        padded += sum(
            step.kind == "decode" and any(step.left_pad_blocks.values()) for step in ran.steps
        )
    assert padded > 20


@needs_spin
def test_runs_of_another_formula_are_told_apart():
    macros = {**FEW, **REVISIONS["documented"], "REQUESTS": 5, "NO_EOS": 1, "MAX_TOKENS": 6}
    other = {**macros, **REVISIONS["2.1.2"]}
    del other["FORMULA_DOCUMENT_REALIGNED"]
    runs = [read_run(simulate(macros, seed)) for seed in range(1, 21)]
    assert not any(difference(ran, macros) for ran in runs)
    assert any(difference(ran, other) for ran in runs)


@pytest.mark.slow
@needs_spin
@pytest.mark.parametrize(("revision", "aborts"), [("documented", {}), ("2.1.2", {"ABORTS": 1})])
def test_both_models_reach_equally_many_states(revision, aborts):
    macros = {**FEW, **REVISIONS[revision], **aborts}
    found = verdict({**macros, "CHECK_R36": 1})
    assert found.holds
    # Spin also counts: no limit chosen yet, nothing more to come, and no process left.
    assert found.states == len(reachable(macros)) + 3


@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_is_lost_if_nobody_arrives_behind_somebody_who_waits(revision):
    macros = {**FEW, **REVISIONS[revision], "MAX_TOKENS": 2}
    assert looked_at({**macros, "LATE": 1}) == looked_at(macros)


def looked_at(macros):
    """What the scheduler looks at in every state: of requests that do not decode, the first."""
    return {(batch, others[:1], *rest) for _, batch, others, *rest in reachable(macros)}


def reachable(macros):
    """Every state that the Python model can be in between two events, by what Spin keeps of it."""
    model = python_model(macros)
    todo = [(model.initial(), 0)]
    known = {kept(model, *todo[0])}
    while todo:
        for after in events(model, macros, *todo.pop()):
            if (key := kept(model, *after)) not in known:
                known.add(key)
                todo.append(after)
    return known


def python_model(macros):
    config = {key: macros[name] for name, key in SIZES.items()}
    model = make_model(
        "2.1.2" if "STALE_TKV" in macros else "documented",
        {**config, "max_batch_tkv": macros["LIMIT"]},
    )
    formula = next(name for macro, name in run.FORMULAS.items() if macro in macros)
    revision = admitting_by(model.revision, formula)
    assert revision is not None
    return replace(model, revision=revision)


def kept(model, state, arrived):
    decoding = sorted((member.computed, member.remaining) for member in state.decoding)
    others = [request for request in (*state.running, *state.waiting) if not request.prefilled]
    remembers = model.revision.current_tkv is release_2_1_2.current_tkv
    return (
        arrived,
        tuple(decoding),
        tuple((known.prompt, known.computed, known.max_tokens) for known in others),
        state.last_step_was_prefill and bool(decoding),
        (state.tkv, state.runner_tkv) if remembers and state.running else None,
    )


def events(model, macros, state, arrived):
    """Whatever can happen next: an arrival, an abort, or a step that ends any of its members."""
    state = state._replace(aborted=())
    late = "LATE" in macros and state.waiting
    if arrived < macros["REQUESTS"] and not late:
        name = f"r{arrived}"
        for prompt in range(1, macros["MAX_PROMPT"] + 1):
            for tokens in range(1, macros["MAX_TOKENS"] + 1):
                content = ((name, prompt),)
                request = Request(id=name, arrival=0, prompt=content, max_tokens=tokens)
                if model.refusal(request) is None:
                    yield model.arrive(state, request), arrived + 1
    if "ABORTS" in macros:
        for sequence in (*state.waiting, *state.running):
            yield model.abort(state, sequence.id), arrived
    emitting = sorted(model.step(ending(state))[1]["emitted"])
    for count in range(len(emitting) + 1):
        for chosen in combinations(emitting, count):
            yield model.step(ending(state, chosen))[0], arrived


def ending(state, early=()):
    """The state in which these end with their next token, and no other request before it must."""
    return state._replace(
        running=tuple(
            sequence._replace(
                output_len=sequence.generated + 1 if sequence.id in early else sequence.max_tokens
            )
            for sequence in state.running
        ),
        waiting=tuple(
            sequence._replace(output_len=1 if sequence.id in early else sequence.max_tokens)
            for sequence in state.waiting
        ),
    )


@pytest.mark.slow
@needs_spin
@pytest.mark.parametrize(
    ("revision", "rule", "further"),
    [
        ("documented", "R07", {"REQUESTS": 2, "LIMIT_FROM": 6, "LIMIT_TO": 40}),
        ("2.1.2", "R35", {"REQUESTS": 3, "LIMIT": 20, "ABORTS": 1}),
    ],
)
def test_what_spin_refutes_breaks_on_the_python_model_in_the_same_step(revision, rule, further):
    macros = {**SMALL, **REVISIONS[revision], **further, f"CHECK_{rule}": 1}
    found = verdict(macros)
    assert (found.holds, found.complete) == (False, False)
    replayed = replay_trail(macros, found.trail)
    assert replayed.confirmed
    assert [failure.rule for failure in replayed.outcome.broken] == [f"SPY-{rule}"]
    fixed = {**macros, "FORMULA_COMMON_BASE": 1}
    fixed = {name: value for name, value in fixed.items() if name not in REVISIONS[revision]}
    assert not replay_trail(fixed, found.trail).confirmed


@pytest.mark.slow
@needs_spin
@pytest.mark.parametrize(
    ("revision", "rule", "holds"),
    [
        ("documented", "R07", False),
        ("documented", "R35", True),
        ("2.1.2", "R07", True),
        ("2.1.2", "R09", True),
        ("2.1.2", "R30", True),
        ("2.1.2", "R32", True),
        ("2.1.2", "R35", False),
        ("2.1.2", "R36", True),
    ],
)
def test_known_rules_break_and_others_hold_however_many_arrive(revision, rule, holds):
    sizes = {"SLOTS": 2, "MAX_MODEL_LEN": 8, "MAX_PROMPT": 5, "MAX_TOKENS": 4, "LIMIT": 14}
    macros = {**SMALL, **sizes, **REVISIONS[revision], "FOREVER": 1, f"CHECK_{rule}": 1}
    found = verdict(macros)
    assert found.holds is holds
    assert holds or replay_trail(macros, found.trail).confirmed


@pytest.mark.slow
@needs_spin
@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ("R09", "pad = width - BLOCKS(line[k].computed);", "pad = width - 1;"),
        ("R30", "#define NEXT line[decoding]", "#define NEXT line[live - 1]"),
        ("R32", "fits = !after_prefill && (", "fits = ("),
        ("R36", "(NEXT.computed > 0 || decoding < SLOTS)", "true"),
    ],
)
def test_a_fault_in_the_promela_model_breaks_the_rule_there_and_not_in_python(
    rule, right, wrong, tmp_path, monkeypatch
):
    source = run.MODEL.read_text(encoding="utf-8")
    assert source.count(right) == 1
    faulty = tmp_path / "faulty.pml"
    faulty.write_text(source.replace(right, wrong), encoding="utf-8")
    monkeypatch.setattr(run, "MODEL", faulty)
    macros = {**SMALL, **REVISIONS["documented"], "SLOTS": 2, "REQUESTS": 3, "LIMIT": 40}
    macros[f"CHECK_{rule}"] = 1
    found = verdict(macros)
    assert found.holds is False
    assert not replay_trail(macros, found.trail).confirmed


@pytest.mark.slow
@needs_spin
@pytest.mark.parametrize("bound", [{"depth": 30}, {"memory_mb": 140}, {"seconds": 0.05}])
def test_a_search_that_is_cut_short_holds_nothing(bound):
    macros = {**SMALL, **REVISIONS["2.1.2"], "REQUESTS": 4, "LIMIT": 26, "CHECK_R07": 1}
    if "depth" in bound:
        macros["REQUESTS"] = 1
    found = verdict(macros, **{"depth": 10_000, **bound})
    assert (found.holds, found.complete, found.trail) == (None, False, ())


def test_what_pan_has_visited_completely_holds():
    found = read_search(COMPLETE, ended=True)
    assert found == (True, True, 43_259_722, 115_390_010, 161, 2493.22)


@pytest.mark.parametrize(
    ("was", "instead"),
    [
        ("\nFull", "\nWarning: Search not completed\n\nFull"),
        ("\nFull", "\nerror: max search depth too small\n\nFull"),
        ("\nFull", "\npan: reached -DMEMLIM bound\n\nFull"),
        ("\nFull", "\npan: out of memory\n\nFull"),
        ("\nFull", "\nInterrupted\n\nFull"),
        ("\nFull", "\npan:1: invalid end state (at depth 7)\n\nFull"),
        ("Full statespace", "Bit statespace"),
        ("Full statespace search for:", "Hash-Compact 4 search for:"),
        ("violations\t+", "violations\t- (disabled by -A flag)"),
        ("errors: 0", "errors: 1"),
        (COMPLETE, ""),
    ],
)
def test_whatever_makes_a_search_incomplete_is_no_pass(was, instead):
    assert was in COMPLETE
    found = read_search(COMPLETE.replace(was, instead), ended=True)
    assert (found.holds, found.complete) == (None, False)


def test_a_search_that_did_not_end_by_itself_is_no_pass():
    assert read_search(COMPLETE, ended=False).holds is None


@pytest.mark.parametrize(
    ("macros", "problem"),
    [
        ({"CHECK_R7": 1}, "unknown macro CHECK_R7"),
        ({}, "CHECK_R07"),
        ({"CHECK_R07": 1, "CHECK_R09": 1}, "CHECK_R07"),
        ({"CHECK_R07": 1, "FORMULA_COMMON_BASE": 1}, "FORMULA_2_1_2"),
    ],
)
def test_a_question_that_asks_nothing_is_refused(macros, problem):
    with pytest.raises(ValueError, match=problem):
        verdict({**FEW, **REVISIONS["2.1.2"], **macros})


@needs_spin
def test_sizes_that_do_not_fit_into_a_byte_are_refused():
    macros = {**FEW, **REVISIONS["2.1.2"], "MAX_MODEL_LEN": 254, "CHECK_R07": 1}
    with pytest.raises(RuntimeError, match="counted in bytes"):
        verdict(macros)
