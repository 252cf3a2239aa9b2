"""`schedproof diff`: what it finds between two targets, what it prints, what it does not take."""

import gzip
import json
from pathlib import Path

import pytest

from schedproof.gate.compare.baseline import FORMAT
from schedproof.gate.files.scenario_file import read_scenario
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.targets import probe as probing
from schedproof.gate.targets.target_spec import TargetSpec

TOYS = """
from schedproof.model.target import ModelTarget

class Bent(ModelTarget):
    def step(self):
        reply = super().step()
        if len(reply["step"]["running"]) > 1:
            self.bend(reply["step"])
        return reply

class Order(Bent):
    def bend(self, step):
        step["running"].reverse()

class Padding(Bent):
    def bend(self, step):
        step["left_pad_blocks"] = {name: 9 for name in step["left_pad_blocks"]}

class Crash(Bent):
    def bend(self, step):
        raise KeyError("[red]two[/red]\\x1b[31m")

class Hostile(ModelTarget):
    def start(self, system, revision, config):
        return super().start(system, revision, config) | {"name": "[bold]x[/bold]\\n\\x1b[2J"}
    def step(self):
        reply = super().step()
        reply["step"]["waiting"] = ["[red]\\x1b[31m\\n../../etc"]
        return reply

class Sim(ModelTarget):
    pass

class NoFeatures(ModelTarget):
    def start(self, system, revision, config):
        for key in ("enable_prefix_caching", "num_blocks"):
            if config[key]:
                return {"ok": False, "error": "config", "message": f"$.config.{key}: not here"}
        return super().start(system, revision, config)

class NoFeaturesButAFault(NoFeatures):
    def step(self):
        reply = super().step()
        if len(reply["step"]["running"]) > 1:
            reply["step"]["running"].reverse()
        return reply

class NoScale(ModelTarget):
    def start(self, system, revision, config):
        return {"ok": False, "error": "config", "message": "nothing"}

class Nonsense(ModelTarget):
    def step(self):
        return {"ok": True, "step": {}}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """A folder with some targets in it, and a small budget."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setitem(PROFILES, "quick", Profile(10, 20, 30, 0))
    monkeypatch.setattr(probing, "SCALES", ("small",))
    Path("toys.py").write_text(TOYS, encoding="utf-8")


@pytest.fixture
def diff(run):
    def main(*words):
        quick = () if "--since" in words else ("--profile", "quick")
        return run("diff", *words, *quick)

    return main


def read_json(name):
    return json.loads(Path(name).read_bytes())


def test_a_model_does_not_differ_from_itself_and_it_says_what_was_compared(diff):
    result = diff("model", "model", "--json", "d.json")
    assert (result.code, result.err) == (0, ""), result
    assert "model and model: no difference in " in result.out
    assert "compared in " in result.out
    assert "occurred: prefix hit " in result.out
    verdict = read_json("d.json")
    assert (verdict["format"], verdict["differences"]) == ("schedproof/diff@1", [])
    assert verdict["compared"]["fields"]["scheduled"] == verdict["compared"]["steps"] > 0


@pytest.mark.slow
@pytest.mark.nightly
def test_another_formula_is_another_decision_found_and_shrunk(diff, monkeypatch):
    monkeypatch.setattr(probing, "SCALES", ("tight",))
    monkeypatch.setitem(PROFILES, "quick", Profile(300, 10, 20, 0))
    result = diff("model", "model:2.1.0", "--json", "d.json", "--max-differences", "1")
    assert result.code == 1, result
    assert "DIFFERS decision" in result.out
    [found] = read_json("d.json")["differences"]
    assert found["shape"] == "decision: which are scheduled"
    assert found["requests"] <= 4
    scenario = read_scenario(Path(found["scenario"]))
    assert f"replay A: schedproof replay {found['scenario']}\n" in result.out
    assert f"replay B: schedproof replay {found['scenario']} --target model:2.1.0" in result.out
    assert {request.arrival <= found["step"] for request in scenario.requests} == {True}
    assert "stopped after 1 difference (--max-differences)" in result.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toy", "kind", "words"),
    [
        ("Order", "order", "running: in the order "),
        ("Padding", "padding", "left_pad_blocks: "),
        ("Crash", "crash", "B: the scheduler raised at 'step': KeyError: '[red]two[/red]"),
    ],
)
def test_a_toy_differs_in_its_class(diff, toy, kind, words):
    result = diff("model", f"toys:{toy}", "--max-differences", "1", "--json", "d.json")
    assert result.code == 1, result
    assert f"DIFFERS {kind}" in result.out
    assert words in result.out
    [found] = read_json("d.json")["differences"]
    assert (found["kind"], found["requests"]) == (kind, 2)


@pytest.mark.slow
def test_what_one_of_them_does_not_have_is_left_out_feature_by_feature_and_said(diff):
    same = diff("toys:NoFeatures", "model", "--system", "vllm")
    assert same.code == 0, same
    line = "enable_prefix_caching True left out, because one of the targets refuses it: A: "
    assert f"{line}$.config.enable_prefix_caching: not here" in same.out
    assert "num_blocks 64 left out" in same.out
    other = diff("toys:NoFeaturesButAFault", "model", "--system", "vllm")
    assert other.code == 1, other
    assert "DIFFERS order" in other.out


@pytest.mark.slow
def test_a_baseline_of_a_target_without_features_is_recorded_and_compared(diff):
    saved = diff("toys:NoFeatures", "--system", "vllm", "--save", "b.gz")
    assert saved.code == 0, saved
    assert diff("toys:NoFeatures", "--since", "b.gz").code == 0
    assert diff("toys:NoFeaturesButAFault", "--since", "b.gz").code == 1


@pytest.mark.slow
def test_targets_without_a_scale_in_common_are_one_line(diff):
    diff("toys:NoScale", "model", "--system", "vllm").refused(
        "there is no scale that both targets accept: small (A: "
    )


@pytest.mark.slow
def test_what_a_hostile_target_says_is_one_printable_line(diff):
    result = diff("model", "toys:Hostile", "--max-differences", "1")
    assert result.code == 1
    assert "\x1b" not in result.out
    assert "[bold]x[/bold]" in result.out
    assert "waiting: [red] [31m ../../etc only on B" in result.out
    assert {file.parent.name for file in Path().rglob("*.json")} == {"schedproof-out"}


@pytest.mark.slow
def test_a_target_that_is_none_is_inconclusive(diff):
    result = diff("model", "toys:Nonsense")
    assert result.code == 3
    assert "ADAPTER: at 'step' the step lacks the field" in result.err
    assert "inconclusive" in result.out


@pytest.mark.slow
def test_two_systems_are_asked_in_common_terms_and_each_gets_a_file_of_its_own(diff, monkeypatch):
    systems = {"model": "vllm", "toys:Sim": "llmservingsim"}
    of_target = property(lambda spec: systems[spec.text])
    monkeypatch.setattr(TargetSpec, "own_system", of_target)
    revisions = {"toys:Sim": "head"}
    monkeypatch.setattr(TargetSpec, "default_revision", lambda spec: revisions.get(spec.text))
    monkeypatch.setitem(PROFILES, "quick", Profile(300, 150, 60, 0))
    result = diff(
        *("model", "toys:Sim", "--config", "enable_prefix_caching=true"),
        *("--max-differences", "1", "--json", "d.json"),
    )
    assert result.code == 1, result
    assert (
        "every configuration has async_scheduling false, cache_partitions false, "
        "disable_chunked_mm_input false, early_completions 0, encoder_cache_size 0, "
        'kv_cache_events "none", kv_connector false, '
        'kv_groups [{"kind": "full"}], '
        'kv_load_failure_policy "recompute", long_prefill_token_threshold_adaptive false, '
        'mamba_cache_mode "none", max_loras null, max_num_active_seqs null, '
        "max_num_encoder_input_tokens 0, "
        "num_lookahead_tokens 0, "
        "num_speculative_tokens 0, num_speculative_tokens_per_batch_size null, "
        "pipeline_parallel_size 1, "
        'policy "fcfs", prefill_schedule_interval 1, prefix_cache_retention_interval null, '
        "prefix_match_unit null, reserve_full_isl true, "
        "reused_ids false, streaming_inputs false, structured_outputs false, "
        "synchronous_loads false, use_v2_model_runner false, watermark 0.0" in result.out
    )
    assert (
        "B gets the configuration translated to llmservingsim, with prioritize_prefill false, pp_"
        in (result.out)
    )
    [found] = read_json("d.json")["differences"]
    own, other = (read_scenario(Path(found[key])) for key in ("scenario", "scenario_b"))
    assert (own.system, other.system, other.revision) == ("vllm", "llmservingsim", "head")
    assert own.requests == other.requests
    assert f"replay B: schedproof replay {found['scenario_b']} --target toys:Sim" in result.out


@pytest.mark.slow
def test_set_is_in_every_configuration(diff):
    result = diff(
        "model", "model", "--config", "prefix_caching=true", "--config", "num_blocks=null"
    )
    assert result.code == 0
    assert "every configuration has prefix_caching true, num_blocks null" in result.out
    assert "pause 0" in result.out
    assert "free_blocks" not in result.out


@pytest.mark.slow
def test_a_baseline_is_what_the_target_did(diff):
    saved = diff("model", "--save", "base.gz", "--seed", "3")
    assert (saved.code, saved.err) == (0, ""), saved
    assert "compare: schedproof diff TARGET --since base.gz" in saved.out
    again = diff("model", "--since", "base.gz")
    assert again.code == 0, again
    assert "model (base.gz) and model: no difference in " in again.out
    later = diff("toys:Order", "--since", "base.gz", "--json", "d.json")
    assert later.code == 1
    assert "replay A: its run is recorded in the baseline" in later.out
    assert "this is the smallest; recorded runs cannot be shrunk" in later.out
    verdict = read_json("d.json")
    assert (verdict["baseline"], verdict["seed"]) == ("base.gz", 3)
    [found] = verdict["differences"]
    assert (found["kind"], found["scenario_b"]) == ("order", None)
    assert found["seen"] > 1


def lines_of(file):
    return gzip.decompress(Path(file).read_bytes()).splitlines(keepends=True)


def header(**changes):
    target = {"spec": "model", "name": "m", "version": "1"}
    values = {"format": FORMAT, "target": target, "system": "spyre", "revision": "sound"}
    return json.dumps(values | {"profile": "quick", "seed": 0} | changes).encode() + b"\n"


END = b'{"records":0}\n'
DEEP, TOO_DEEP = {"ok": True, "step": "DEEP"}, "line 2: nested deeper than 40 levels"
RECORD = {"engine": "corpus", "scale": "x", "scenario": {}, "answers": []}
SCENARIO = {
    "format": "schedproof/scenario@1",
    "system": "spyre",
    "revision": "sound",
    "requests": [{"id": "a", "arrival": 0, "prompt": [["a", 1]], "max_tokens": 1}],
}


def recorded(**changes):
    return json.dumps(RECORD | changes).encode() + b'\n{"records":1}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty; valid: a file that schedproof diff --save has written"),
        (b"{}\n", "line 1: Object missing required field `format`"),
        (header(format="x"), "line 1: $.format: 'x'; supported: 'schedproof/baseline@1'"),
        (header(system="no") + END, "line 1: $.system: 'no' is not a system"),
        (header(seed="a") + END, "line 1: Expected `int`, got `str` - at `$.seed`"),
        (header(more=1) + END, "line 1: Object contains unknown field `more`"),
        (header(), "truncated after 0 records: the last line is missing"),
        (header() + b'{"records":2}\n', "line 2: $.records: 2, but the file contains 0"),
        (header() + END + END, "line 3: nothing may follow the end"),
        (header() + b"{\xff}\n", "line 2: "),
        *(
            (header() + recorded(answers=[["start", DEEP]]).replace(b'"DEEP"', nest), TOO_DEEP)
            for nest in (b"[" * 50 + b"]" * 50, b"[" * 3000 + b"]" * 3000)
        ),
        (header() + b'{"records":0}', "line 2: truncated"),
        (header() + recorded(), "line 2: $.scenario: $.format: null; supported: "),
        (
            header() + recorded(scenario=SCENARIO | {"revision": "2.1.2"}),
            "line 2: $.scenario is for spyre 2.1.2; valid: spyre sound, as the first line says",
        ),
        (
            header() + recorded(scenario=SCENARIO),
            "line 2: $.answers[0]: 'nothing'; the scenario asks for 'start'",
        ),
        (
            header() + recorded(scenario=SCENARIO, answers=[["start", {"ok": 3}]]),
            "line 2: $.answers[0]: ok is 3; valid: true or false",
        ),
    ],
)
def test_a_damaged_baseline_is_one_line_with_its_place(diff, content, message):
    Path("b.gz").write_bytes(gzip.compress(content))
    result = diff("model", "--since", "b.gz")
    assert result.code == 2, result
    assert result.err.startswith(f"schedproof: b.gz: {message}"), result.err
    assert result.err.count("\n") == 1


@pytest.mark.slow
def test_a_baseline_that_is_cut_off_or_no_gzip_is_one_line(diff):
    assert diff("model", "--save", "base.gz").code == 0
    whole = Path("base.gz").read_bytes()
    for name, content, message in (
        ("cut.gz", whole[: len(whole) // 2], "cut.gz: damaged or truncated"),
        ("plain.gz", b"{}\n", "plain.gz: not a gzip file, or damaged"),
        ("bad.gz", whole[:40] + bytes(8) + whole[48:], "bad.gz: "),
    ):
        Path(name).write_bytes(content)
        result = diff("model", "--since", name)
        assert result.code == 2, result
        assert result.err.startswith(f"schedproof: {message}"), result.err
        assert result.err.count("\n") == 1


@pytest.mark.slow
def test_a_baseline_that_cannot_be_finished_leaves_the_old_one_alone(diff):
    Path("base.gz").write_bytes(b"old")
    assert diff("toys:Nonsense", "--save", "base.gz").code == 3
    assert Path("base.gz").read_bytes() == b"old"
    assert not list(Path().glob("*.partial"))


@pytest.mark.slow
def test_ids_in_a_baseline_are_hostile(diff):
    assert diff("model", "--save", "base.gz", "--config", "max_num_seqs=2").code == 0
    lines = lines_of("base.gz")
    evil = json.dumps("[red]\x1b[31m/../x").encode()[1:-1]
    Path("e.gz").write_bytes(gzip.compress(b"".join(lines).replace(b'"r0"', b'"' + evil + b'"')))
    result = diff("toys:Order", "--since", "e.gz", "--config", "max_num_seqs=2")
    assert result.code == 2  # the file says what is set
    result = diff("toys:Order", "--since", "e.gz")
    assert result.code == 1, result
    assert "[red] [31m/../x" in result.out
    assert "\x1b" not in result.out
    assert {file.parent.name for file in Path().rglob("*.json")} == {"schedproof-out"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model"], "TARGET_B: missing; valid: a target, or --save FILE or --since FILE"),
        (["model", "model", "--save", "f"], "TARGET_B: model: --save takes one target only"),
        (["model", "--save", "f", "--since", "g"], "--save: f: contradicts --since"),
        (["model", "--save", "no/f"], "--save: no/f: the folder no does not exist"),
        (["model", "--save", "f", "--json", "j"], "--json: j: --save compares nothing"),
        (["model", "--since", "f", "--seed", "-1"], "--seed: -1: --since determines this itself"),
        (["model", "--since", "f"], "f: cannot be read (No such file or directory)"),
        (
            ["model", "--since", "f", "--system", "vllm"],
            "--system: vllm: --since determines this itself",
        ),
        (
            ["model", "model", "--config", "x=1"],
            "--config: 'x=1'; valid: KEY=VALUE with block_size",
        ),
        (["model", "model", "--config", "block_size"], "--config: 'block_size'; valid: KEY=VALUE"),
        (["model", "model", "--config", "block_size=a"], "--config: $.config.block_size: 'a': "),
        (["model", "model", "--system", "x"], "--system: 'x' is not a system"),
        (["model", "model", "--revision", "x"], "--revision: 'x' is not a revision of spyre"),
        (["model", "vllm==0.28.0", "--system", "spyre"], "TARGET_B: spyre and vllm have no "),
        (
            ["vllm==0.24.0", "vllm==0.28.0", "--system", "spyre"],
            "--system: spyre: neither target belongs to it; valid: vllm",
        ),
        (["model", "vllm==0.1"], "vllm: version '0.1' is not supported"),
        (["model", "nothing"], "TARGET 'nothing' is not understood"),
        (
            ["model", "model", "--scheduler-cls", "p.C"],
            "--scheduler-cls: p.C: valid only with a release",
        ),
        (
            ["model", "model", "--path-b", "x"],
            "--path-b: x: valid only for sendnn-inference, ",
        ),
        (["model", "llmservingsim", "--path-b", "no"], "--path-b: no: no such folder"),
        (["model", "model", "--max-differences", "0"], "--max-differences: 0; valid: at least 1"),
    ],
)
def test_wrong_options_are_one_line(run, words, message):
    run("diff", *words).refused(message)


@pytest.mark.parametrize("more", [("--save", "b.gz"), ("--since", "b.gz"), ()])
def test_a_number_of_processes_that_means_nothing_is_refused(run, more):
    targets = ("model",) if more else ("model", "model")
    result = run("diff", *targets, *more, "--jobs", "2" if more else "0")
    assert result.code == 2
    assert result.err.startswith("schedproof: --jobs: ")
