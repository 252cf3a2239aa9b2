"""`schedproof show`: one page for a scenario or a trace, and one clear line for what is wrong."""

import gzip
import shlex
from pathlib import Path

import pytest

from schedproof.gate.cli.show import page_name, size_remark
from schedproof.gate.files.scenario_file import scenario_json

from ..trace_build import recorded, request, scenario, text


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """A working folder with a scenario, and a page that is small."""
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(scenario_json(scenario()), encoding="utf-8")


def test_a_file_that_the_user_did_not_name_is_overwritten_only_if_it_is_a_page(run):
    Path("s.html").write_text("<p>mine")
    result = run("show", "s.json")
    valid = "valid: name the file to write with -o"
    assert result.err == (f"schedproof: -o: s.html exists and is no page of schedproof; {valid}\n")
    assert (result.code, Path("s.html").read_text()) == (2, "<p>mine")
    assert run("show", "s.json", "-o", "s.html").code == 0
    assert run("show", "s.json").code == 0


def test_a_page_of_a_scenario(run):
    result = run("show", "s.json")
    assert (result.code, result.err) == (0, "")
    assert result.out == "s.html: every request has ended after 13 steps, and no rule is broken\n"
    assert '<script id="data"' in Path("s.html").read_text(encoding="utf-8")


def test_a_run_without_an_accepted_request_has_no_verdict(run):
    asked = scenario(request("a", 0, 5000, 3), system="generic", revision="documented")
    Path("none.json").write_text(scenario_json(asked), encoding="utf-8")
    result = run("show", "none.json")
    assert result.out == "none.html: the target refuses every request, so there is no verdict\n"


def test_a_broken_rule_names_a_command_that_shows_it(run):
    small = {"block_size": 64, "chunk_size": 256, "max_num_seqs": 2, "max_batch_tkv": 520}
    requests = (request("a", 0, 3, 3), request("b", 0, 256, 2))
    asked = scenario(*requests, revision="documented", **small, max_model_len=512)
    Path("of it.json").write_text(scenario_json(asked), encoding="utf-8")
    options = ("--rule", "SPY-R07", "--step-limit", "5")
    reported = run("replay", "of it.json", "--quiet", *options).out
    [line] = [line for line in reported.splitlines() if line.startswith("  show:")]
    words = shlex.split(line.removeprefix("  show:     "))
    assert words == ["schedproof", "show", "of it.json", *options]
    result = run(*words[1:])
    assert (result.code, result.err) == (1, "")
    page = Path("of it.html").read_text(encoding="utf-8")
    assert "Broken rule SPY-R07: " in page
    assert "2 requests x tkv 261 = 522 &gt; 520 (by 2)" in page
    assert "schedproof replay &#39;of it.json&#39; --rule SPY-R07 --step-limit 5" in page


@pytest.mark.parametrize(("size", "reported"), [(3_000_000, ""), (3_250_000, "3.2 MB")])
def test_a_page_that_is_slow_to_open_says_so(size, reported):
    assert reported in size_remark(size)
    assert bool(size_remark(size)) == bool(reported)


def test_a_page_of_a_packed_trace(run):
    Path("t.jsonl.gz").write_bytes(gzip.compress(text(recorded(scenario()))))
    result = run("show", "t.jsonl.gz", "-o", "page.html")
    assert (result.code, result.err) == (0, "")
    assert "steps are recorded and no rule is broken" in result.out
    assert "schedproof check-trace" not in result.out
    assert Path("page.html").is_file()


@pytest.mark.parametrize(
    ("file", "name"),
    [("a/b.json", "b.html"), ("t.jsonl.gz", "t.html"), ("-", "stdin.html"), ("x", "x.html")],
)
def test_the_page_is_called_after_the_file(file, name):
    assert page_name(file) == name


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("none.json", "none.json: cannot be read (No such file or directory)"),
        (".", ".: cannot be read (Is a directory)"),
        ("s.json -o s.json", "-o: s.json is the file itself; valid: another file"),
        ("s.json -o no/p.html", "-o: no/p.html: the folder no does not exist"),
        ("s.json -o .", "-o: . is a folder; valid: a file"),
        ("s.json --step-limit 0", "--step-limit: 0; valid: at least 0.1"),
        ("s.json --memory-limit 1", "--memory-limit: 1; valid: at least 64"),
        ("s.json --rule ALL-R99", "no rule 'ALL-R99'"),
        ("s.json --rule ALL-R07", "--rule: ALL-R07 does not apply to revision sound"),
        (
            "s.json --path here",
            "--path: here: valid only for sendnn-inference, vllm, nano-vllm, llmservingsim, not "
            "for ",
        ),
        ("s.json --target nothing", "TARGET 'nothing' is not understood"),
        ("t --target model", "--target: model: t is a recorded trace, which is not run again"),
        ("t --rule ALL-R99", "no rule 'ALL-R99'"),
        ("bad", "bad: line 1: "),
        ("empty", "empty: not JSON"),
    ],
)
def test_what_is_wrong_is_one_line_and_no_page(run, words, reported):
    Path("t").write_bytes(text(recorded(scenario())))
    Path("bad").write_text('{"op": "start"}\n', encoding="utf-8")
    Path("empty").write_text("", encoding="utf-8")
    result = run("show", *words.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"schedproof: {reported}")
    assert len(result.err.splitlines()) == 1
    assert not [*Path().glob("*.html")]


def test_a_target_that_breaks_the_protocol_leaves_no_page(run):
    result = run("show", "s.json", "--target", "cmd:echo no reply")
    assert result.code in (2, 3)
    assert len(result.err.splitlines()) == 1
    assert not [*Path().glob("*.html")]
