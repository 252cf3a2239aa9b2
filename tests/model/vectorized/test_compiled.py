"""By Numba the lanes do the same. Compiling takes long: one test, and none of those for mutants."""

import pytest

from schedproof.model.vectorized.run import asked_by, read_rules, run

from .build import loads_of, same, settings


@pytest.mark.slow
def test_compiled_it_is_the_same() -> None:
    """By Numba, over many settings: one test, since compiling is what takes long."""
    pytest.importorskip("numba", reason="Numba is not installed: pip install numpy numba")
    for seed in range(120, 160):
        revision, formula, config = settings(seed)
        rules = read_rules(revision, config, formula)
        asked = asked_by(rules, loads_of(seed, config))
        by_rows = run(rules, asked, numba=False)
        assert same(by_rows, run(rules, asked, numba=True)), seed
        assert same(by_rows, run(rules, asked, strides=False, numba=True)), seed
