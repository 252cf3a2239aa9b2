"""`schedproof frontier`: the table, the file, the picture, and what it does not take."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedproof.examples.studies import frontier as frontier_command
from schedproof.examples.studies import frontier_picture, pictures
from schedproof.examples.studies.frontier import read_chunks
from schedproof.examples.studies.frontier_model import (
    KNOBS,
    SHORT,
    Load,
    Point,
    StepCost,
    configured,
    even_chunk,
    even_chunks,
    measure,
    possible,
    priced,
    request,
    settled,
    until_first_token,
)
from schedproof.model.vllm.model import VllmModel

from ...gate.web.base.browser import browser, is_as_wide_as_its_window, page_at

SMALL = ["--prompt", "10", "--decoding", "2", "--chunks", "3,6,4"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """An empty working folder, and a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def nothing_runs(monkeypatch):
    monkeypatch.setattr(frontier_command, "measured", lambda *_: pytest.fail("it measures"))


def test_a_row_for_each_setting_of_each_knob_by_ascending_chunk(run):
    result = run("frontier", *SMALL, "--step-cost", "10", "--token-cost", "2")
    assert (result.code, result.err) == (0, ""), result
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert lines[0] == "frontier vllm: a prompt of 10 tokens arrives beside 2 decodes"
    assert lines[3] == "  a step costs 10 + 2 x its tokens: illustrative units, no hardware's"
    # Beside a budget of 4 nothing is left for who comes behind, then a token a step: 4 + 16 steps.
    assert lines[4:11] == [
        "                        TTFT longest mean TTFT     ITL  ITL   wait",
        "knob      set to chunk steps    step step cost longest mean behind",
        "budget         4     2     5       4    4   90      18   18     20",
        "threshold      3     3     4       5    4   76      20   19      6",
        "threshold      4     4     3       6    5   62      22   21      4",
        "budget         6     4     3       6    5   62      22   21      7",
        "threshold      6     6     2       8    7   48      26   24      3",
    ]
    assert "no budget of 3: 2 decodes and two prompts need 4 tokens a step" in lines
    assert "x: dominated; 5 of 5 points are on the frontier" in lines
    assert lines[-1] == "6 of all 10 chunk sizes are: they cut the prompt into even slices"


def test_a_dominated_point_is_marked_and_told_what_does_as_well(run):
    result = run("frontier", "--prompt", "10", "--decoding", "2", "--chunks", "5,7")
    assert result.code == 0
    [marked] = [line for line in result.out.splitlines() if line.rstrip().endswith(" x")]
    assert marked.split()[:3] == ["threshold", "7", "7"]
    assert result.out.splitlines()[-1] == "a chunk of 5 takes the same 2 steps as 7"


def test_nothing_is_wider_than_80_columns_at_the_size_of_the_document(run):
    result = run("frontier", "--chunks", "512,2048,32768")
    assert result.code == 0
    assert max(len(line) for line in result.out.splitlines()) <= 80
    assert "…" not in result.out
    assert "a chunk of 2,000 takes the same 15 steps as 2,048" in result.out


def test_the_file_has_every_point_with_its_price(run):
    result = run("frontier", *SMALL, "--step-cost", "10", "--token-cost", "2", "--json", "f.json")
    assert result.code == 0
    read = json.loads(Path("f.json").read_bytes())
    assert read["format"] == "schedproof/frontier@1"
    assert (read["system"], read["prompt"], read["decoding"]) == ("vllm", 10, 2)
    assert read["cost"] == {"fixed": 10, "per_token": 2}
    assert len(read["points"]) == 5
    last = read["points"][-1]
    assert last == {
        **{"knob": "threshold", "setting": 6, "chunk": 6, "steps": 2, "longest": 8, "tokens": 14},
        **{"waits": 3, "mean": 7, "ttft": 48, "itl": 26, "mean_itl": 24, "dominated": False},
    }


def test_the_picture_is_a_page_that_needs_no_network(run):
    pytest.importorskip("plotly")
    for name in ("one.html", "two.html"):
        result = run("frontier", *SMALL, "--picture", name)
        assert (result.code, result.err) == (0, ""), result
    page = Path("one.html").read_text(encoding="utf-8")
    assert "A prompt of 10 tokens beside 2 decodes" in page
    assert "threshold 6: chunk 6, 2 steps" in page
    assert '<script src="' not in page
    assert page == Path("two.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "paper"), [("dark", (20, 24, 29)), ("light", (255, 255, 255))])
def test_the_picture_is_as_dark_and_as_narrow_as_its_window(run, scheme, paper):
    pytest.importorskip("plotly")
    assert run("frontier", *SMALL, "--picture", "one.html").code == 0
    with (
        browser() as running,
        page_at(running, Path("one.html").absolute().as_uri(), 400, scheme) as page,
    ):
        page.wait_for_selector(f"body[style*='rgb{paper}']", state="attached")
        assert is_as_wide_as_its_window(page)
        assert page.locator(".gtitle tspan").count() > 1


def test_the_figure_has_the_frontier_and_both_knobs_with_the_dominated_crossed():
    pytest.importorskip("plotly")
    load, cost = Load(10, 2), StepCost(10, 2)
    points = [measure(load, "threshold", chunk) for chunk in (5, 7, 10)]
    drawn = frontier_picture.figure(load, cost, priced(points, cost))
    line, budget, threshold = drawn.data
    assert (list(line.x), list(line.y)) == ([24, 34], [48, 34])
    assert (line.name, budget.name, threshold.name) == ("frontier", "budget", "threshold")
    assert list(budget.x) == []
    assert list(threshold.text) == ["5", "7", "10"]
    assert [symbol.startswith("x") for symbol in threshold.marker.symbol] == [False, True, False]
    assert drawn.layout.xaxis.type == drawn.layout.yaxis.type == "log"


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "0"], "--prompt: 0; valid: 1 to 1,000,000"),
        (["--prompt", "1000001"], "--prompt: 1000001; valid: 1 to 1,000,000"),
        (["--prompt", "long"], "Invalid value for '--prompt'"),
        (["--decoding", "0"], "--decoding: 0; valid: 1 to 1,024"),
        (["--decoding", "1025"], "--decoding: 1025; valid: 1 to 1,024"),
        (["--chunks", ""], "--chunks: ''; valid: tokens from 1 to 1,000,000, as 64,128,256"),
        (["--chunks", "0"], "--chunks: '0'; valid: tokens from 1 to 1,000,000"),
        (["--chunks", "64,,128"], "--chunks: '64,,128'; valid: tokens from 1"),
        (["--chunks", "-64"], "--chunks: '-64'; valid: tokens from 1"),
        (["--chunks", "1e3"], "--chunks: '1e3'; valid: tokens from 1"),
        (["--chunks", "1000001"], "--chunks: '1000001'; valid: tokens from 1"),
        (["--chunks", "9" * 5000], "--chunks: '999"),
        (
            ["--chunks", ",".join(str(size) for size in range(1, 102))],
            "--chunks: 101 settings; valid: 1 to 100",
        ),
        (["--step-cost", "-1"], "--step-cost: -1.0; valid: 0 to 1,000,000"),
        (["--step-cost", "nan"], "--step-cost: nan; valid: 0 to 1,000,000"),
        (["--step-cost", "inf"], "--step-cost: inf; valid: 0 to 1,000,000"),
        (["--token-cost", "0"], "--token-cost: 0.0; valid: 0.001 to 1,000,000"),
        (["--json", "nowhere/f.json"], "--json: nowhere/f.json: the folder nowhere does not exist"),
        (["--json", "."], "--json: . is a folder; valid: a file"),
        (["--picture", "f.png"], "--picture: f.png; valid: a file that ends in .html or .svg"),
        (["--picture", "f"], "--picture: f; valid: a file that ends in .html or .svg"),
        (["--picture", "nowhere/f.html"], "--picture: nowhere/f.html: the folder nowhere does not"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run, words, message):
    result = run("frontier", *words)
    assert (result.code, result.out) == (2, ""), result
    assert result.err.startswith("schedproof: ")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("name", ["--json", "--picture"])
def test_a_file_that_cannot_be_written_to_is_noticed_before_the_work(run, monkeypatch, name):
    monkeypatch.setattr("os.access", lambda *_: False)
    result = run("frontier", name, "f.html")
    assert (result.code, result.err) == (2, f"schedproof: {name}: f.html cannot be written to\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_file_that_turns_out_to_be_unwritable_is_one_line_and_exit_2(run):
    result = run("frontier", *SMALL, "--json", "/dev/full")
    assert result.code == 2
    assert result.err.startswith("schedproof: /dev/full: cannot be written to (")


@pytest.mark.usefixtures("nothing_runs")
def test_without_plotly_it_is_said_how_to_install_it(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    result = run("frontier", "--picture", "f.html")
    message = "--picture: Plotly is not installed; valid: pip install plotly"
    assert (result.code, result.out, result.err) == (2, "", f"schedproof: {message}\n")


@pytest.mark.usefixtures("nothing_runs")
def test_without_kaleido_an_svg_is_refused_and_what_is_valid_is_named(run, monkeypatch):
    monkeypatch.setattr(pictures, "find_spec", lambda name: name == "plotly" or None)
    result = run("frontier", "--picture", "f.svg")
    message = (
        "--picture: f.svg: Kaleido, which draws .svg, is not installed; valid: an .html file, or "
        "pip install kaleido"
    )
    assert (result.code, result.out, result.err) == (2, "", f"schedproof: {message}\n")


def test_a_kaleido_that_finds_no_browser_is_one_line_and_exit_2(run, monkeypatch):
    class Undrawable:
        def to_image(self, **_):
            raise RuntimeError("\nno browser here\nand many more lines")

    monkeypatch.setattr(pictures, "find_spec", lambda name: name)
    monkeypatch.setattr(frontier_picture, "figure", lambda *_: Undrawable())
    result = run("frontier", *SMALL, "--picture", "f.svg")
    message = "--picture: f.svg: Kaleido cannot draw it (no browser here); valid: an .html file"
    assert (result.code, result.err) == (2, f"schedproof: {message}\n")
    assert not Path("f.svg").exists()


def test_settings_are_read_in_any_order_each_once():
    assert read_chunks("64, 16,64,32") == (16, 32, 64)
    assert read_chunks("1000000") == (1_000_000,)


TEN = Load(prompt=10, decoding=2)


def test_a_threshold_of_four_cuts_ten_tokens_into_4_4_and_2():
    # Beside two decodes: steps of 6, 6 and 4. The 16 tokens of the one behind are cut as well.
    assert measure(TEN, "threshold", 4) == Point("threshold", 4, 4, 3, 6, 16, waits=4)


def test_a_budget_of_six_does_the_same_and_the_one_behind_waits_for_what_is_left():
    # It gets nothing beside 2 + 4, then 2 beside 2 + 2, then 3 a step beside three decodes: 2, 5,
    # 8, 11, 14, 16.
    assert measure(TEN, "budget", 6) == Point("budget", 6, 4, 3, 6, 16, waits=7)


@pytest.mark.parametrize(("knob", "setting"), [("budget", 12), ("threshold", 10)])
def test_a_prompt_that_fits_is_done_in_one_step(knob, setting):
    point = measure(TEN, knob, setting)
    assert point[2:6] == (10, 1, 12, 12)


def test_a_budget_that_the_decodes_use_up_is_not_possible():
    assert not possible(TEN, "budget", 3)
    assert possible(TEN, "budget", 4)
    assert possible(TEN, "threshold", 1)


def test_every_decode_goes_on_in_every_step():
    for knob, setting in (("budget", 5), ("threshold", 3)):
        model = VllmModel(configured(TEN, knob, setting))
        steps = until_first_token(model, settled(model, TEN), request("long", TEN.prompt, TEN))
        assert {(step["emitted"]["d0"], step["emitted"]["d1"]) for step in steps} == {(1, 1)}


def test_for_every_chunk_size_steps_and_tokens_are_those_of_the_division():
    load = Load(prompt=24, decoding=3)
    for chunk in range(1, 27):
        steps = -(-24 // chunk)
        for knob, setting in (("threshold", chunk), ("budget", chunk + 3)):
            if possible(load, knob, setting):
                point = measure(load, knob, setting)
                assert point[2:4] == (min(chunk, 24), steps)
                assert point.longest == min(chunk, 24) + 3
                assert point.tokens == 24 + 3 * steps


def test_the_frontier_over_all_chunk_sizes_are_the_even_slices():
    load = Load(prompt=24, decoding=3)
    points = [measure(load, "threshold", chunk) for chunk in range(1, 25)]
    for cost in (StepCost(0, 1), StepCost(256, 1), StepCost(1, 0.001)):
        kept = [point.point.chunk for point in priced(points, cost) if not point.dominated]
        assert kept == [1, 2, 3, 4, 5, 6, 8, 12, 24]
        assert kept == sorted({even_chunk(24, chunk) for chunk in range(1, 25)})
    assert even_chunks(24) == 9


@given(
    st.builds(Load, prompt=st.integers(1, 70), decoding=st.integers(1, 4)),
    st.sampled_from(KNOBS),
    st.tuples(st.integers(1, 80), st.integers(1, 80)).map(sorted),
)
def test_a_smaller_setting_never_brings_the_first_token_forward(load, knob, settings):
    smaller, larger = (load.decoding + 1 + setting for setting in settings)
    less, more = measure(load, knob, smaller), measure(load, knob, larger)
    assert less.steps >= more.steps
    assert less.longest <= more.longest
    assert less.tokens >= more.tokens


@given(st.builds(Load, prompt=st.integers(1, 70), decoding=st.integers(1, 4)), st.integers(1, 80))
def test_both_knobs_move_the_long_prompt_along_the_same_curve(load, chunk):
    by_threshold = measure(load, "threshold", chunk + 1)
    by_budget = measure(load, "budget", chunk + 1 + load.decoding)
    assert by_threshold[2:6] == by_budget[2:6]


def test_whom_the_threshold_leaves_room_does_not_wait_for_the_long_prompt():
    load = Load(prompt=400, decoding=2)
    assert measure(load, "threshold", 2 * SHORT).waits == 1
    assert measure(load, "budget", 2 * SHORT + 2).waits == 400 // (2 * SHORT)


def test_a_price_is_fixed_per_step_and_by_token():
    points = [measure(TEN, "threshold", 4), measure(TEN, "threshold", 10)]
    four, ten = priced(reversed(points), StepCost(fixed=10, per_token=2))
    assert (four.point.chunk, four.ttft, four.itl) == (4, 3 * 10 + 2 * 16, 10 + 2 * 6)
    assert four.mean_itl == pytest.approx(62 / 3)
    assert (ten.ttft, ten.itl, ten.mean_itl) == (34, 34, 34)


def test_a_point_is_dominated_by_one_that_is_no_longer_in_both_and_shorter_in_one():
    # 10 = 5 + 5 = 6 + 4 = 7 + 3: two steps each. A request that coincides does not dominate.
    points = [measure(TEN, "threshold", chunk) for chunk in (4, 5, 6, 7)]
    points.append(measure(TEN, "budget", 7))
    outcome = priced(points, StepCost(1, 1))
    assert [(result.point.knob, result.point.chunk, result.dominated) for result in outcome] == [
        ("threshold", 4, False),
        ("threshold", 5, False),
        ("budget", 5, False),
        ("threshold", 6, True),
        ("threshold", 7, True),
    ]


def test_even_slices_of_thirty_thousand_tokens():
    assert even_chunk(30_000, 2048) == 2000
    assert even_chunk(30_000, 29_999) == 15_000
    assert even_chunk(30_000, 40_000) == 30_000
    assert even_chunks(30_000) == 346
    assert even_chunks(1) == 1
