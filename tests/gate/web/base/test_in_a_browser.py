"""Both pages in Chromium: by mouse and by keyboard, wide and narrow, light and dark."""

import threading
from dataclasses import replace

import msgspec
import pytest

from schedproof.gate.explore.explorer import chosen_rules, chosen_scopes
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.web.base.page import render_page
from schedproof.gate.web.gate_page import gate_page
from schedproof.gate.web.states import page_data
from schedproof.gate.web.step.server import Server
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.solver.exploration.exploration import ExploreOptions
from schedproof.solver.exploration.graph import draw_graph
from schedproof.spec.catalogue import load, select

from ... import reported
from .. import test_gate_page
from ..step.by_hand import Crashes, by_hand
from .browser import browser, faults, is_as_wide_as_its_window, page_at

# Places of the path, in pixels from the top of the drawing's window, that are not in it.
IN_VIEW = """() => {
  const view = document.getElementById("view").getBoundingClientRect();
  return [...document.querySelectorAll("#graph path.way.state")]
    .map((state) => state.getBoundingClientRect().top - view.top)
    .filter((top) => top < 0 || top > view.height);
}"""
RULES = select(chosen_rules(load("spyre"), None, "documented"), ["SPY-R07", "SPY-R22", "SPY-R36"])


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def graph_page(tmp_path_factory):
    """The address of a graph's page, and its data."""
    return written(tmp_path_factory.mktemp("graph") / "states.html", 2_000)


def written(file, most):
    [scope] = chosen_scopes(["lengths"], "spyre", "documented")
    graph = draw_graph(
        ExploreOptions("documented", replace(scope, requests=2, limits=(6,))), RULES, most
    )
    data = page_data(graph, RULES)
    file.write_text(render_page("graph", data), encoding="utf-8")
    return file.as_uri(), data


@pytest.mark.slow
def test_the_graph_by_mouse_and_the_runs_that_it_gives(chromium, graph_page, tmp_path):
    address, data = graph_page
    with page_at(chromium, address) as page:
        assert page.title() == data["title"]
        broken_ids = [rule["id"] for rule in data["rules"] if rule["verdict"] == "broken"]
        assert page.input_value("#rule") == broken_ids[0]
        assert page.locator("#graph.chosen .rest").count() == 3
        assert page.inner_text("#live").startswith("state 0, ")  # the run is told from its start
        assert page.evaluate(IN_VIEW) == []

        page.select_option("#rule", "")
        page.click("#start")
        assert page.locator("#graph.chosen").count() == 0
        assert page.locator("#graph path.state").count() == len(data["states"])
        assert page.locator("#graph path.edge").count() == len(data["moves"])
        assert "state0" in page.inner_text("#state").replace("\n", "").replace(" ", "")

        page.locator("#graph path.state").nth(1).click(force=True)
        assert "1, before a step: the clients moved last" in page.inner_text("#state")
        assert page.inner_text("#path") == "r0 arrives"
        page.get_by_role("button", name="r0 is read: prompt 2").first.click()
        assert page.locator("#path li").count() == 2

        page.select_option("#rule", "SPY-R07")
        [broken] = [rule for rule in data["rules"] if rule["id"] == "SPY-R07"]
        assert "✕ broken" in page.inner_text("#rule-told")
        assert page.locator("#graph path.way.edge").count() == len(broken["path"])
        assert page.locator("#way li").count() == len(broken["path"])
        assert page.inner_text("#command") == broken["command"]
        with page.expect_download() as saving:
            page.click("#save-rule")
        saved = tmp_path / saving.value.suggested_filename
        saving.value.save_as(saved)
        outcome = replay(ModelTarget(), read_scenario(saved), select(RULES, ["SPY-R07"]))
        assert [failure.message for failure in outcome.broken] == [broken["message"]]

        with page.expect_download() as saving:
            page.click("#save-state")
        saving.value.save_as(tmp_path / "state.json")
        assert len(read_scenario(tmp_path / "state.json").requests) == 2
        page.select_option("#rule", "SPY-R36")
        assert "○ not exercised" in page.inner_text("#rule-told")
        assert page.locator("#graph path.way").count() == 0


@pytest.mark.slow
def test_the_graph_by_keyboard(chromium, graph_page):
    address, data = graph_page
    [broken] = [rule for rule in data["rules"] if rule["id"] == "SPY-R07"]
    with page_at(chromium, address) as page:
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "view":
                break
        page.select_option("#rule", "")
        page.focus("#view")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert page.locator("#path li").count() == 1
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowLeft")
        assert page.locator("#path li").count() == 0
        assert page.inner_text("#live").startswith("state 0, ")

        page.focus("#rule")
        page.keyboard.press("ArrowDown")  # what is broken comes first
        assert "✕ broken" in page.inner_text("#rule-told")
        page.focus("#view")
        page.keyboard.press("Home")
        for _ in broken["path"][:-1]:
            page.keyboard.press("ArrowRight")
        source = data["moves"][broken["path"][-1]]["from"]
        assert page.inner_text("#live").startswith(f"state {source}, ")
        assert "✕ breaks SPY-R07" in page.inner_text("#moves")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_the_graph_is_for_everybody(chromium, tmp_path, width, scheme):
    address, data = written(tmp_path / "cut.html", 40)  # axe looks at every shape
    with page_at(chromium, address, width, scheme) as page:
        assert page.inner_text("#cut") == data["cut"]
        page.select_option("#rule", "SPY-R22")
        assert faults(page) == []
        assert is_as_wide_as_its_window(page)


@pytest.fixture
def server(request):
    """A run by hand that is served; of a target that crashes where the test says so."""
    target = getattr(request, "param", None)
    started = Server(by_hand(target and target()), "", 0)
    thread = threading.Thread(target=started.serve_forever, args=(0.01,))
    thread.start()
    yield started
    started.shutdown()
    thread.join()
    started.server_close()


def settle(page):
    """Wait until the server has answered."""
    page.locator("body:not([aria-busy])").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_a_small_run_by_hand_with_the_keyboard(chromium, server, tmp_path, width, scheme):
    with page_at(chromium, server.address, width, scheme) as page:
        page.focus("#prompt")
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("10")
        page.keyboard.press("Enter")
        settle(page)
        assert "r0 arrives before the next step" in page.inner_text("#requests")
        for _ in range(3):
            page.focus("#step")
            page.keyboard.press("Enter")
            settle(page)
        assert page.inner_text("#next") == "3"
        assert page.inner_text("#line").startswith("step 2 decode r0+1")
        assert "batch × tkv: 11 of 40 tokens" in page.inner_text("#measures")
        cells = page.get_by_role("img", name="r0, running, in tokens: prompt 10, generated 1")
        assert cells.count() == 1
        page.focus("[aria-label='r0: the next token is EOS']")
        page.keyboard.press("Enter")
        settle(page)
        assert "→ its next token is EOS" in page.inner_text("#requests")
        assert faults(page) == []
        assert is_as_wide_as_its_window(page)
        page.click("#step")
        settle(page)
        assert "finished {r0 eos}" in page.inner_text("#line")
        assert "no rule is broken; " in page.inner_text("#verdict")
        assert "finished {r0 eos}" in page.inner_text("#live")
        page.click("#undo")
        settle(page)
        assert page.inner_text("#next") == "3"
        with page.expect_download() as saving:
            page.click("#save")
        saving.value.save_as(tmp_path / "by-hand.json")
    [request] = read_scenario(tmp_path / "by-hand.json").requests
    assert (request.prompt_len, request.output_len) == (10, 3)


class Talks(Crashes):
    """Says much when it crashes, on one line."""

    words = "boom" * 100


@pytest.mark.slow
@pytest.mark.parametrize("server", [Talks], indirect=True)
def test_a_crash_is_shown_with_its_rule_and_stepping_begins_anew(chromium, server):
    with page_at(chromium, server.address) as page:
        page.click("text=A request arrives")
        settle(page)
        for _ in range(2):
            page.click("#step")
            settle(page)
        assert "✕ BROKEN ALL-R01 never crashes" in page.inner_text("#broken")
        assert "boom" * 20 in page.inner_text("#broken pre")
        assert page.is_disabled("#step")
        assert faults(page) == []
        assert is_as_wide_as_its_window(page)
        page.click("#restart")
        settle(page)
        assert page.inner_text("#line") == "no step has been taken yet"
        assert page.is_enabled("#step")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_the_page_of_a_gate_is_for_everybody(chromium, tmp_path, width, scheme):
    verdict, found = test_gate_page.page()
    event = next(iter(found.values()))
    faults_of_each_kind = tuple(
        msgspec.structs.replace(verdict.faults[0], number=number, scenario=f"{number}.json")
        for number, _ in enumerate(test_gate_page.CAUSES, 1)
    )
    events = {
        f"{number}.json": msgspec.structs.replace(event, cause=cause)
        for number, cause in enumerate(test_gate_page.CAUSES, 1)
    }
    drawn = msgspec.structs.replace(verdict, faults=faults_of_each_kind)
    file = tmp_path / "gate.html"
    file.write_text(gate_page(drawn, reported.BY_ID, events), encoding="utf-8")
    with page_at(chromium, file.as_uri(), width, scheme) as page:
        assert page.locator("figure.cause").count() == len(test_gate_page.CAUSES)
        assert faults(page) == []
        assert is_as_wide_as_its_window(page)
