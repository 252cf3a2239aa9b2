import pytest

from schedproof.solver.exploration.exploration import Exploration, ExploreOptions
from schedproof.solver.spyre.space import READ_THE_LIMIT
from schedproof.spec.catalogue import load

from .space_cases import SMALL


@pytest.mark.slow
def test_only_the_rules_that_are_said_to_read_the_limit_do():
    class Unlimited(dict):
        def __getitem__(self, key):
            assert key != "max_batch_tkv", "the limit was read"
            return super().__getitem__(key)

    others = [rule for rule in load("spyre") if rule.checked and rule.id not in READ_THE_LIMIT]
    for scope in SMALL[:6]:
        run = Exploration(ExploreOptions("2.5.2", scope), others)
        run._models.configs = [Unlimited(config) for config in run._models.configs]
        for _ in run.search.run():
            pass
        assert run.search.complete
