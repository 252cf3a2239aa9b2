"""Code that the proof replaces on symbols is not run, so it is not proven if it changes anything.

The first three are faults with which some run exceeds the limit.
"""

import pytest

from schedproof.tests.solver.spyre.test_hidden_faults import DEFINED, STEP, status

BLOCKS = "spyre/blocks.py"
FORCES = "msgspec.structs.force_setattr"
HOLDS = "    request, pool = allocator.hold(pool, request, covered, config.block_size)\n"
HELD = "    held = in_use(state)\n"
FREE = "    free = free_blocks(state.pool)\n    if free is None:\n"
OBSERVES = "    prefilling, admitted = state.prefilling, state.admitted\n"


def imports(file):
    line = "from .config import SpyreConfig\n"
    return (file, line, f"import msgspec\n{line}")


@pytest.mark.parametrize(
    ("changes", "revision"),
    [
        (
            [imports(STEP), (STEP, OBSERVES, f"    done = {FORCES}(state, 'tkv', 1)\n{OBSERVES}")],
            "2.1.2",
        ),
        (
            [
                imports(BLOCKS),
                (BLOCKS, HOLDS, f"    done = {FORCES}(request, 'generated', 1)\n{HOLDS}"),
            ],
            "sound",
        ),
        (
            [
                imports(BLOCKS),
                (BLOCKS, FREE, f"    done = {FORCES}(config, 'max_batch_tkv', 99)\n{FREE}"),
            ],
            "sound",
        ),
        (
            [(BLOCKS, FREE, f"    done = exec('config.max_batch_tkv += 1')\n{FREE}")],
            "sound",
        ),
        (
            [
                imports(BLOCKS),
                (
                    BLOCKS,
                    HELD,
                    f"    done = sorted(state.running, key=lambda one: "
                    f"{FORCES}(one, 'generated', 1))\n{HELD}",
                ),
            ],
            "sound",
        ),
        ([(BLOCKS, HELD, f"    done = state.pool.cached.pop(newcomer.content)\n{HELD}")], "sound"),
        (
            [
                (BLOCKS, HELD, f"    done = state.pool.more\n{HELD}"),
                (
                    "pool.py",
                    "    size: int | None = None\n",
                    "    size: int | None = None\n\n    @property\n    def more(self):\n"
                    "        exec('every request longer')\n\n",
                ),
            ],
            "sound",
        ),
    ],
    ids=["observe", "hold", "fits_pool", "exec", "key", "pop", "property"],
)
def test_code_that_the_proof_replaces_must_change_nothing(changes, revision):
    answer, code = status(DEFINED, changes, revision)
    assert (answer, code[:46]) == ("unknown", "does something that the proof does not define:")
