"""`schedproof gate`: a verdict for every target, an exit code, and nothing left behind."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from schedproof.gate.files.disk import FileError, write
from schedproof.gate.judging import verdict
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.reports import options
from schedproof.gate.targets import probe as probing
from schedproof.spec.catalogue import load

from ..toys import PATIENCE, gate_json, is_gone, load_rules, small_gate, statuses

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def every_scale(folder, monkeypatch):
    monkeypatch.setattr(probing, "SCALES", ("small", "short", "tight"))


@pytest.fixture
def published(folder, monkeypatch):
    """The published counterexamples are among what is run."""
    monkeypatch.setitem(PROFILES, "quick", Profile(2, 0, 8, corpus_steps=2_000))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Garbage", "more than one reply: 'Loading model"),
        ("Missing", "the step lacks the field waiting, although observes lists it"),
        ("NoOk", 'not an object with "ok" true or false'),
        ("IdleAndBusy", "kind idle with 1 requests scheduled"),
        ("WrongType", "Expected `int | null`, got `str`"),
        ("LateGarbage", "the step lacks the field waiting, although observes lists it"),
    ],
)
def test_a_broken_target_is_neither_a_pass_nor_a_broken_rule(name, says, run, toy):
    if name == "Garbage":
        says = "'step' "  # named as no JSON, or as one reply too many where both are read at once
    result, data = gate_json(run, toy(name))
    assert result.code == data["exit_code"] == 3
    line = next(line for line in result.err.splitlines() if line.startswith("schedproof: "))
    assert line.startswith(
        ("schedproof: ADAPTER: at 'step' ", "schedproof: broken target: at 'step' ")
    )
    assert says in line
    assert says in data["fault"]
    assert "violated" not in statuses(data).values()
    assert "inconclusive" in statuses(data).values()
    assert "conforms" not in result.out
    assert not Path("schedproof-out").exists()


def test_a_start_that_is_no_reply_is_a_broken_target(run, toy):
    result = run("gate", toy("Observes"))
    assert (result.code, result.out) == (3, "")
    assert result.err == (
        "schedproof: ADAPTER: at 'start' observes is tkv; valid: a list of field names\n"
    )


@pytest.mark.usefixtures("every_scale")
def test_a_target_that_refuses_every_configuration_is_exit_2_with_its_words(run, toy):
    result = run("gate", toy("Refuses"))
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "schedproof: the target refuses the configuration of every scale: "
        "small (block_size must be 16) and short (block_size must be 16) "
        "and tight (block_size must be 16); it was started as spyre; --system chooses another: "
        "vllm, nano_vllm, llmservingsim, generic\n"
    )
    named = run("gate", toy("Refuses"), "--system", "spyre")
    assert named.err.endswith("and tight (block_size must be 16)\n")


@pytest.mark.usefixtures("every_scale")
def test_a_scale_that_the_target_refuses_is_left_out_and_named(run, toy):
    result, data = gate_json(run, toy("LargeBlocks"), "--rule", "ALL-R03")
    assert (
        "scale small left out, because the target refuses it: block_size must be 64" in result.out
    )
    scales = [engine["scale"] for engine in data["engines"]]
    assert "small" not in scales
    assert {"short", "tight"} <= {*scales}


def test_a_target_that_raises_at_its_first_start_is_exit_2_with_the_traceback(run, toy):
    result = run("gate", toy("CannotStart"))
    assert (result.code, result.out) == (2, "")
    first, *rest = result.err.splitlines()
    words = (
        "schedproof: the scheduler raised at 'start': ValueError: no device, in the configuration "
    )
    assert first.startswith(words)
    assert rest[-2] == "  | ValueError: no device"
    assert rest[-1].startswith(
        "schedproof: it was started as spyre; --system chooses another: vllm"
    )


@pytest.mark.slow
def test_a_target_that_rejects_every_request_breaks_one_rule_and_exercises_no_step(run, toy):
    result, data = gate_json(run, toy("Rejects"))
    assert result.code == 1
    by_id = {rule.id: rule for rule in load("spyre")}
    found = statuses(data)
    assert found.pop("ALL-R12") == "violated"
    assert found.pop("SPY-R33") == "held"  # what it says of itself at the start
    for rule, status in found.items():
        assert status == ("not_exercised" if by_id[rule].checked else "not_observable"), rule
    assert all(engine["rejected_requests"] > 0 for engine in data["engines"])
    assert "requests refused" in result.out


@pytest.mark.slow
def test_a_target_that_shows_little_is_judged_by_what_it_shows(run, toy):
    result, data = gate_json(run, toy("Little"))
    assert statuses(data)["ALL-R03"] == "not_observable"
    assert "not observable 28 rules: the target does not show " in result.out
    assert run("gate", toy("Little"), "--rule", "ALL-R03", "--profile", "quick").code == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rule", "says", "details"),
    [
        ("Crash", "ALL-R01", "the scheduler raised at 'step': ValueError", "in when_two_run"),
        ("Exit", "ALL-R01", "it ended with exit code 7", "assert failed"),
        ("Hang", "ALL-R02", "no reply to 'step' within 0.5 s", "in when_two_run"),
    ],
)
def test_crash_hang_and_exit_break_their_rule_and_leave_no_process(
    name, rule, says, details, run, toy
):
    result, data = gate_json(run, toy(name), "--step-limit", "0.5", "--max-failures", "1")
    assert result.code == data["exit_code"] == 1
    violated = [entry for entry in data["rules"] if entry["status"] == "violated"]
    assert [entry["id"] for entry in violated] == [rule]
    assert says in violated[0]["message"]
    assert f"BROKEN {rule}" in result.out
    assert says in result.out
    assert details in result.out
    assert "\x1b" not in result.out
    assert data["findings"]
    assert all(Path(finding["scenario"]).is_file() for finding in data["findings"])
    assert is_gone(int(Path("toy.pid").read_text()))


@pytest.mark.slow
def test_a_hang_gives_the_same_verdict_in_two_processes_which_leave_none(run, toy):
    verdicts = []
    for jobs in ("1", "2"):
        _, data = gate_json(run, toy("Hang"), "--step-limit", "0.5", "--jobs", jobs)
        assert is_gone(int(Path("toy.pid").read_text()))
        verdicts.append(
            [(rule["id"], rule["status"], rule.get("message")) for rule in data["rules"]]
        )
    assert verdicts[0] == verdicts[1]


@pytest.mark.slow
def test_a_crash_counts_though_another_rule_was_chosen(run, toy):
    result, data = gate_json(run, toy("Crash"), "--rule", "SPY-R35", "--max-failures", "1")
    assert result.code == 1
    assert statuses(data)["ALL-R01"] == "violated"


@pytest.mark.slow
def test_a_module_in_this_folder_is_a_target_and_may_print(run, toy, folder):
    _, data = gate_json(run, "toys:Toy", "--rule", "ALL-R03")
    assert "violated" not in statuses(data).values()
    assert data["fault"] is None
    assert data["target"]["spec"] == "toys:Toy"


@pytest.mark.slow
@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("command", "as_printed"), [("model", False), ("Crash", True)], ids=["model", "process"]
)
def test_the_printed_command_breaks_the_same_rule_at_the_same_step(command, as_printed, run, toy):
    target, options = ("model", ["--revision", "documented"])
    if as_printed:
        target, options = toy(command), ["--step-limit", "7"]
    result, data = gate_json(run, target, *options, "--max-failures", "1")
    finding = data["faults"][0]
    printed = re.findall(r"^  replay:   (.*)$", result.out, re.MULTILINE)[0]
    assert ("--step-limit 7" in printed) == as_printed
    again = subprocess.run(printed, shell=True, capture_output=True, text=True, timeout=PATIENCE)
    assert again.returncode == 1, again
    assert f"BROKEN {finding['rule']}" in again.stdout
    assert f"step {finding['step']}:" in again.stdout
    if not as_printed:
        assert finding["message"] in again.stdout
    assert again.stderr == ""


@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_the_printed_command_checks_the_rules_that_were_chosen(run):
    words = ("--revision", "documented", "--rule", "SPY-R35,SPY-R07", "--max-failures", "1")
    result = run("gate", *words, "--profile", "quick")
    assert result.code == 1
    assert " --rule SPY-R07,SPY-R35\n" in result.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "ends"),
    [
        ("Slow", 3, signal.SIGINT),
        ("CrashThenSlow", 1, signal.SIGTERM),
        ("Slow", 3, signal.SIGHUP),
    ],
)
def test_a_signal_keeps_what_was_found_and_leaves_no_process(name, code, ends, toy, folder):
    command = ["schedproof", "gate", toy(name), "--profile", "quick", "--json", "v.json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (folder / "slow").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(ends)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == code, err
    assert err == "schedproof: interrupted: the verdict covers only what had run by then\n"
    data = json.loads((folder / "v.json").read_bytes())
    assert data["interrupted"] is True
    assert data["exit_code"] == code
    assert is_gone(int((folder / "toy.pid").read_text()))
    found = [Path(finding["scenario"]) for finding in data["findings"]]
    assert bool(found) == (code == 1)
    assert all(path.is_file() for path in found)


@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_the_verdict_file_has_every_documented_key(run):
    _, data = gate_json(run, "--revision", "documented")
    read = msgspec.convert(data, verdict.Verdict, strict=True)
    assert data["format"] == "schedproof/verdict@1"
    assert json.loads(msgspec.json.encode(read)) == data
    for name, kind, found in (
        ("verdict", verdict.Verdict, data),
        ("target", verdict.TargetInfo, data["target"]),
        ("engine", verdict.EngineRun, data["engines"][0]),
        ("rule", verdict.RuleVerdict, data["rules"][0]),
        ("finding", verdict.Finding, data["findings"][0]),
    ):
        assert found.keys() == set(kind.__struct_fields__), name
    assert set(statuses(data).values()) >= {"held", "violated", "not_observable"}


@pytest.mark.slow
def test_what_is_known_of_a_release_is_printed_as_a_divergence_with_the_rule(run, toy, monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", Profile(40, 0, 20, corpus_steps=0))
    words = ("--revision", "sound", "--rule", "SPY-R22", "--max-failures", "1")
    result, data = gate_json(run, toy("Release"), *words)
    assert (result.code, result.err) == (1, "")
    [rule] = load_rules("SPY-R22")
    first = rule.divergences[0]
    known = f"{first.releases}: {first.statement} ({first.change})"
    assert [entry["divergence"] for entry in data["rules"]] == [known]
    assert [finding["divergence"] for finding in data["findings"]] == [known]
    lines = result.out.splitlines()
    assert f"  known:    {known}" in lines
    start = next(n for n, line in enumerate(lines) if line.startswith("diverges"))
    assert lines[start].startswith(f"diverges       SPY-R22  {rule.title}: ")
    assert lines[start + 1 : start + 3] == [
        f"    the rule: {rule.statement}",
        f"    known divergence of {known}",
    ]
    assert "does not conform (1 fault, 0 held, 1 broken (1 known divergence); seed 0)" in lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("model", "--revision", "documented", "--rule", "SPY-R07,ALL-R03"),
        ("Ghost", "--rule", "SPY-R07,ALL-R03"),
    ],
    ids=lambda words: words[0],
)
def test_the_same_seed_gives_the_same_verdict_file_byte_for_byte_but_for_the_time(words, toy):
    target, *options = words
    target = target if target == "model" else toy(target)
    command = ["gate", target, *options, "--profile", "quick", "--seed", "5", "--json", "v.json"]
    files = []
    for hash_seed in ("1", "2"):
        done = small_gate(*command, PYTHONHASHSEED=hash_seed)
        assert (done.returncode, done.stderr) == (1, b"")
        written = Path("v.json").read_bytes()
        timed = re.compile(rb'"(seconds|found_after|shrunk_in)": [0-9.e-]+')
        files.append(timed.sub(rb'"\1": 0', written))
    assert json.loads(files[0])["findings"]
    assert files[0] == files[1]


@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_all_reports_are_of_one_gate(run, folder):
    words = ("--junit", "j.xml", "--sarif", "s.sarif", "--ndjson", "e.ndjson", "--github")
    result, data = gate_json(run, "--revision", "documented", *words)
    assert (result.code, result.err) == (1, "")
    paths = [fault["scenario"] for fault in data["faults"]]
    lines = (folder / "e.ndjson").read_bytes().splitlines()
    assert [event for line in lines if (event := json.loads(line))["event"] == "verdict"] == [
        json.loads(lines[-1])
    ]
    assert json.loads(lines[-1])["verdict"] == data
    results = json.loads((folder / "s.sarif").read_bytes())["runs"][0]["results"]
    where = [other["locations"][0]["physicalLocation"]["artifactLocation"] for other in results]
    assert where == [{"uri": path} for path in paths]
    assert re.findall("^::error file=([^,]*),", result.out, re.MULTILINE) == paths
    assert b"replay:   schedproof replay schedproof-out/SPY-R07-" in (folder / "j.xml").read_bytes()


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_named_and_the_verdict_is_told_all_the_same(
    run, folder, monkeypatch
):
    def full(path, data):
        if path.name == "j.xml":
            raise FileError("j.xml: cannot be written to (No space left on device)")
        write(path, data)

    monkeypatch.setattr(options, "write", full)
    result, data = gate_json(run, "model", "--rule", "SPY-R07", "--junit", "j.xml")
    assert result.code == 2
    assert result.err == "schedproof: j.xml: cannot be written to (No space left on device)\n"
    assert "against sound: conforms" in result.out
    assert data["exit_code"] == 0


@pytest.mark.slow
def test_a_gate_that_is_killed_leaves_what_it_had_reported(toy, folder):
    command = ["schedproof", "gate", toy("CrashThenSlow"), "--profile", "quick"]
    with subprocess.Popen(
        [*command, "--ndjson", "e.ndjson"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (folder / "slow").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            process.kill()
    events = [json.loads(line) for line in (folder / "e.ndjson").read_bytes().splitlines()]
    found = [event for event in events if event["event"] == "found"]
    assert events[0]["event"] == "began"
    assert found
    assert all(Path(event["finding"]["scenario"]).is_file() for event in found)


@pytest.mark.slow
def test_rules_may_be_given_by_commas_or_by_repetition(run):
    _, commas = gate_json(run, "model", "--rule", "SPY-R07, SPY-R26")
    _, repeated = gate_json(run, "model", "--rule", "SPY-R26", "--rule", "SPY-R07")
    assert list(statuses(commas)) == list(statuses(repeated)) == ["SPY-R26", "SPY-R07"]
    assert statuses(commas) == statuses(repeated)


@pytest.mark.parametrize(
    ("rule", "status"), [("SPY-R01", "not_observable"), ("SPY-R24", "not_exercised")]
)
def test_a_chosen_rule_that_is_not_checked_is_no_pass(rule, status, run, monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", Profile(1, 0, 0, corpus_steps=0))
    result, data = gate_json(run, "model", "--rule", rule)
    assert statuses(data) == {rule: status}
    assert result.code == 3
    assert "inconclusive" in result.out


@pytest.mark.slow
def test_the_sound_model_conforms(run):
    result, data = gate_json(run, "model")
    assert (result.code, result.err) == (0, "")
    assert "sound against sound: conforms" in result.out.splitlines()[-1]
    by_id = {rule.id: rule for rule in load("spyre")}
    for rule, status in statuses(data).items():
        valid = {"held", "not_exercised"} if by_id[rule].checked else {"not_observable"}
        assert status in valid, rule
    assert not Path("schedproof-out").exists()


@pytest.mark.slow
def test_a_key_that_is_set_has_its_value_in_every_run(run):
    words = ("--config", "kv_connector=true", "--config", "async_scheduling=true")
    result, data = gate_json(run, "model", "--system", "vllm", "--profile", "quick", *words)
    assert result.code == 0
    assert data["config"] == {"kv_connector": True, "async_scheduling": True}
    assert "every configuration has kv_connector true, async_scheduling true" in result.out
    assert statuses(data)["V1-R23"] == "held"
    assert statuses(data)["V1-R07"] == "held"  # as in runs without a connector


@pytest.mark.slow
def test_what_does_not_go_with_what_is_set_is_not_run(run):
    """Chunks of 2 tokens are drawn for blocks of 2."""
    result, data = gate_json(run, "model", "--profile", "quick", "--config", "block_size=4")
    assert result.code == 0
    assert sum(engine["refused_configs"] for engine in data["engines"]) > 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["nothing"], "--config: 'nothing'; valid: KEY=VALUE with block_size, "),
        (["block=4"], "--config: 'block=4'; valid: KEY=VALUE with block_size, "),
        (["policy=lifo"], "policy"),
        (['policy="\\ud800"'], "is not UTF-8"),
        (['kv_groups=[{"kind": "full", "kind": "full"}]'], "kv_groups"),
        (["reused_ids=true", "kv_connector=true"], "true with a kv_connector is not modelled"),
    ],
)
def test_a_key_that_cannot_be_set_is_one_line(run, changes, says):
    options = [word for change in changes for word in ("--config", change)]
    result = run("gate", "model", "--system", "vllm", *options)
    assert result.code == 2
    [line] = result.err.splitlines()
    assert line.startswith("schedproof: --config: ")
    assert says in line


@pytest.mark.slow
@pytest.mark.usefixtures("published")
def test_the_first_finding_is_drawn_and_opened_where_that_is_asked_for(run, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    words = ("--revision", "documented", "--rule", "SPY-R07", "--profile", "quick", "--open")
    result = run("gate", "model", *words)
    assert result.code == 1
    [uri] = opened
    page = Path(uri.removeprefix("file://"))
    assert page.suffix == ".html"
    assert "SPY-R07" in page.read_text(encoding="utf-8")
    assert run("gate", "model", "--rule", "SPY-R07", "--profile", "quick", "--open").code == 0
    assert len(opened) == 1


def test_the_code_of_a_factory_that_no_run_entered_is_named(run, folder):
    (folder / "mine.py").write_text(
        "from schedproof.model.target import ModelTarget\n"
        "class Mine(ModelTarget):\n"
        "    def step(self):\n"
        "        return super().step()\n"
        "    def never(self):\n"
        "        return None\n",
        encoding="utf-8",
    )
    result, data = gate_json(run, "mine:Mine", "--rule", "ALL-R01")
    assert "coverage       50 % of 2 lines in functions: mine.py 50 %\n" in result.out
    page = Path("schedproof-out/coverage.html")
    line = f"never entered  1 of 2 functions: Mine.never ({page} lists them)"
    assert line in result.out.splitlines()
    assert [function["entered"] for function in data["coverage"]["files"][0]["functions"]] == [1, 0]
    assert "Mine.never" in page.read_text(encoding="utf-8")
    page.unlink()
    result, data = gate_json(run, "mine:Mine", "--rule", "ALL-R01", "--no-coverage")
    assert "never entered" not in result.out
    assert data["coverage"] is None
    assert not page.exists()


def test_a_page_of_coverage_that_cannot_be_written_is_refused_before_the_run(run, folder):
    (folder / "mine.py").write_text("from schedproof.model.target import ModelTarget as Mine\n")
    page = folder / "schedproof-out" / "coverage.html"
    page.mkdir(parents=True)
    run("gate", "mine:Mine").refused("--out: schedproof-out/coverage.html is not a regular file")
    words = ("--rule", "ALL-R01", "--profile", "quick")
    assert run("gate", "mine:Mine", *words, "--no-coverage").code == 0
    assert run("gate", "model", *words).code == 0


def test_without_a_target_nothing_is_judged_and_it_says_what_to_name(run):
    run("gate").refused("TARGET: none named; valid: MODULE:FACTORY for your own scheduler")
    run("gate", "--profile", "quick").refused("TARGET: none named")


def test_a_report_does_not_take_the_name_of_an_entry_or_of_a_counterexample(run, tmp_path):
    Path("c").mkdir()
    words = ("gate", "model", "--corpus", "c", "--out", "o")
    entry = run(*words, "--json", "c/v.json")
    assert (entry.code, entry.out) == (2, "")
    assert "--json: c/v.json: a .json file in the corpus would be an entry; valid: " in entry.err
    Path("o").mkdir()
    found = run(*words, "--sarif", "o/GEN-R02-2a2724ab58.json")
    assert (found.code, found.out) == (2, "")
    assert "--sarif: o/GEN-R02-2a2724ab58.json has the name of a counterexample; " in found.err
