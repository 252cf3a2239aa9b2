"""Common ways to write the same thing stay proven, and faults that are written so do not.

With each fault, some run exceeds the limit.
"""

import pytest

from schedproof.tests.solver.spyre.test_hidden_faults import (
    CHECKED,
    DEFINED,
    JOINS,
    STEP,
    status,
)

DOCUMENTED, STATE = "spyre/documented.py", "spyre/state.py"
VOLUMETRIC, POOL = "spyre/volumetric.py", "pool.py"
DECODING = "tuple([request for request in self.running if request.computed >= request.prompt])"
PREFILLING = """        for request in self.running:
            if request.computed < request.prompt:
                return request
        return None
"""
TKV = "    tkv = revision.current_tkv(config, state)\n"
BLOCKS = "    return (tokens - 1) // block_size + 1\n"
COMPUTES = """    if decision.kind == "prefill":
        return forward.compute_chunk(config, revision, state, decision.members[0])
    if decision.kind == "decode":
        return forward.compute_decode(config, state)
"""
MATCHES = """    match decision.kind:
        case "prefill":
            return forward.compute_chunk(config, revision, state, decision.members[0])
        case "decode":
            return forward.compute_decode(config, state)
"""
LENGTHS = "    tkvs = request_tkvs([request.computed for request in decoding], config.block_size)\n"
MEMBERS = """    members = [
        volumetric.Decoding(request.computed, request.remaining, tkv, request.prompt)
        for request, tkv in zip(decoding, tkvs, strict=True)
    ]
"""
MADE = "        members.append(volumetric.Decoding(request.computed, request.remaining, {}))\n"
WITH_PLACES = "    members = []\n    for place, request in enumerate(decoding):\n" + MADE.format(
    "tkvs[place], request.prompt"
)
IN_A_LOOP = (
    "    members = []\n    for request, tkv in zip(decoding, tkvs, strict=True):\n"
    + MADE.format("tkv, request.prompt")
)
WITHIN = """    def member(request: Sequence, tkv: int) -> volumetric.Decoding:
        return volumetric.Decoding(request.computed, request.remaining, tkv, request.prompt)

    members = [*map(member, decoding, tkvs)]
"""
WALK = """    to_come = len(projection.decoding) + 1
    for tkv in sorted(projection.decoding):
        answer = answer_at(tkv, to_come, projection.newcomer, limit)
        if answer is not None:
            return answer
        to_come -= 1
    return True
"""
WALK_BY_PLACE = """    for passed, tkv in enumerate(sorted(projection.decoding)):
        to_come = len(projection.decoding) + 1 - passed
        answer = answer_at(tkv, to_come, projection.newcomer, limit)
        if answer is not None:
            return answer
    return True
"""
WALK_TO_A_BREAK = """    to_come, found = len(projection.decoding) + 1, True
    for tkv in sorted(projection.decoding):
        answer = answer_at(tkv, to_come, projection.newcomer, limit)
        if answer is not None:
            found = answer
            break
        to_come -= 1
    return found
"""
JOINING = "    joining = volumetric.Newcomer(newcomer.prompt, newcomer.max_tokens)\n"
LONGEST = "    return rectangle_tkv(max(lengths), filled, block_size)\n"
ONGOING = "    ongoing = state.prefilling\n    if ongoing is not None:\n"
FULL = "    if len(decoding) >= config.max_num_seqs:\n        return False\n"
FINISHED = '    finished: dict[str, str] = dict.fromkeys(state.aborted, "aborted")\n'
SCHEDULED = "    scheduled = computed.scheduled\n"

HARMLESS = {
    "assert": (DOCUMENTED, TKV, f'{TKV}    assert tkv >= 0, f"no batch has the tkv {{tkv}}"\n'),
    ":=": (DOCUMENTED, ONGOING, "    if (ongoing := state.prefilling) is not None:\n"),
    "match": (STEP, COMPUTES, MATCHES),
    "break": (VOLUMETRIC, WALK, WALK_TO_A_BREAK),
    "enumerate": (DOCUMENTED, MEMBERS, WITH_PLACES),
    "enumerate, to count down": (VOLUMETRIC, WALK, WALK_BY_PLACE),
    "next": (
        *(STATE, PREFILLING),
        "        return next((one for one in self.running if not one.prefilled), None)\n",
    ),
    "filter": (
        *(STATE, DECODING),
        "tuple(filter(lambda request: request.computed >= request.prompt, self.running))",
    ),
    "map, with a function of its own": (DOCUMENTED, MEMBERS, WITHIN),
    "zip that is not strict": (
        *(DOCUMENTED, MEMBERS),
        MEMBERS.replace("strict=True", "strict=False"),
    ),
    "divmod, and a truth value": (
        *(POOL, BLOCKS),
        "    whole, rest = divmod(tokens, block_size)\n    return whole + (rest > 0)\n",
    ),
    "sorted, of a generator": (
        *(VOLUMETRIC, "    for tkv in sorted(projection.decoding):\n"),
        "    for tkv in sorted(term for term in projection.decoding):\n",
    ),
    "max, with a default": (
        DOCUMENTED,
        LONGEST,
        LONGEST.replace("lengths)", "lengths, default=0)"),
    ),
    "a starred argument": (
        *(DOCUMENTED, JOINING),
        "    joining = volumetric.Newcomer(*(newcomer.prompt, newcomer.max_tokens))\n",
    ),
    "a chained comparison": (
        *(DOCUMENTED, FULL),
        "    if not 0 <= len(decoding) < config.max_num_seqs:\n        return False\n",
    ),
    "a comparison of comparisons": (
        *(DOCUMENTED, FULL),
        "    if (len(decoding) < config.max_num_seqs) == False:\n        return False\n",
    ),
    "a dict in another one": (
        *(STEP, FINISHED),
        '    finished: dict[str, str] = {**dict.fromkeys(state.aborted, "aborted")}\n',
    ),
    "a set of ids": (STEP, SCHEDULED, "    scheduled = {name for name in computed.scheduled}\n"),
    "two names at once, declared before": (
        *(DOCUMENTED, TKV),
        f"    low: int\n    low = least = 0\n{TKV}    if least > low:\n        return False\n",
    ),
    "an error": (
        *(DOCUMENTED, TKV),
        f'{TKV}    if tkv < 0:\n        raise ValueError("no batch has such a tkv")\n',
    ),
}


@pytest.mark.parametrize("form", HARMLESS)
def test_code_that_does_the_same_in_another_way_is_still_defined(form):
    assert status(DEFINED, [HARMLESS[form]])[0] == "proven"


def lets_join(condition):
    return (DOCUMENTED, CHECKED, f"{CHECKED}    if {condition}:\n        return True\n")


FAULTS = {
    "assert": (
        f"{JOINS}_3",
        (
            *(DOCUMENTED, TKV),
            f"{TKV}    if len(decoding) == 3:\n        assert tkv > 0\n        return True\n",
        ),
    ),
    ":=": (f"{JOINS}_3", lets_join("(count := len(state.decoding)) == 3 and count")),
    "match": (
        f"{JOINS}_3",
        (
            *(DOCUMENTED, CHECKED),
            f"{CHECKED}    match len(state.decoding):\n        case 3 | 7:\n"
            "            return True\n",
        ),
    ),
    "break": (
        f"{JOINS}_2",
        (DOCUMENTED, MEMBERS, f"{IN_A_LOOP}        if request.remaining > 3:\n            break\n"),
    ),
    "enumerate": (
        f"{JOINS}_1",
        (
            *(DOCUMENTED, MEMBERS),
            WITH_PLACES.replace(
                "(decoding)", "(request for request in decoding if request.remaining < 4)"
            ),
        ),
    ),
    "enumerate, to count down": (
        "walk_counts_every_request_1",
        (VOLUMETRIC, WALK, WALK_BY_PLACE.replace("+ 1 - passed", "- passed")),
    ),
    "enumerate, to count down to seven": (
        "walk_counts_every_request_32",
        (
            *(VOLUMETRIC, WALK),
            WALK_BY_PLACE.replace("        answer", "        to_come %= 7\n        answer", 1),
        ),
    ),
    "next": (
        f"{JOINS}_1",
        lets_join("next((one for one in state.decoding if one.computed == 5), None) is not None"),
    ),
    "filter": (
        f"{JOINS}_1",
        (
            *(DOCUMENTED, LENGTHS),
            "    decoding = tuple(filter(lambda one: one.remaining > 2, decoding))\n" + LENGTHS,
        ),
    ),
    "map, with a function of its own": (
        f"{JOINS}_1",
        (
            *(DOCUMENTED, MEMBERS),
            WITHIN.replace("request.remaining", "request.remaining - (request.remaining > 3)"),
        ),
    ),
    "zip that is not strict": (
        f"{JOINS}_1",
        (
            *(DOCUMENTED, MEMBERS),
            MEMBERS.replace("tkvs, strict=True", "[tkv for tkv in tkvs if tkv < 6], strict=False"),
        ),
    ),
    "divmod, and a truth value": (
        "no_length_exceeds_its_tkv_1",
        (POOL, BLOCKS, HARMLESS["divmod, and a truth value"][2].replace("> 0", "> 1")),
    ),
    "sorted, of a generator": (
        "walk_counts_every_request_2",
        (
            *(VOLUMETRIC, "    for tkv in sorted(projection.decoding):\n"),
            "    for tkv in sorted(term for term in projection.decoding if term % 4):\n",
        ),
    ),
    "max, with a default": (
        "no_length_exceeds_its_tkv_1",
        (
            *(DOCUMENTED, LONGEST),
            "    longest = max((one for one in lengths if one % 4), default=1)\n"
            "    return rectangle_tkv(longest, filled, block_size)\n",
        ),
    ),
    "a starred argument": (
        f"{JOINS}_1",
        (
            *(DOCUMENTED, JOINING),
            JOINING.replace("(newcomer", "(*(newcomer").replace("tokens)", "tokens // 2))"),
        ),
    ),
    "a chained comparison": (f"{JOINS}_2", lets_join("2 <= len(state.decoding) < 4")),
    "a comparison of comparisons": (
        f"{JOINS}_1",
        lets_join("(len(state.decoding) > 2) == (request.prompt > 1)"),
    ),
}


SLOW = (f"{JOINS}_1", f"{JOINS}_2")


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=[pytest.mark.slow] * (FAULTS[form][0] in SLOW)) for form in FAULTS],
)
def test_a_fault_in_such_code_is_still_refuted(form):
    lemma, change = FAULTS[form]
    assert status(lemma, [change])[0] == "refuted"


def test_an_assertion_that_may_fail_is_not_proven():
    change = (DOCUMENTED, TKV, f"{TKV}    assert tkv > 99\n")
    answer, code = status(f"{JOINS}_1", [change])
    assert (answer, code) == ("unknown", "raises AssertionError: ")
