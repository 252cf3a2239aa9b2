"""A formula of the user's own: what its function gets, and what may be wrong with it."""

import os
import signal

import pytest

from schedproof.model import own_code
from schedproof.model.errors import InputError
from schedproof.model.scenario import Scenario
from schedproof.model.spyre import lanes, own_formula, volumetric
from schedproof.model.target import ModelTarget
from schedproof.properties.spyre.explanations import model_of
from schedproof.solver.spyre.formula_lemmas import covers
from schedproof.solver.spyre.symbolic_admission import formula_named

COMMON_BASE = """
def common_base(request, tkv, prompt, block_size):
    return -(-(max(tkv, prompt) + request.remaining) // block_size) * block_size
"""


@pytest.fixture
def write(tmp_path):
    def write(text, function="f"):
        path = tmp_path / "my.py"
        path.write_text(text)
        own_formula.read_term.cache_clear()
        volumetric.by_own_term.cache_clear()
        return f"{path}:{function}"

    return write


BATCH = (70, [volumetric.Decoding(70, 500, 70, 3), volumetric.Decoding(6, 2, 70, 6)])
NEWCOMER = volumetric.Newcomer(130, 40)


def test_a_function_projects_as_the_published_formula_that_it_copies(write):
    own = volumetric.formula_named(write(COMMON_BASE, "common_base"))
    assert own(*BATCH, NEWCOMER, 64) == volumetric.common_base(*BATCH, NEWCOMER, 64)


@pytest.mark.parametrize("code", ["while True: pass", "def f(tkv):\n    while tkv: pass"])
def test_an_endless_loop_ends_and_is_one_line(write, monkeypatch, code):
    monkeypatch.setattr(own_code, "LIMIT", 0.1)
    with pytest.raises(InputError, match=r"EndlessCode: it did not end within 0\.1 s, line [12]"):
        own_formula.read_term(write(code))
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0


@pytest.mark.parametrize("code", ["import os; os._exit(0)", "import os\ndef f(): os._exit(0)"])
def test_a_formula_cannot_end_the_command_as_if_it_had_passed(write, code):
    leave = os._exit
    with pytest.raises(InputError, match=r"SystemExit: os\._exit\(0\), line [12]"):
        own_formula.read_term(write(code))
    assert os._exit is leave


def test_a_process_that_a_formula_forks_may_end(write):
    code = (
        "import os\nif os.fork() == 0: os._exit(7)\nleft = os.wait()[1] >> 8\ndef f(): return left"
    )
    assert own_formula.read_term(write(code))(*own_formula.TRIALS[0]) == 7


def test_any_exception_of_a_formula_is_named(write):
    with pytest.raises(InputError, match="f raised GeneratorExit"):
        own_formula.read_term(write("def f(): raise GeneratorExit"))


def test_slack_is_added_to_a_formula_of_ones_own(write):
    name = write(COMMON_BASE, "common_base")
    more = volumetric.formula_named(f"{name}+7")(*BATCH, NEWCOMER, 64)
    assert more.newcomer == volumetric.common_base(*BATCH, NEWCOMER, 64).newcomer + 7
    assert volumetric.formula_named(f"{name}+x") is None


def test_a_function_sees_each_request_and_takes_what_it_wants(write):
    formula = volumetric.formula_named(
        write(
            "def f(request, tkv):\n"
            "    prompt, computed, remaining, own, joins = request\n"
            "    numbers = prompt * 10**9 + computed * 10**6 + remaining * 10**3 + own\n"
            "    return numbers * 10 + joins\n"
        )
    )
    assert formula(*BATCH, NEWCOMER, 64) == volumetric.Projection(
        1301300391301, [30705000700, 60060020700]
    )


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("", "f", "no function 'f', it has none; valid: FILE.py:FUNCTION"),
        ("def g(tkv): return 1", "f", "no function 'f', it has g; valid"),
        ("def f(tkv: return 1", "f", "SyntaxError: "),
        ("1 / 0", "f", "ZeroDivisionError: division by zero, line 1"),
        ("raise SystemExit(0)", "f", "SystemExit: 0, line 1"),
        ("def f(tkv): raise SystemExit", "f", "f raised SystemExit: , line 1"),
        ("def f(batch): return 1", "f", "f takes 'batch'; valid: FILE.py:FUNCTION, a function of"),
        ("def f(*requests): return 1", "f", "f takes 'requests'; valid"),
        ("def f(tkv, /): return 1", "f", "f takes 'tkv' only by position; valid"),
        ("async def f(tkv): return 1", "f", "f is a coroutine; valid: FILE.py:FUNCTION, a fun"),
        ("def f(tkv): return 'many'", "f", "f returns 'many'; valid: a whole number of tokens"),
        ("def f(tkv): return tkv / 2", "f", "f returns 0.5; valid: a whole number of tokens"),
        ("def f(tkv): return None", "f", "f returns None; valid: a whole number"),
        ("def f(tkv): return tkv > 1", "f", "f returns False; valid: a whole number"),
        (
            "def f(tkv):\n    return tkv.x",
            "f",
            "f raised AttributeError: 'int' object has no attri",
        ),
    ],
)
def test_what_is_wrong_with_a_function_is_one_sentence(write, text, function, message):
    name = write(text, function)
    with pytest.raises(InputError, match=r"formula: ") as error:
        volumetric.formula_named(name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"^formula: nowhere\.py: no such file; valid: FILE\.py:F"):
        volumetric.formula_named("nowhere.py:f")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return tkv & 7", "raised TypeError: unsupported operand type"),
        ("return tkv if prompt > 9999 else int(tkv / 2)", "raised TypeError: int() argument must"),
        ("return sum(1 for _ in range(prompt))", "f raised OverflowError: "),
    ],
)
def test_what_symbols_cannot_do_is_named_with_what_they_can(write, body, message):
    name = write(f"def f(tkv, prompt):\n    {body}\n")
    with pytest.raises(
        InputError, match=r", line 2; Z3 runs it on symbols, which support \+ - "
    ) as error:
        covers(name)
    assert message in str(error.value)


def test_what_a_function_raises_in_a_run_is_an_error_of_the_input(write):
    name = write("def f(request, tkv):\n    return 100 // (request.remaining - 3)\n")
    target = ModelTarget(name)
    assert target.start("spyre", "sound", {})["ok"]
    for request in ("a", "b"):
        target.add(
            {"id": request, "prompt": [["p" + request, 5]], "max_tokens": 4, "output_len": 4}
        )
    target.step()
    target.step()
    with pytest.raises(
        InputError, match=r"f raised ZeroDivisionError: .*, line 2, for request=Own"
    ):
        target.step()


def test_what_a_target_calls_itself_runs_no_file(write, tmp_path):
    ran = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    name = write(ran + COMMON_BASE, "common_base")
    scenario = Scenario(system="spyre", revision="sound", config={}, requests=())
    assert model_of(scenario, name) is None
    assert not (tmp_path / "ran").exists()
    volumetric.formula_named(name)
    assert model_of(scenario, name) is not None


def test_lanes_take_published_formulas_only(write):
    with pytest.raises(InputError, match="is no projection; valid: document_own_tkv"):
        lanes.read_rules("sound", {}, write(COMMON_BASE, "common_base"))


def test_the_solver_finds_it_by_the_same_name(write):
    assert formula_named(write(COMMON_BASE, "common_base")) is not None
