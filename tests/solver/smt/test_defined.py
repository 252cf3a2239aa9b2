"""Code that does on symbols what it does on numbers is followed; anything else is refused."""

import copy
import importlib.util
import sys

import pytest

from schedproof.model.spyre.config import SpyreConfig
from schedproof.model.spyre.documented import DOCUMENTED
from schedproof.model.spyre.model import SpyreModel
from schedproof.model.spyre.state import Sequence, State
from schedproof.solver.smt.defined import Definitions
from schedproof.solver.smt.execution import UndecidedError
from schedproof.solver.smt.kinds import HIDDEN, NUMBER, by_id, check_class, many, record, row

NAME = "schedproof.model.of_a_test"
DEFINED = """
from functools import partial

from msgspec.structs import replace

from schedproof.model.spyre.state import Decision, Sequence, State

LARGE = 7
EARLY = {7}
size = len


def grown(state, block):
    kept, gone, names = [], [], {}
    for request in state.running:
        if request.computed < request.prompt:
            gone.append(request)
            continue
        length = request.computed + 1
        if length % block > LARGE or not request.generated:
            request = replace(request, computed=length)
        names[request.id] = length
        kept.append(request._replace(paused_steps=0))
    waits = first(state.waiting, partial(larger, block))
    tkv = max([request.computed for request in kept]) if kept else 0
    return state._replace(running=(*kept, *gone), tkv=tkv), waits, names


def first(queue, fits):
    for request in queue:
        if fits(request.prompt):
            return request
    return None


def larger(block, tokens):
    return tokens > block // 2 - 1
"""


@pytest.fixture
def follow(tmp_path, monkeypatch):
    """Return a function that follows `grown` of a model's module with this text."""

    def follow(text, **options):
        path = tmp_path / "of_a_test.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(NAME, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setitem(sys.modules, NAME, module)
        fields = {
            (Sequence, "blocks"): many(HIDDEN),
            (Sequence, "content"): HIDDEN,
            (State, "pool"): HIDDEN,
        }
        modules = (NAME, "schedproof.model.spyre.state")
        defined = Definitions(fields, {}, {}, modules, options.get("carried", ()))
        return defined.call(module.grown, record(State), NUMBER)[0]

    return follow


def test_code_that_is_defined_has_the_kind_of_its_result(follow):
    assert follow(DEFINED) == row(record(State), record(Sequence), by_id(NUMBER))


LENGTH = "        length = request.computed + 1\n"
KEEPS = "        kept.append(request._replace(paused_steps=0))\n"
RETURNS = "    return state._replace("


@pytest.mark.parametrize(
    ("line", "instead", "found"),
    [
        # what a number does not do on symbols
        ("// 2", "/ 2", "block / 2"),
        ("// 2", "** 2", "block ** 2"),
        ("// 2", "& 2", "block & 2"),
        ("length % block >", "int(length) >", "int(length)"),
        ("length % block > LARGE", "isinstance(length, int)", "isinstance(length, int)"),
        ("length % block > LARGE", "str(length) == '7'", "str(length)"),
        ("length % block > LARGE", "f'{length}' == '7'", "f'{length}' == '7'"),
        ("length % block > LARGE", "'%s' % length == '7'", "'%s' % length"),
        ("length % block > LARGE", "length is block", "length is block"),
        ("length % block > LARGE", "{length: 1}", "{length: 1}"),
        ("length % block > LARGE", "length in [block]", "length in [block]"),
        # what an id does not say
        ("length % block > LARGE", "request.id == 'r7'", "request.id == 'r7'"),
        ("length % block > LARGE", "request.id > 'r7'", "request.id > 'r7'"),
        ("length % block > LARGE", "request.id.isdigit()", "request.id.isdigit"),
        # what tells items apart by their places or by how many there are
        ("state.running:", "state.running[:6]:", "state.running[:6]"),
        ("state.running:", "[state.running[4]]:", "state.running[4]"),
        ("state.running:", "reversed(sorted(state.running)):", "sorted(state.running)"),
        (
            "in state.running:",
            "in [one for at, one in enumerate(state.running) if at < 6]:",
            "at < 6",
        ),
        ("if kept else 0", "if [0 for _ in kept] else 0", "[0 for _ in kept]"),
        ("if kept else 0", "if kept > [] else 0", "kept > []"),
        ("if kept else 0", "if sum([one.computed for one in kept]) else 0", "sum("),
        ("if kept else 0", "if size(kept) == 7 else 0", "size"),
        ("if kept else 0", "if kept.index(1) else 0", "kept.index"),
        ("if kept else 0", "if (lambda: 7)() else 0", "lambda: 7"),
        ("if kept else 0", "if block and (last := 7) else 0", "(last := 7)"),
        ("if kept else 0", "if (*kept,)[-2] else 0", "[-2]"),
        (KEEPS, f"{KEEPS}        if len(kept) == 6: continue\n", "a loop carries `kept`"),
        (LENGTH, "        length = request.computed + block\n        block = length\n", "`block`"),
        (LENGTH, f"{LENGTH}        block += 1\n", "a loop carries `block`"),
        (LENGTH, f"{LENGTH}        for one in kept: length = 1\n", "a loop carries `kept`"),
        (RETURNS, f"    while kept: pass\n{RETURNS}", "while kept:"),
        (RETURNS, f"    a, *rest = kept\n{RETURNS}", "*rest"),
        (RETURNS, f"    a = (one for one in kept)\n{RETURNS}", "(one for one in kept)"),
        (RETURNS, f"    both = [*kept]\n    both += gone\n{RETURNS}", "both += gone"),
        (
            "if kept else 0",
            "if [1 for a in kept for b in kept for c in kept for d in kept if a is None] else 0",
            "nests more than 3 loops",
        ),
        # what remembers, or hides the code that runs
        (LENGTH, f"{LENGTH}        state.tkv = 1\n", "state.tkv"),
        (
            LENGTH,
            f"{LENGTH}        state.waiting.append(request)\n",
            "state.waiting.append(request)",
        ),
        (LENGTH, f"{LENGTH}        setattr(state, 'tkv', 1)\n", "a loop carries `state`"),
        (LENGTH, f"{LENGTH}        global LARGE\n", "global LARGE"),
        (LENGTH, f"{LENGTH}        del kept[-1]\n", "a loop carries `kept`"),
        (LENGTH, f"{LENGTH}        import json\n", "import json"),
        ("length % block > LARGE", "length in EARLY", "EARLY"),
        ("length % block > LARGE", "getattr(state, 'tkv')", "getattr(state, 'tkv')"),
        ("length % block > LARGE", "state.__class__", "state.__class__"),
        ("length % block > LARGE", "state.unknown", "state.unknown"),
        ("length % block > LARGE", "state.pool", "state.pool"),
        ("length % block > LARGE", "request.content == ()", "request.content == ()"),
        (RETURNS, f"    try: pass\n    except Exception: pass\n{RETURNS}", "try:"),
        (RETURNS, f"    with state: pass\n{RETURNS}", "with state:"),
        (RETURNS, f"    match kept:\n        case [_]: pass\n{RETURNS}", "match kept:"),
        ("paused_steps=0", "generated=None is None", "generated=None is None"),
        ("paused_steps=0", "**{}", "request._replace(**{})"),
        # what runs where a function within this one is defined, or a variable is only declared
        (RETURNS, f"    def f(x=kept.append(state)): return x\n{RETURNS}", "def f("),
        (RETURNS, f"    def f(x: kept.append(state)): return x\n{RETURNS}", "def f("),
        (RETURNS, f"    def f(x) -> kept.append(state): return x\n{RETURNS}", "def f("),
        (RETURNS, f"    @kept.append\n    def f(x): return x\n{RETURNS}", "kept.append"),
        (RETURNS, f"    kept.append(state).x: int\n{RETURNS}", "kept.append(state).x"),
        (
            "if kept else 0",
            "if sorted([1, 2], key=lambda n, k=sum(1 for _ in kept): n * k)[0] else 0",
            "sorted([1, 2], key=",
        ),
        # what only looks like Python's own function
        (
            RETURNS,
            f"    def f(filter): return [*filter(None, kept)]\n{RETURNS}",
            "a filter that is not",
        ),
        (
            "if kept else 0",
            "if [n for map, n in ((larger, 1),) if [*map(larger, kept)]] else 0",
            "a map that is not",
        ),
        # what has an order only sometimes
        (
            "if kept else 0",
            "if [0 for _ in ({r.id for r in kept} if block else {r.id: 1 for r in kept})] else 0",
            "{r.id for r in kept}",
        ),
        (
            "(queue, fits):",
            "(queue, fits, size=len):\n    if size(queue) == 7: return None",
            "size",
        ),
        ("def first(", "@partial\ndef first(", "first"),
        ("    return tokens >", "    return grown(State(), block) and tokens >", "recursion"),
    ],
)
def test_what_is_not_defined_is_refused(follow, line, instead, found):
    text = DEFINED.replace(line, instead, 1)
    assert text != DEFINED
    with pytest.raises(UndecidedError) as refusal:
        follow(text)
    assert found in str(refusal.value)


def test_a_refusal_names_the_file_and_the_line(follow):
    number = DEFINED.splitlines().index("    return tokens > block // 2 - 1") + 1
    with pytest.raises(UndecidedError) as refusal:
        follow(DEFINED.replace("// 2", "/ 2"))
    assert str(refusal.value) == (
        "does something that the proof does not define: `block / 2` "
        f"(model/of_a_test.py, line {number})"
    )


def test_a_variable_that_a_lemma_is_about_may_be_carried(follow):
    counts = DEFINED.replace(KEEPS, f"{KEEPS}        if len(kept) == 6: continue\n")
    follow(counts, carried=("of_a_test.grown kept",))


def test_a_function_that_another_one_has_replaced_is_not_read(follow):
    replaced = DEFINED + "\n\ndef larger_still(block, tokens):\n    return tokens ** block\n"
    with pytest.raises(UndecidedError, match=r"tokens \*\* block"):
        follow(f"{replaced}\n\nlarger = larger_still\n")


def test_a_function_that_is_not_in_the_text_is_refused(follow):
    made = 'exec("def larger(block, tokens): return tokens > block")'
    with pytest.raises(
        UndecidedError, match=r"larger, whose code is not in the text of its module"
    ):
        follow(f"{DEFINED}\n\n{made}\n")


def test_a_method_that_python_calls_by_itself_is_refused(follow):
    odd = "\n\nclass Odd(State, frozen=True):\n    def __bool__(self):\n        return False\n"
    with pytest.raises(UndecidedError, match=r"Odd'>.__bool__"):
        follow(f"{DEFINED}{odd}".replace(RETURNS, f"    odd = Odd()\n{RETURNS}"))


def test_a_class_is_defined_although_an_object_of_it_was_copied():
    """`copy` and `pickle` leave `__slotnames__` in the class."""
    copy.copy(SpyreModel(SpyreConfig(), DOCUMENTED))
    assert "__slotnames__" in vars(SpyreModel)
    check_class.cache_clear()
    check_class(SpyreModel)
