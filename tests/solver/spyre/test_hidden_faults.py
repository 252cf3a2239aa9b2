"""A fault that symbols could hide from the proof of the limit makes a lemma fail.

With each fault, some run of the model exceeds the limit.
"""

import importlib

import pytest

from schedproof.tests.mutants.faults import MODEL
from schedproof.tests.mutants.planting import imported_anew

STEP, JOINS, RUNS = "spyre/scheduler.py", "joining_request_was_accepted", "decoding_requests_run"
CHECKED = "    if revision.is_empty(state):\n        return True\n"
COMPARED = "    joining = volumetric.Newcomer("


def status(name, changes, revision="sound"):
    """The status of a lemma, with changes of the model's texts by file."""
    texts = {}
    for file, line, instead in changes:
        text = texts.get(file) or (MODEL / file).read_text("utf-8")
        assert text.count(line) == 1
        texts[file] = text.replace(line, instead)
    with imported_anew(texts):
        proofs = importlib.import_module("schedproof.solver.spyre.proofs_by_rule")
        sequences = importlib.import_module("schedproof.solver.spyre.admission_sequences")
        setting = sequences.Setting(sequences.ADMITS_BY[revision], 0, revision=revision)
        groups = proofs.limit_lemmas("SPY-R07", setting, 64)
        [lemma] = [lemma for group in groups for lemma in group.lemmas if lemma.name == name]
        discharge = importlib.import_module("schedproof.solver.smt.obligation").discharge
        [found] = discharge([lemma])
        return found.status, found.sentence.rpartition("the code ")[2].removesuffix(")")


def skips(condition):
    """Let every request join where a condition holds."""
    return ("spyre/documented.py", CHECKED, f"{CHECKED}    if {condition}:\n        return True\n")


def accepts(condition):
    """Accept a request where a condition on the batch holds."""
    lines = f"    if {condition}:\n        return True\n{COMPARED}"
    return ("spyre/documented.py", COMPARED, lines)


REFUTED = [
    # two comparisons of symbols
    (f"{JOINS}_1", skips("(len(state.running) >= 1) == (len(state.waiting) >= 1)")),
    # lists of which the items say of which request they are
    (f"{JOINS}_5", accepts("len(sorted([one.computed for one in decoding])) == 7")),
    (f"{JOINS}_5", accepts("len(tkvs) == 7")),
    (f"{JOINS}_5", accepts("len({one.id for one in decoding}) == 7")),
    (f"{JOINS}_5", accepts("len([max(one.computed, 9) for one in decoding]) == 7")),
    # what the state holds besides lengths
    (f"{JOINS}_1", skips("state.pool.fresh > 1")),
    (f"{JOINS}_2", skips("[name for name in state.aborted]")),
    (
        f"{RUNS}_together_1",
        (
            "spyre/forward.py",
            "        length = request.computed + 1\n",
            "        length = request.computed + 1 + (len(request.blocks) > 1)\n",
        ),
    ),
    (
        f"{RUNS}_together_1",
        (
            STEP,
            "        if request.id in scheduled and",
            "        if computed.left_pad_blocks.get(request.id) and request.generated:\n"
            "            running.append(request)\n            continue\n"
            "        if request.id in scheduled and",
        ),
    ),
    # what one step leaves for the next
    (
        f"{RUNS}_together_1",
        (
            STEP,
            "generated=request.generated + 1)",
            "generated=request.generated + 1, prefix_hit=request.prefix_hit + 1)",
        ),
    ),
    (
        "arrival_waits_uncomputed_1",
        (
            STEP,
            "    return state._replace(waiting=(*state.waiting, newcomer))",
            "    newcomer = newcomer._replace(paused_steps=1 if state.waiting else 0)\n"
            "    return state._replace(waiting=(*state.waiting, newcomer))",
        ),
    ),
    (
        "arrival_waits_uncomputed_4",
        (
            STEP,
            "    return state._replace(waiting=(*state.waiting, newcomer))",
            "    if len(state.running) > 3:\n        newcomer = newcomer._replace(max_tokens=1)\n"
            "    return state._replace(waiting=(*state.waiting, newcomer))",
        ),
    ),
    (
        "abort_only_removes_2",
        (
            STEP,
            "    if request.blocks:\n        lost",
            "    if not inside and len(state.running) == 2:\n"
            "        after = after._replace(running=state.running)\n"
            "    if request.blocks:\n        lost",
        ),
    ),
    (
        "one_request_prefills_1",
        (
            STEP,
            "                leaving.append(request)\n",
            "                leaving.append(request)\n"
            "                running.append(replace(request, id='again', output_len=900))\n",
        ),
    ),
    # configurations, and formulas that walk to the end
    (
        "accepted_request_fits_alone",
        (
            "spyre/model.py",
            "        longest = request.prompt_len",
            "        if self.config.max_num_seqs > 32 or not self.config.interleave:\n"
            "            return None\n        longest = request.prompt_len",
        ),
    ),
    (
        "formula_projects_every_member_1",
        (
            "spyre/volumetric.py",
            "    newcomer_common_base,\n    member_common_base,\n",
            "    newcomer_common_base,\n    member_common_base,\n    to_the_end=True,\n",
        ),
    ),
]


SLOW = {f"{JOINS}_2", f"{JOINS}_5", f"{RUNS}_together_1", "one_request_prefills_1"}


@pytest.mark.parametrize(
    ("name", "change"),
    [pytest.param(*plan, marks=[pytest.mark.slow] * (plan[0] in SLOW)) for plan in REFUTED],
)
def test_a_fault_in_what_symbols_stand_for_is_refuted(name, change):
    assert status(name, [change])[0] == "refuted"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (accepts("len([1 for one in decoding]) == 7"), "counts items that do not say"),
        (skips("state.waiting == (request,)"), "compares a sequence of any length"),
        (skips("state.aborted == ()"), "compares a sequence of any length"),
        (skips("[one for one in state.decoding[0].blocks]"), "looks at items"),
        (skips("request.id == state.__class__.__name__"), "reads the id"),
        (skips("repr(request.prompt) == '60'"), "writes a number out"),
    ],
)
def test_a_step_that_asks_what_symbols_cannot_answer_is_not_proven(change, why):
    answer, code = status(f"{JOINS}_1", [change])
    assert answer == "unknown"
    assert code.startswith(why)


def test_a_check_that_gets_members_to_read_only_once_is_not_proven():
    """A formula that goes through them twice finds none."""
    line = "    return revision.volume_check(members, "
    change = ("spyre/documented.py", line, line.replace("members", "iter(members)"))
    assert status(f"{JOINS}_1", [change])[0] == "unknown"


def test_a_model_that_remembers_its_steps_is_not_proven():
    answer, code = status(
        f"{JOINS}_1",
        [
            (
                "spyre/model.py",
                "    def options(self)",
                "    @cached_property\n    def steps(self): return []\n\n    def options(self)",
            ),
            (
                "spyre/model.py",
                "        return scheduler.step(self.config, self.revision,",
                "        self.steps.append(state)\n"
                "        return scheduler.step(self.config, self.revision,",
            ),
            (
                "spyre/model.py",
                "from dataclasses import dataclass, replace",
                "from dataclasses import dataclass, replace\nfrom functools import cached_property",
            ),
        ],
    )
    assert (answer, code) == ("unknown", "keeps something for later calls in the model")


def test_an_abort_of_a_request_that_has_left_changes_nothing():
    line = "    if request is None:\n        return state\n"
    forgets = line.replace("return state", "return state._replace(tkv=0)")
    assert status("abort_only_removes_5", [(STEP, line, forgets)], "2.1.2")[0] == "refuted"


JOINS_WHILE_OTHERS_RUN = """        after, seen = forward.compute_decode(config, state)
        ongoing = after.prefilling
        if ongoing is None or not revision.satisfies_last_chunk(config, revision, state, ongoing):
            return after, seen
        after, chunk = forward.compute_chunk(config, revision, after, ongoing)
        scheduled = {**seen.scheduled, **chunk.scheduled}
        return after, seen._replace(scheduled=scheduled)
"""


@pytest.mark.slow
def test_a_request_that_joins_in_a_step_in_which_others_run_is_refuted():
    """The check was about their lengths before that step."""
    line = "        return forward.compute_decode(config, state)\n"
    assert status(f"{JOINS}_1", [(STEP, line, JOINS_WHILE_OTHERS_RUN)])[0] == "refuted"


@pytest.mark.slow
def test_a_function_in_another_module_counts_any_number_of_requests():
    changes = [
        (
            "spyre/sound.py",
            "SOUND = replace(DOCUMENTED, ",
            "def fits(config, revision, state, newcomer):\n"
            "    return len(state.decoding) == 7 or DOCUMENTED.satisfies_last_chunk(\n"
            "        config, revision, state, newcomer\n    )\n\n\n"
            "SOUND = replace(DOCUMENTED, satisfies_last_chunk=fits, ",
        )
    ]
    assert status(f"{JOINS}_5", changes)[0] == "refuted"
