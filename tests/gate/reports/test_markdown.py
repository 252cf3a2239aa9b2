"""The comment for a pull request: short whatever was found, and a command for each fault."""

from msgspec.structs import replace

from schedproof.gate.judging.verdict import Change, Concluded, TargetInfo
from schedproof.gate.reports.markdown import markdown
from schedproof.gate.reports.options import FileReport

from .. import reported


def test_each_fault_is_a_line_and_its_command():
    verdict = reported.verdict()
    lines = markdown(verdict).splitlines()
    inside = lines[lines.index("```") + 1 : -1]
    assert [line.partition(" ")[0] for line in inside[::2]] == ["1.", "2."]
    assert all(line.startswith("schedproof replay ") for line in inside[1::2])
    assert lines[2].startswith("**2 faults**; 1 rule held, 3 not judged")


def test_a_comment_has_at_most_40_lines():
    verdict = reported.verdict()
    many = tuple(replace(verdict.faults[0], number=n, message="x" * 5_000) for n in range(60))
    rules = tuple(replace(entry, status="inconclusive") for entry in verdict.rules) * 30
    text = markdown(replace(verdict, faults=many, rules=rules, fault="it left"))
    assert len(text.splitlines()) <= 40
    assert len(text) < 60_000  # GitHub takes 65,536 characters
    assert "and 50 more faults" in text


def test_against_a_base_only_new_faults_are_counted():
    change = Change("ALL-R05", "s.json", 3, "m", "schedproof replay s.json")
    base = TargetInfo("vllm==0.28.0", "vllm", "0.28.0")
    verdict = replace(reported.verdict(), base=base, repaired=(change,), decisions=(change,) * 3)
    text = markdown(verdict)
    assert "**2 faults that the base does not have**" in text
    assert r"compared with vllm 0\.28\.0\: 3 kinds of difference; repairs ALL\-R05" in text


def test_nobody_is_mentioned():
    target = replace(reported.verdict().target, name="@octocat @org/team")
    text = markdown(replace(reported.verdict(), target=target)).partition("```")[0]
    assert "octocat" in text
    assert "@o" not in text  # a backslash before @ does not keep GitHub from notifying


def test_hostile_words_are_text(tmp_path):
    file = tmp_path / "comment.md"
    report = FileReport(file, reported.RULES, lambda verdict, *_: markdown(verdict))
    for event in reported.events():
        report(event)
    text = file.read_text(encoding="utf-8")
    assert text.count("```") == 2
    assert not any(character in text for character in "\x1b\x00\u202e")
    before = text.partition("```")[0]
    assert "<b>" not in before
    assert isinstance(reported.events()[-1], Concluded)
