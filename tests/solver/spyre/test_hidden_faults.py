"""A fault that symbols could hide from the proof of the limit makes a lemma fail.

With each fault, some run of the model exceeds the limit.
"""

import importlib
import re

import pytest

from schedproof.tests.mutants.faults import MODEL
from schedproof.tests.mutants.planting import imported_anew

STEP, JOINS, RUNS = "spyre/scheduler.py", "joining_request_was_accepted", "decoding_requests_run"
CHECKED = "    if revision.is_empty(state):\n        return True\n"
COMPARED = "    joining = volumetric.Newcomer("


def changed(changes):
    """The texts of the model with changes, by file; without a line, text is added at the end."""
    texts = {}
    for file, line, instead in changes:
        path = MODEL / file
        text = texts.get(file) or (path.read_text("utf-8") if path.exists() else "")
        assert not line or text.count(line) == 1
        texts[file] = text.replace(line, instead) if line else text + instead
    return texts


def status(name, changes, revision="sound", *, formula=None, block=64, pausing=False):
    """The status of a lemma, with changes of the model's texts by file."""
    texts = changed(changes)
    with imported_anew(texts):
        proofs = importlib.import_module("schedproof.solver.spyre.proofs_by_rule")
        sequences = importlib.import_module("schedproof.solver.spyre.admission_sequences")
        setting = sequences.Setting(
            *(formula or sequences.ADMITS_BY[revision], 0, block, 8 * block),
            revision=revision,
            pausing=pausing,
        )
        groups = proofs.limit_lemmas("SPY-R07", setting, block)
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


# All plants in this lemma hide in the same sorts of lists. The first of them runs every time.
OFTEN = REFUTED[1]
SLOW = {f"{JOINS}_2", f"{JOINS}_5", f"{RUNS}_together_1", "one_request_prefills_1"}


def marks_of(plan):
    if plan[0] == OFTEN[0] and plan is not OFTEN:
        return [pytest.mark.slow, pytest.mark.nightly]
    return [pytest.mark.slow] * (plan[0] in SLOW)


@pytest.mark.parametrize(
    ("name", "change"),
    [pytest.param(*plan, marks=marks_of(plan)) for plan in REFUTED],
)
def test_a_fault_in_what_symbols_stand_for_is_refuted(name, change):
    assert status(name, [change])[0] == "refuted"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (accepts("len([1 for one in decoding]) == 7"), "counts items that do not say"),
        (skips("state.waiting == (request,)"), "compares a sequence whose length is unknown"),
        (skips("state.aborted == ()"), "compares a sequence whose length is unknown"),
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
    assert (answer, code) == ("unknown", "remembers something for later calls in the model")


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


FITS = "    return len(batch) * tkv <= config.max_batch_tkv\n"
PAUSES = "    if not state.paused and fits_limit(config, state.decoding):\n"
RELEASE = "spyre/release_2_5_2.py"
DEFINED = "code_does_only_what_is_defined"
COUNTS = """

def crowded(batch):
    seen = 0
    for _ in batch:
        seen += 1
    return seen == 6
"""
IMPORTS = "from . import blocks, volumetric\n"
BEFORE = "def may_prefill("


def before(lines):
    """Add functions to the module that decides which request may prefill."""
    return ("spyre/documented.py", BEFORE, f"{lines.strip()}\n\n\n{BEFORE}")


def imports(line):
    return ("spyre/documented.py", IMPORTS, f"{line}\n{IMPORTS}")


UNDEFINED = {
    # Each lets a request join unasked, most of them only if exactly six run or decode.
    "lists compared by their order": [
        skips("[0 * one.computed for one in state.decoding] > [0, 0, 0, 0, 0, 0]")
    ],
    "a place in a sorted list": [
        skips("bisect_left([0 * one.computed for one in state.decoding], 1) == 6"),
        imports("from bisect import bisect_left"),
    ],
    "a recursion through another module": [
        skips("crowded(state.running, 0)"),
        before(
            """
def crowded(batch, seen):
    return seen == 6 if not batch else blocks.crowded(batch, seen + 1)
"""
        ),
        (
            "spyre/blocks.py",
            "",
            """

def crowded(batch, seen):
    from . import documented
    rest = tuple([one for one in batch if one.id != batch[0].id])
    return documented.crowded(rest, seen)
""",
        ),
    ],
    "a recursion of a property": [
        skips("state.crowd == 6"),
        (
            "spyre/state.py",
            "    @property\n    def prefilling(self)",
            """    @property
    def crowd(self) -> int:
        if not self.running:
            return 0
        first = self.running[0].id
        rest = tuple([one for one in self.running if one.id != first])
        return 1 + self._replace(running=rest).crowd

    @property
    def prefilling(self)""",
        ),
    ],
    "a module that only reads input": [
        skips("crowded(state.decoding)"),
        imports("from ..errors import crowded"),
        ("errors.py", "", COUNTS),
    ],
    "a module that is imported late": [
        skips("crowded(state)"),
        before(
            """
def crowded(state):
    from .crowd import crowded
    return crowded(state.decoding)
"""
        ),
        ("spyre/crowd.py", "", COUNTS),
    ],
    "a partial of len": [
        skips("blocks.size(state.decoding) == 6"),
        (
            "spyre/blocks.py",
            "from .. import allocator\n",
            "from functools import partial\nfrom .. import allocator\n",
        ),
        ("spyre/blocks.py", "", "\n\nsize = partial(len)\n"),
    ],
    "functions that pass one another on": [
        skips("same(again, state.decoding, 0)"),
        before(
            """
def same(then, batch, seen):
    return seen == 6 if not batch else then(same, batch, seen + 1)


def again(then, batch, seen):
    return then(again, tuple([one for one in batch if one.id != batch[0].id]), seen)
"""
        ),
    ],
    "a generator that is read twice": [
        skips("sixth(state.decoding)"),
        before(
            f"""
def sixth(batch):
    places = (one for one in batch)
    return {" and ".join(6 * ["any(one for one in places)"])}
"""
        ),
    ],
    "an operator of a class": [
        skips("state.waiting and Batch(state.running) > 5"),
        before(
            """
class Batch(tuple):
    def __gt__(self, other):
        return tuple.__len__(self) > other
"""
        ),
    ],
    "pairs of neighbours": [
        skips(
            "[one for one, other in zip(state.running, (*state.running[1:], state.running[0]), "
            "strict=True) if one.computed == other.computed + 3]"
        )
    ],
    "a text of a number": [skips("'%s' % (len(state.running),) == '6'")],
    "a bit of a number": [skips("state.waiting and state.waiting[0].prompt & 1")],
    "a float": [skips("state.waiting and state.waiting[0].prompt / 2 > 1")],
    "a text of a record": [
        skips("f'{state}' is None"),
        (
            "spyre/state.py",
            "    @property\n    def prefilling(self)",
            "    def __repr__(self):\n        exec('every request longer')\n        return ''\n\n"
            "    @property\n    def prefilling(self)",
        ),
    ],
    "a sorted of the module's own": [
        (
            "spyre/volumetric.py",
            "def accepts(",
            "def sorted(terms):\n    return [term for term in terms if term % 4]\n\n\ndef accepts(",
        )
    ],
    "a len that another module plants": [
        (
            "spyre/sound.py",
            "",
            "\nfrom . import volumetric\n\n\ndef one(items):\n    return 1\n"
            "\n\nvolumetric.len = one\n",
        )
    ],
    "a request that changes as it takes blocks": [
        (
            "spyre/blocks.py",
            "    if not config.prefix_caching:\n        return request, pool\n",
            "    if len(request.blocks) > 1:\n"
            "        request = request._replace(max_tokens=request.max_tokens - 1)\n"
            "    if not config.prefix_caching:\n        return request, pool\n",
        )
    ],
}


def test_a_release_that_takes_away_one_request_after_another_is_not_proven():
    """It could count the requests, and a step of it is run with only three."""
    away = "    rest = without(rest, rest[0].id) if rest else rest\n"
    counts = f"    rest = state.running\n{6 * away}    if rest:\n        return state\n"
    changes = [
        (RELEASE, PAUSES, f"{counts}{PAUSES}"),
        (
            RELEASE,
            "from . import documented\n",
            "from ..members import without\nfrom . import documented\n",
        ),
    ]
    answer, code = status(DEFINED, changes, "2.5.2", pausing=True)
    assert (answer, code[:16]) == ("unknown", "goes through lis")


@pytest.mark.parametrize("kind", UNDEFINED)
def test_a_fault_that_does_what_is_not_defined_is_not_proven(kind):
    answer, code = status(DEFINED, UNDEFINED[kind])
    assert answer == "unknown"
    assert re.match(
        r"does something that the proof does not define: .* \(model/\w+(/\w+)?\.py, line", code
    ) or ("Batch" in code)


def test_a_switch_that_the_proof_does_not_set_is_not_proven():
    line = "    pausing: bool = True\n"
    switch = ("spyre/config.py", line, f"{line}    relaxed: bool = False\n")
    answer, code = status(f"{JOINS}_1", [skips("config.relaxed"), switch])
    assert (answer, code[:38]) == ("unknown", "has fields that the proof does not set")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (
            "limit_is_compared_with_next_step_2",
            (RELEASE, FITS, f"    if config.prefix_caching:\n        return True\n{FITS}"),
        ),
        (
            "limit_is_compared_with_next_step_2",
            (RELEASE, "for request in batch]", "for request in batch if request.prompt < 3]"),
        ),
        (
            "decoding_requests_were_kept_1_0",
            (RELEASE, PAUSES, f"    if not config.interleave:\n        return state\n{PAUSES}"),
        ),
    ],
)
def test_a_fault_in_one_configuration_of_a_release_that_pauses_is_refuted(name, change):
    assert status(name, [change], "2.5.2", pausing=True)[0] == "refuted"


def test_an_abort_that_forgets_the_tkv_in_one_configuration_is_refuted():
    line = "        aborted=(*state.aborted, request_id),\n    )\n"
    forgets = f"{line}    if not config.interleave:\n        after = after._replace(tkv=0)\n"
    assert status("abort_only_removes_1", [(STEP, line, forgets)], "2.1.2")[0] == "refuted"


@pytest.mark.parametrize(
    ("file", "line", "instead"),
    [
        (
            "spyre/config.py",
            "convert(values, SpyreConfig)\n",
            "convert({**values}, SpyreConfig)\n"
            "    if config.max_batch_tkv > 7:\n        config = SpyreConfig(max_batch_tkv=99)\n",
        ),
        (
            "config.py",
            "dict(values), kind)",
            "{**values, 'max_batch_tkv': values['max_batch_tkv'] + 1}, kind)",
        ),
    ],
)
def test_a_limit_that_changes_while_it_is_read_is_refuted(file, line, instead):
    assert status("model_decides_by_its_revision", [(file, line, instead)])[0] == "refuted"


@pytest.mark.parametrize("sizes", ["read.chunk_size == read.block_size", "read.block_size == 1"])
def test_a_model_that_is_another_revision_with_some_sizes_is_refuted(sizes):
    line = "    return SpyreModel(read, REVISIONS[revision])"
    other = f"    if {sizes}:\n        return SpyreModel(read, DOCUMENTED)\n"
    change = ("spyre/model.py", line, other + line)
    assert status("model_decides_by_its_revision", [change])[0] == "refuted"


@pytest.mark.parametrize(
    "condition",
    ["request.paused_steps > 3", "len(kept) == 7", "len(kept) > 2 and kept[0].prompt > 9"],
)
def test_a_request_that_stays_although_it_does_not_fit_is_refuted(condition):
    line = "        if fits([*kept, request]):\n"
    stays = line.replace("):\n", f") or ({condition}):\n")
    change = ("spyre/release_2_5_2.py", line, stays)
    name = "kept_requests_fit_after_each_turn"
    assert status(name, [change], "2.5.2", pausing=True)[0] == "refuted"


def test_a_request_that_emits_more_tokens_than_it_may_is_refuted():
    line = 'unless it is aborted."""\n        return self.max_tokens if'
    more = line.replace("return", "return self.max_tokens + 1 if self.output_len is None else")
    change = ("scenario.py", line, more)
    assert status("arrival_waits_uncomputed_1", [change])[0] == "refuted"


@pytest.mark.slow
def test_a_fault_with_three_requests_of_which_one_holds_two_blocks_is_refuted():
    line = "        length = request.computed + 1\n"
    longer = (
        "        if len(state.running) > 2 and len(request.blocks) == 2:\n            length += 1\n"
    )
    change = ("spyre/forward.py", line, line + longer)
    assert status(f"{RUNS}_together_3", [change])[0] == "refuted"
