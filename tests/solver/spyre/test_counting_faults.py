"""Code that could count requests is not proven, because most lemmas run it with at most five.

With each fault, some run of seven requests exceeds the limit.
"""

import pytest

from schedproof.tests.solver.spyre.test_hidden_faults import COMPARED, DEFINED, status

SHORTENED = """    lengths = [min(length, (most - length) * 999) for length in lengths]
    most = max(lengths)
"""
HAS = [f"any([one.computed % 7 == {rest} for one in decoding])" for rest in range(7)]
NONE = ", ".join(6 * "0")


@pytest.mark.parametrize(
    "counts",
    [
        "    lengths = [one.computed for one in decoding]\n    most = max([0, *lengths])\n"
        f"{5 * SHORTENED}    if len(decoding) == 7 and most > 0:\n        return True\n",
        "    lengths = [one.computed for one in decoding]\n    for one, other in zip("
        f"[{NONE}, *lengths], [*lengths, {NONE}], strict=True):\n"
        "        if len(decoding) == 7 and one > 0 and other > 0:\n            return True\n",
        f"    lengths = [{NONE}] + [one.computed for one in decoding]\n    for one, other in zip("
        "lengths, [*reversed(lengths)], strict=True):\n"
        "        if len(decoding) == 7 and one > 0 and other > 0:\n            return True\n",
        "    most = 999\n" + 6 * "    most = sorted([*decoding], key=lambda one: "
        "min(one.computed, (most - one.computed) * 999))[-1].computed\n"
        + "    if len(decoding) == 7 and most < 999:\n        return True\n",
        f"    if len(decoding) == 7 and {' and '.join(HAS)}:\n        return True\n",
        "".join(f"    has_{rest} = False\n" for rest in range(7))
        + "    for one in decoding:\n        if one.computed < 0:\n            return False\n"
        + "".join(
            f"        elif one.computed % 7 == {rest}:\n            has_{rest} = True\n"
            for rest in range(7)
        )
        + f"    if len(decoding) == 7 and {' and '.join(f'has_{rest}' for rest in range(7))}:\n"
        "        return True\n",
        "    if len(decoding) == 7 and all([any([one.computed % 7 == rest for one in decoding]) "
        "for rest in (0, 1, 2, 3, 4, 5, 6)]):\n        return True\n",
        "    if len(decoding) == 7 and all([any([other.computed % 7 == (one.computed + 1) % 7 "
        "for other in decoding]) for one in decoding]):\n        return True\n",
        "    for on, tkv in zip((0, 0, 0, 0, 0, 0, 1), tkvs, strict=False):\n"
        "        if on > 0 and tkv > 0:\n            return True\n",
    ],
    ids=[
        *("masks the longest", "shifts a list", "adds two lists", "sorts by what it knows"),
        *("looks for each of seven remainders", "notes seven remainders in one loop"),
        *("looks for remainders in a loop", "looks for the next remainder", "marks the seventh"),
    ],
)
def test_a_check_that_could_count_in_other_ways_is_not_proven(counts):
    """It could tell seven requests from the five with which the code is run."""
    answer, code = status(DEFINED, [("spyre/documented.py", COMPARED, f"{counts}{COMPARED}")])
    assert (answer, code[:16]) == ("unknown", "goes through lis")


@pytest.mark.parametrize(
    "counts",
    [
        "    rest = reversed(tkvs)\n    for first, *_ in zip("
        f"{', '.join(7 * ['rest'])}, strict=True):\n        return True\n",
        "    pads = (0, 0, 0, 0, 0, 0) if decoding else tkvs\n    if pads:\n        return True\n",
        "    if any([(0, 0, 0, 0, 0, 0, 1)[at] > 0 for at, one in enumerate(decoding)]):\n"
        "        return True\n",
        "    for at, one in enumerate(decoding):\n        if at == 6 and one.computed > 0:\n"
        "            return True\n",
        "    for at, one in enumerate(decoding):\n        if len(decoding) - at == 7:\n"
        "            return True\n",
    ],
    ids=["sevens", "a list of six", "the seventh of a tuple", "place 6", "seven to come"],
)
def test_a_check_that_knows_places_is_not_proven(counts):
    answer, code = status(DEFINED, [("spyre/documented.py", COMPARED, f"{counts}{COMPARED}")])
    assert (answer, code[:46]) == ("unknown", "does something that the proof does not define:")


DOUBLED = 6 * "    many = many + many\n"
CUT_OFF = f"    many = [0]\n{DOUBLED}    members = [member for member, _ in zip(members, many)]\n"


@pytest.mark.parametrize(
    "cuts",
    [CUT_OFF, CUT_OFF.replace("[member for member, _ in zip(", "[*map(lambda one, _: one, ")],
    ids=["zip", "map"],
)
def test_a_check_of_the_first_64_requests_is_not_proven(cuts):
    """With more decoding requests, it admits one that exceeds the limit."""
    answer, code = status(
        "joining_request_was_accepted_5", [("spyre/documented.py", COMPARED, cuts + COMPARED)]
    )
    assert (answer, code) == ("unknown", "pairs lists that may have different lengths")


PAD = "    pad = [0]\n    pad = pad + pad\n    pad = pad + pad\n    pad = pad + pad\n"
SHIFTED = (
    f"{PAD}    for one, other in zip(pad + tkvs, tkvs + pad, strict=True):\n"
    "        if one > 0 and other > 0:\n            return True\n"
)
DOUBLED_TKVS = DOUBLED.replace("many", "tkvs")


@pytest.mark.parametrize(
    "doubles",
    [CUT_OFF, SHIFTED, "    tkvs = tkvs + tkvs + tkvs + tkvs + tkvs + tkvs\n", DOUBLED_TKVS],
    ids=["doubles an item", "doubles a pad", "adds a list six times", "doubles the requests"],
)
def test_a_check_that_doubles_lists_is_not_proven(doubles):
    """With one item doubled three times, it shifts the requests against each other by eight, and
    so finds out whether there are nine."""
    answer, code = status(DEFINED, [("spyre/documented.py", COMPARED, f"{doubles}{COMPARED}")])
    assert (answer, code[:16]) == ("unknown", "goes through lis")
