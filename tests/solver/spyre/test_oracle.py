"""Search, worst case and proof against an oracle: every run, by arithmetic of its own.

The oracle shares nothing with the model and the solver but the formulas, which it calls on numbers.
Settings and formulas are random; the formulas branch, and divide what may be below zero.
"""

import random
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest

from schedproof.model.spyre import volumetric
from schedproof.solver.spyre.admission_sequences import Setting
from schedproof.solver.spyre.formula_lemmas import covers
from schedproof.solver.spyre.worst_case import fewest, worst

SETTINGS = 200
PART = 20  # of one test


def far_below(larger, tkv, base, prompt, member, block):
    return tkv + volumetric.round_up(prompt - tkv, block) + member.remaining + block


def by_cases(larger, tkv, base, prompt, member, block):
    whole, rest = divmod(max(tkv, prompt), block)
    return (whole + (1 if rest else 0)) * block + member.remaining


def own_length(larger, tkv, base, prompt, member, block):
    return -(-(member.computed + member.remaining) // block) * block + max(prompt - tkv, 0)


def generous(larger, tkv, base, prompt, member, block):
    return volumetric.member_common_base(larger, tkv, base, prompt, member, block) + abs(
        tkv - prompt
    )


MEMBERS = [far_below, by_cases, own_length, generous]
MEMBERS += [volumetric.member_common_base, volumetric.member_2_0_1, volumetric.member_1_10_0]
NEWCOMERS = [volumetric.newcomer_common_base, volumetric.newcomer_2_1_0]
NEWCOMERS += [volumetric.newcomer_realigned, volumetric.newcomer_0_8_0]


class Joined(NamedTuple):
    prompt: int
    decodes: int
    joins: int


def batch_tkv(lengths, block):
    return (
        (max(-(-n // block) for n in lengths) - 1) * block
        + max((n - 1) % block for n in lengths)
        + 1
    )


def volume_at(run, time, block):
    lengths = [
        step.prompt + time - step.joins for step in run if 0 < time - step.joins <= step.decodes
    ]
    return len(lengths) * batch_tkv(lengths, block) if lengths else 0


def largest(run, block):
    """Largest batch x tkv once all have joined."""
    last = run[-1].joins
    return max(volume_at(run, time, block) for time in range(last + 1, last + 1 + run[-1].decodes))


def joins(setting, formula, run, newcomer):
    """Does the scheduler let it join the batch that it meets?"""
    block = setting.block
    met = [
        (step.prompt, step.prompt + age, step.decodes - age)
        for step in run
        if step.decodes > (age := newcomer.joins - step.joins)
    ]
    if not met:
        return False  # it begins anew, as the first of another run
    wide = max(-(-n // block) for _, n, _ in met)
    own = [(wide - -(-n // block)) * block + n for _, n, _ in met]
    tkv, prompt = batch_tkv([n for _, n, _ in met], block), newcomer.prompt
    front = max(tkv, prompt) // block * block
    ends = [(prompt, newcomer.decodes), *((n, left) for _, n, left in met)]
    if any(front + n % block + left > setting.max_model_len for n, left in ends):
        return False
    base = max(tkv, prompt)
    term = formula.newcomer(tkv, base, prompt, newcomer.decodes, block) + formula.slack
    terms = sorted(
        formula.slack
        + formula.member(max, tkv, base, prompt, volumetric.Decoding(n, left, at, of), block)
        for (of, n, left), at in zip(met, own, strict=True)
    )
    for gone, other in enumerate(terms):
        if other >= term:
            return (len(terms) + 1 - gone) * term <= setting.limit
        if (len(terms) + 1 - gone) * other > setting.limit:
            return False
    return True


def runs(setting, formula, run=()):
    """Every run of up to `setting.requests` that join one after the other."""
    if run:
        yield run
    if len(run) == setting.requests:
        return
    door = min(setting.max_model_len, setting.limit)
    for prompt, tokens in product(range(1, door), range(2, door + 1)):
        if prompt + tokens - 1 > door:
            continue
        whole = -(-prompt // setting.block) * setting.block
        if setting.release_door and whole + tokens > setting.max_model_len:
            continue
        if not run:
            yield from runs(setting, formula, (Joined(prompt, tokens - 1, 0),))
            continue
        before = run[-1].joins
        apart = -(-prompt // setting.chunk) if setting.interleave else 0
        for time in range(before + apart, before + setting.max_model_len + 1):
            newcomer = Joined(prompt, tokens - 1, time)
            if joins(setting, formula, run, newcomer):
                yield from runs(setting, formula, (*run, newcomer))


def drawn(seed):
    chance = random.Random(seed)
    formula = replace(
        volumetric.common_base,
        newcomer=chance.choice(NEWCOMERS),
        member=chance.choice(MEMBERS),
        slack=chance.choice([0, 0, 1, 2]),
    )
    requests, block = chance.choice([2, 2, 3]), chance.choice([1, 2, 3, 4])
    longest = chance.randint(2, 5 if requests == 3 else 7)
    setting = Setting(
        "drawn",
        requests,
        block=block,
        chunk=block * chance.randint(1, 2),
        limit=chance.randint(longest, 3 * longest),
        max_model_len=longest,
        interleave=chance.random() < 0.7,
        release_door=chance.random() > 0.6,
    )
    return setting, formula


def agree(seed, monkeypatch):
    """Search, worst case and lemmas say what the oracle says; return whether the limit breaks."""
    setting, formula = drawn(seed)
    monkeypatch.setitem(volumetric.FORMULAS, "drawn", formula)
    volumes = dict.fromkeys(range(1, setting.requests + 1), 0)
    for run in runs(setting, formula):
        volumes[len(run)] = max(volumes[len(run)], largest(run, setting.block))
    broken = max(volumes.values()) > setting.limit
    answers = [request.answer for request in fewest(setting, setting.requests)]
    assert ("sat" in answers) == broken, (seed, setting)
    assert "unknown" not in answers
    expected = max(volumes[setting.requests], setting.limit)
    known = [*worst(setting, "overshoot")]
    assert not known or (known[-1].exact, known[-1].reached) == (True, expected), (seed, setting)
    assert known or expected == setting.limit
    assert not (broken and covers("drawn", setting.block)), (seed, setting)
    return broken


def test_engines_agree_with_every_run_of_a_few_settings(monkeypatch):
    assert {agree(seed, monkeypatch) for seed in range(5)} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SETTINGS // PART))
def test_engines_agree_with_every_run_of_random_settings(part, monkeypatch):
    broken = [agree(1000 + part * PART + number, monkeypatch) for number in range(PART)]
    assert 0 < sum(broken) < PART
