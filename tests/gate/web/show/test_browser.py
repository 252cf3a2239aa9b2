"""The page in a browser: what it shows is what the trace says, a request that asks and how."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from schedproof.gate.corpus.folder import builtin_scenarios
from schedproof.gate.web.show.recording import record_run
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.lockstep import differing
from schedproof.spec.catalogue import load, select

from . import runs

# Goes through all steps with the arrow key, and reads what each of them shows.
READ_ALL = """() => {
  const press = (key) => dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
  const number = (text) => (text === "" ? null : Number(text.replaceAll(",", "")));
  const read = () => ({
    step: Number(document.documentElement.dataset.step),
    told: document.getElementById("told").textContent,
    after: Object.fromEntries([...document.querySelectorAll("[data-after]")].map((one) =>
      [one.dataset.after, one.textContent])),
    rows: Object.fromEntries([...document.querySelectorAll("#requests tbody tr")].map((row) => [
      row.dataset.request,
      Object.fromEntries([...row.querySelectorAll("[data-field]")].map((cell) => [
        cell.dataset.field,
        cell.dataset.field === "state" ? cell.textContent : number(cell.textContent)])),
    ])),
  });
  press("Home");
  const steps = [read()];
  for (;;) {
    press("ArrowRight");
    const next = read();
    if (next.step === steps.at(-1).step) return steps;
    steps.push(next);
  }
}"""


def names(text):
    return () if text == "none" else tuple(text.split(", "))


def assert_as_the_trace(run, read):
    """Every number that the page has of a step is that of the target's observation."""
    assert [number["step"] for number in read] == list(range(len(run.steps)))
    block = run.config["block_size"]
    generated: dict[str, int] = {}
    for shown, step in zip(read, run.steps, strict=True):
        assert f": {step.kind}" in shown["told"]
        for queue in ("waiting", "running", "prefilling", "paused"):
            if getattr(step, queue) is not None:
                assert names(shown["after"][queue]) == getattr(step, queue)
        held = {each for blocks in (step.blocks or {}).values() for each in blocks}
        assert shown["after"]["blocks held"] == f"{len(held):,}"
        assert {name: row["now"] for name, row in shown["rows"].items() if row["now"]} == {
            name: tokens for name, tokens in step.scheduled.items() if tokens
        }
        for name, tokens in (step.emitted or {}).items():
            generated[name] = generated.get(name, 0) + tokens
        for name, row in shown["rows"].items():
            assert row["emitted"] == generated.get(name, 0)
            if name not in (step.finished or {}):
                assert row["computed"] == (step.computed or {}).get(name, 0)
                assert row["held"] == len((step.blocks or {}).get(name, ()))
            if name in (step.left_pad_blocks or {}):
                assert row["left"] == (step.left_pad_blocks or {})[name] * block
        if step.kind == "decode" and step.tkv is not None and run.scenario.system == "spyre":
            tkvs = {name: row["tkv"] for name, row in shown["rows"].items() if row["tkv"]}
            assert tkvs.keys() == step.scheduled.keys()
            assert max(tkvs.values()) == step.tkv
            volume = len(step.scheduled) * step.tkv
            batch = "1 request" if len(step.scheduled) == 1 else f"{len(step.scheduled)} requests"
            assert f"{batch} × tkv {step.tkv:,} = {volume:,} of" in shown["told"]
        if step.reserved_blocks is not None:
            assert shown["after"]["free blocks promised"] == f"{step.reserved_blocks:,}"


def step_of(tab):
    return int(tab.evaluate("document.documentElement.dataset.step"))


def lines(tab):
    found: list[str] = tab.locator("#happenings li").all_text_contents()
    return found


@pytest.mark.slow
def test_the_admission_figure_shows_the_facts_of_its_caption(show):
    """A row of the figure is the step before it: row 0 is the queue before the first."""
    run = runs.admission()
    tab = show(run, width=400, scheme="dark")
    read = tab.evaluate(READ_ALL)
    assert_as_the_trace(run, read)
    rows = runs.figure("scheduling_admission_constraints")["steps"]
    for row in rows[1:-1]:
        shown = read[row["step"] - 1]
        assert names(shown["after"]["waiting"]) == tuple(
            request["id"] for request in row["waiting"]
        )
        if row["step_type"] == "decode":
            drawn = {request["id"]: request["decoded"] for request in row["decoding"]}
            assert drawn == {name: shown["rows"][name]["emitted"] for name in drawn}
    # Request 1 is held back from row 5 on until request 0 has completed in row 22.
    assert all(read[row - 1]["rows"]["1"]["now"] == 0 for row in range(6, 23))
    assert "finished (eos)" in read[21]["rows"]["0"]["state"]
    # Request 4 is held back by the volume until request 2 finishes in row 45.
    for row in range(35, 46):
        assert read[row - 1]["after"]["projected with 4"].endswith("of 1,536: refused")
        assert read[row - 1]["rows"]["4"]["state"] == "waiting"
    assert read[45]["rows"]["4"]["state"] == "prefill"


@pytest.mark.slow
def test_the_padding_figure_jumps_where_its_caption_says(show):
    """The figure counts the token of the row itself: the engine is one token, and jump, behind."""
    run = runs.jumps()
    tab = show(run)
    read = tab.evaluate(READ_ALL)
    assert_as_the_trace(run, read)
    rows = runs.figure("scheduling_padding_tkv_jump")["steps"]
    # A request that leaves takes padding along: then the next step is another one.
    compared = [row for row in rows[:-1] if "completed" not in row]
    assert len(compared) == len(rows) - 4
    for row in compared:
        shown = read[row["step"] + 1 + runs.FIRST_ROW]["rows"]
        for request in row["decoding"]:
            seen = shown[request["id"]]
            assert (seen["tkv"], seen["emitted"]) == (request["tkv"], request["decoded"] + 1)
    tab.evaluate("document.getElementById('slider').focus()")
    tab.keyboard.press("Home")
    met = {}
    for _ in range(40):
        tab.keyboard.press("n")
        reported = [line for line in lines(tab) if "jumps" in line]
        if reported:
            met[step_of(tab)] = reported
    assert {step - runs.FIRST_ROW - 1 for step in met} >= {12, 17, 53}
    assert met[12 + runs.FIRST_ROW + 1] == ["the tkv of 2 jumps from 320 to 257"]


@pytest.mark.slow
def test_the_slider_the_keys_the_buttons_and_the_fragment_go_to_a_step(show):
    run = runs.preemption()
    last = len(run.steps) - 1
    tab = show(run, "#step=3")
    assert step_of(tab) == 3
    for key, step in (("ArrowRight", 4), ("ArrowLeft", 3), ("End", last), ("Home", 0)):
        tab.keyboard.press(key)
        assert step_of(tab) == step
        assert tab.url.endswith(f"#step={step}")
    tab.keyboard.press("PageDown")
    assert step_of(tab) == min(10, last)
    tab.keyboard.press("PageUp")
    assert step_of(tab) == max(min(10, last) - 10, 0)
    tab.locator("#slider").fill("5")
    assert step_of(tab) == 5
    tab.get_by_role("button", name="first").click()
    assert step_of(tab) == 0
    tab.get_by_role("slider").focus()
    tab.keyboard.press("ArrowRight")
    assert step_of(tab) == 1
    tab.evaluate("location.hash = '#step=99'")
    tab.wait_for_selector(f"html[data-step='{last}']", state="attached")


@pytest.mark.slow
def test_a_preemption_is_an_event_with_its_numbers(show):
    run = runs.preemption()
    [at, *_] = [number for number, step in enumerate(run.steps) if step.preempted]
    tab = show(run)
    assert_as_the_trace(run, tab.evaluate(READ_ALL))
    tab.keyboard.press("Home")
    while not any("is preempted" in line for line in lines(tab)):
        before = step_of(tab)
        tab.keyboard.press("n")
        assert step_of(tab) > before
    assert step_of(tab) == at
    [name, *_] = run.steps[at].preempted or ()
    story = tab.locator("#story")
    assert story.is_hidden()
    tab.locator(f"#requests tr[data-request='{name}'] button").click()
    assert story.get_by_role("button", name=f"step {at}: {name} is preempted").count() == 1
    story.get_by_role("button", name="arrives").click()
    assert step_of(tab) == next(o.arrival for o in run.scenario.requests if o.id == name)


@pytest.mark.slow
def test_a_volumetric_counterexample_at_production_scale_opens_where_it_broke(show):
    run = runs.volume()
    [broken] = run.broken
    assert (broken.rule, len(run.steps[-1].scheduled)) == ("SPY-R07", 32)
    assert len(run.steps) > 2_000
    tab = show(run)
    assert step_of(tab) == broken.step
    assert broken.message in tab.locator("#failure").text_content()
    assert f"SPY-R07: {broken.message}" in lines(tab)
    rows = tab.locator("#requests tbody tr")
    assert rows.count() == tab.locator("#grid g[data-request]").count() == 32
    tkv = tab.locator("tr[data-request='r9'] [data-field=tkv]").text_content()
    pad = (run.steps[-1].left_pad_blocks or {})["r9"] * run.config["block_size"]
    known = run.followed.requests["r9"]["computed"].at(broken.step)
    assert known is not None
    assert tkv == f"{pad + known:,}"
    row = tab.locator("#rules tr[data-rule='SPY-R07']")
    assert row.locator("td").first.text_content() == "BROKEN"
    other = tab.locator("#rules tr[data-rule='SPY-R26']")
    other.get_by_role("button").click()
    [first, *_] = run.followed.stakes["SPY-R26"].pieces
    assert step_of(tab) == first[0] < broken.step
    assert other.locator("td").first.text_content() == "held, exercised"
    assert row.locator("td").first.text_content() == "held"
    tab.wait_for_selector("html[data-pictures]", state="attached")
    assert tab.locator("figure:visible .chart").count() == 4


@pytest.mark.slow
def test_a_crash_shows_the_last_step_and_the_message(show):
    run = runs.crash()
    tab = show(run)
    assert step_of(tab) == len(run.steps) - 1 == 2
    failure = tab.locator("#failure")
    assert "pop from an <b>empty</b> batch" in failure.text_content()
    assert failure.locator("pre").text_content().splitlines()[-1].startswith("IndexError: pop")
    assert run.broken[0].rule == "ALL-R01"
    assert any(line.startswith("ALL-R01: ") for line in lines(tab))


@pytest.mark.slow
def test_model_and_target_stand_side_by_side_and_differing_fields_are_marked(show):
    run = runs.parted()
    assert run.expected is not None
    tab = show(run)
    differs = {difference.field for difference in differing(run.steps[-1], run.expected)}
    assert differs == {"tkv", "running"}
    marked = tab.locator("#lockstep tr.differs")
    assert {row.get_attribute("data-field") for row in marked.all()} == differs
    cells = tab.locator("#lockstep tr[data-field=tkv] td").all_text_contents()
    assert cells == ["≠", str(run.steps[-1].tkv), str(run.expected.tkv)]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(show, scheme):
    tab = show(runs.parted(), scheme=scheme)
    tab.locator("#requests tbody button").first.click()
    tab.wait_for_selector("html[data-pictures]", state="attached")
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.slow
def test_names_are_names_in_the_pictures_too(show):
    run = runs.odd_names()
    tab = show(run)
    tab.wait_for_selector("html[data-pictures]", state="attached")
    shown = tab.locator("#tkv .legend li").all_text_contents()
    assert [name for name in shown if name not in ("max-tkv", "jump")] == [
        request.id if len(request.id) < 15 else f"{request.id[:13]}…"
        for request in run.scenario.requests
    ]
    tab.locator("#requests tbody button").first.click()
    assert tab.locator("#story h3").text_content().startswith("$x$: prompt 3")
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.slow
def test_a_click_on_a_picture_goes_to_the_step_and_the_pointer_is_told_what_is_there(show):
    run = runs.pauses()
    tab = show(run)
    tab.wait_for_selector("html[data-pictures]", state="attached")
    bar = tab.locator("#timeline rect[data-says^='b: decode, step']").nth(3)
    said = bar.get_attribute("data-says")
    bar.hover()
    assert tab.locator("#timeline .tip").text_content() == said
    bar.click()
    step = int(re.findall(r"steps? (\d+)", said)[0])
    assert step_of(tab) == step > 3
    assert run.steps[step].scheduled["b"] > 0
    # The end of the line of max-tkv: the number of the last decode step.
    tab.locator("#tkv .chart").scroll_into_view_if_needed()
    box = tab.locator("#tkv .chart").bounding_box()
    end = tab.locator("#tkv .chart .curve").first.evaluate(
        "one => { const at = one.getPointAtLength(one.getTotalLength()); return [at.x, at.y]; }"
    )
    tab.mouse.move(box["x"] + end[0], box["y"] + end[1])
    told = tab.locator("#tkv .tip").text_content()
    [tkv, at] = [
        int(number.replace(",", ""))
        for number in re.findall(r"tkv ([\d,]+) in step (\d+)", told)[0]
    ]
    assert run.steps[at].tkv == tkv
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 60)
    assert not tab.locator("#tkv .tip").is_visible()


@pytest.mark.slow
def test_where_a_limit_is_exceeded_by_little_the_axis_is_cut_and_says_so(show):
    tab = show(runs.volume())
    tab.wait_for_selector("html[data-pictures]", state="attached")
    near = tab.locator("#near")
    assert near.text_content() == "the axis is cut: show it from 0"

    ticks = tab.locator("#volume .tick")
    assert ticks.all_text_contents().count("0") == 1  # of the steps
    near.click()
    tab.wait_for_selector("#near:has-text('show what is near the limit')")
    assert ticks.all_text_contents().count("0") == 2


@pytest.mark.slow
def test_a_batch_that_is_longer_than_the_page_opens_at_its_last_blocks(show):
    scenario = builtin_scenarios("spyre")["late-arrivals-before-961.json"]
    rules = select(load("spyre"), ["SPY-R07"])
    run = record_run(scenario, ModelTarget(), rules, name="late")
    tab = show(run)
    zoom = tab.locator("#zoom")
    assert zoom.text_content() == "the axis begins at 25,280: show the whole batch"
    ticks = [int(text.replace(",", "")) for text in tab.locator("#grid .tick").all_text_contents()]
    assert min(ticks) == 25_280
    assert max(ticks) - min(ticks) == 16 * 64
    # r4's admission breaks the limit: it is named, and its padding is not cut off.
    assert tab.locator("#grid .cause").all_text_contents() == ["r4 joined in 464"]
    assert tab.locator("#grid g[data-request='r4'] .stub").count() == 1
    zoom.click()
    assert zoom.text_content() == "show the last blocks of the batch"
    whole = [int(text.replace(",", "")) for text in tab.locator("#grid .tick").all_text_contents()]
    assert min(whole) == 0
    tab.locator("#failure a").click()
    tab.wait_for_selector("html[data-step='464']", state="attached")


@pytest.mark.slow
def test_a_short_batch_is_drawn_whole_and_rules_without_a_step_are_folded(show):
    run = runs.preemption()
    tab = show(run)
    assert not tab.locator("#zoom").is_visible()
    never = [rule.id for rule in run.checked if not run.followed.stakes[rule.id].pieces]
    assert len(never) > 1
    fold = tab.locator("#never")
    words = f"{len(never)} rules were never exercised in this run"
    assert fold.locator("summary").text_content() == words
    for rule in never:
        assert rule in fold.locator("p").text_content()
        assert not tab.locator(f"#rules tr[data-rule='{rule}']").is_visible()
