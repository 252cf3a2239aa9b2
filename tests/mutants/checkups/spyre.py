"""The scopes in which every fault planted in Spyre must show: a few seconds each, the cheapest
first."""

from dataclasses import replace

from schedproof.solver.exploration.scope import lengths
from schedproof.solver.spyre.space import SCOPES, SHARED, SOME_LENGTHS, Scope


def named(name: str) -> Scope:
    return next(scope for scope in SCOPES if scope.name == name)


CHECKUP = (
    Scope("two", "two requests, clients that give up", 2, SOME_LENGTHS, (12, 20, 28), "alone"),
    Scope("trio", "three long requests", 3, tuple(lengths((1, 3), (3, 6))), (40,)),
    Scope("slots", "fewer slots", 3, SOME_LENGTHS, (12, 40), config=(("max_num_seqs", 2),)),
    Scope("even", "every length", 2, limits=(12, 20, 28)),
    Scope(
        "sequential",
        "without interleaving",
        2,
        SOME_LENGTHS,
        (40,),
        config=(("interleave", False),),
        revisions=("2.1.2",),
    ),
    Scope(
        "uneven",
        "a max_model_len that is not whole blocks",
        2,
        limits=(20, 40),
        config=(("max_model_len", 15),),
    ),
    Scope(
        "no pausing",
        "pausing off",
        2,
        limits=(60,),
        config=(("pausing", False),),
        revisions=("2.5.2",),
    ),
    Scope(
        "uneven cache",
        "prefix caching, max_model_len not whole blocks",
        2,
        SHARED,
        (40,),
        config=(("prefix_caching", True), ("max_model_len", 13)),
    ),
    replace(named("pool"), requests=2),
    replace(named("cache"), requests=2, menu=SHARED, limits=(16, 40)),
    Scope("three", "three requests", 3, SOME_LENGTHS, (12, 28), "alone"),
    replace(named("pool"), aborts="none"),
    replace(named("cache"), menu=SHARED),
)
