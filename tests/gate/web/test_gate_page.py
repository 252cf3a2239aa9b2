"""The page of a gate: every fault with its cause, on a page that runs no script."""

import re

from msgspec.structs import replace

from schedproof.gate.judging.coverage import Coverage, FileCoverage, FunctionCoverage
from schedproof.gate.judging.verdict import Found, Refusal
from schedproof.gate.reports.options import FileReport
from schedproof.gate.web.base.drawing import picture
from schedproof.gate.web.gate_page import DRAWN, gate_page
from schedproof.properties.explanations.cause import Bar, Cause, Cell, Curve, Need, Part, Row

from .. import reported

CURVE = Curve("batch × tkv", "tokens", 520, ((1, 9), (2, 522)), ((1, 3, 519, "<i>"),))
CAUSES = (
    Cause("lost <b>", ("step 3: r0 leaves",), cells=(Cell(3, 3, "lost", ("r0",), "r0 8–11"),)),
    Cause("never", bars=(Bar("<i>", (Part("cached", 8), Part("never", 4))),)),
    Cause(
        "522/520",
        curve=Curve("batch × tkv", "tokens", 520, ((1, 9), (2, 522)), ((1, 3, 519, "b"),)),
    ),
    Cause("waits", rows=(Row("<r>", "waits", ("4", "·", "×"), (Need("slots", 1, 0),), True),)),
)


def page(**changes):
    verdict = reported.verdict(**changes)
    found = {
        event.finding.scenario: event for event in reported.events() if isinstance(event, Found)
    }
    return verdict, found


def test_every_fault_is_on_the_page_with_its_command():
    verdict, found = page()
    html = gate_page(verdict, reported.BY_ID, found)
    for fault in verdict.faults:
        assert f'id="fault-{fault.number}"' in html
        assert fault.rule in html
    assert html.count("schedproof replay ") == len(verdict.faults)
    assert "60" in html  # the runs of hypothesis


def test_what_was_refused_is_counted_and_what_the_base_breaks_is_not_called_accepted():
    verdict, found = page()
    entry = replace(verdict.rules[0], status="known")
    verdict = replace(verdict, rules=(entry,), refusals=(Refusal(1, "no pool"), Refusal(2, "no")))
    html = gate_page(verdict, reported.BY_ID, found)
    assert (
        "<p>refused 1 configuration: no pool</p><p>refused 2 configurations, such as: no</p>"
        in html
    )
    assert "1 known, and accepted" in html
    html = gate_page(replace(verdict, base=verdict.target), reported.BY_ID, found)
    assert "1 broken by the base as well, or accepted" in html


def test_each_kind_of_cause_is_drawn_and_nothing_in_it_is_markup():
    verdict, found = page()
    fault, event = verdict.faults[0], next(iter(found.values()))
    for cause in CAUSES:
        drawn = {fault.scenario: replace(event, cause=cause)}
        html = gate_page(replace(verdict, faults=(fault,)), reported.BY_ID, drawn)
        figure = re.search(r'<figure class="cause">.*?</figure>', html, re.DOTALL)
        assert figure is not None
        assert not {"<i>", "<r>", "lost <b>"} & {*re.findall("<i>|<r>|lost <b>", figure[0])}


def test_a_jump_over_the_limit_comes_from_below_the_axis():
    points = ((1, 130870), (2, 130880), (3, 131075))
    curve = Curve("batch × tkv", "tokens", 131072, points, ((1, 3, 131070, "b"),))
    drawn = picture(Cause("3 over", curve=curve))
    assert drawn is not None
    assert drawn.chart is not None
    below, over = drawn.chart.spots
    assert below.y > 100
    assert over == drawn.chart.over


def test_there_is_no_script_and_nothing_from_elsewhere():
    verdict, found = page()
    html = gate_page(verdict, reported.BY_ID, found)
    assert "<script" not in html
    assert "alert(1)</" not in html
    assert not re.search(r'\son\w+="|src="|href="(?!#|data:,)', html)


def test_a_page_of_many_faults_stays_small():
    verdict, found = page()
    fault, event = verdict.faults[0], next(iter(found.values()))
    cells = tuple(Cell(n, n, "held", (f"r{n}",), f"r{n} 0–15") for n in range(48))
    events = {
        f"{n}.json": replace(event, cause=Cause("many", cells=cells, rows=CAUSES[3].rows * 32))
        for n in range(60)
    }
    faults = tuple(replace(fault, number=n, scenario=f"{n}.json") for n in range(60))
    html = gate_page(replace(verdict, faults=faults), reported.BY_ID, events)
    assert len(html.encode()) < 500_000
    assert html.count('<figure class="cause">') == DRAWN


def test_coverage_is_on_it_where_it_is_known(tmp_path):
    verdict, found = page()
    function = FunctionCoverage("Pool.free_all", 12, 5, 0, "12-17")
    file = FileCoverage("pool.py", str(tmp_path / "pool.py"), 40, 30, (function,))
    verdict = replace(verdict, coverage=Coverage(40, 30, 3, 1, (file,), "coverage.html"))
    html = gate_page(verdict, reported.BY_ID, found)
    assert "30 of 40 (75 %)" in html
    assert "Pool.free_all" in html


def test_the_file_is_written_at_the_end(tmp_path):
    report = FileReport(tmp_path / "page.html", reported.RULES, gate_page)
    for event in reported.events():
        assert not (tmp_path / "page.html").exists()
        report(event)
    assert "Fault 1" in (tmp_path / "page.html").read_text(encoding="utf-8")
