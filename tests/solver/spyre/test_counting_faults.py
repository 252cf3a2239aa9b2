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
    ],
    ids=[
        *("masks the longest", "shifts a list", "adds two lists", "sorts by what it knows"),
        *("looks for each of seven remainders", "notes seven remainders in one loop"),
    ],
)
def test_a_check_that_could_count_in_other_ways_is_not_proven(counts):
    """It could tell seven requests from the five with which the code is run."""
    answer, code = status(DEFINED, [("spyre/documented.py", COMPARED, f"{counts}{COMPARED}")])
    assert (answer, code[:16]) == ("unknown", "goes through lis")
