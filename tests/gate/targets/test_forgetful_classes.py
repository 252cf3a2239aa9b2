"""A scheduler class that forgets something is named by its rule, and told from its base, on the
real release where it is installed."""

import json
from pathlib import Path

import pytest

from schedproof.gate.targets import releases
from schedproof.gate.targets.supported_releases import ReleaseError, parse_release

from ...command_line import runner

FILE = Path(__file__).with_name("forgetful.py")
RELEASE = "vllm==0.24.0"
LOOKAHEAD = ("enable_prefix_caching=false", "num_speculative_tokens=2", "num_lookahead_tokens=2")


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    release = parse_release(RELEASE)
    assert release is not None
    try:
        releases.prepare(release, offline=True)
    except ReleaseError as missing:
        pytest.skip(str(missing))
    monkeypatch.chdir(tmp_path)
    return runner(monkeypatch, capfd)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rule", "changes"),
    [
        ("ForgetsThatNothingRuns", "V1-R07", ("async_scheduling=false",)),
        ("ForgetsTheWholeSequence", "V1CP-R22", ()),
        ("ForgetsTheLookahead", "V1CP-R30", LOOKAHEAD),
    ],
)
def test_what_a_class_forgets_is_named_by_the_rule(run, name, rule, changes):
    words = ["--rule", rule, "--profile", "quick", "--offline"]
    words += [word for change in changes for word in ("--set", change)]
    own = run("gate", RELEASE, *words, "--json", "own.json")
    assert (own.code, verdict_of("own.json", rule)) == (0, "held"), own
    derived = run("gate", RELEASE, *words, "--scheduler-cls", f"{FILE}:{name}", "--json", "d.json")
    assert (derived.code, verdict_of("d.json", rule)) == (1, "violated"), derived
    assert f"{name} vllm 0.24.0 against documented: does not conform" in derived.out


@pytest.mark.slow
def test_a_class_is_compared_with_its_base_in_one_command(run):
    result = run(
        *("diff", RELEASE, "--path-a", str(FILE.parent), "--against-base", "--profile", "quick"),
        *("--scheduler-cls", "forgetful.ForgetsThatNothingRuns", "--offline", "--json", "d.json"),
        *("--set", "async_scheduling=false"),
    )
    assert result.code == 1, result
    verdict = json.loads(Path("d.json").read_text(encoding="utf-8"))
    assert verdict["b"]["spec"] == RELEASE
    assert verdict["a"]["spec"] == f"{RELEASE}:{FILE.parent}:forgetful.ForgetsThatNothingRuns"
    assert {one["kind"] for one in verdict["differences"]} == {"decision"}


def verdict_of(file, rule):
    rules = json.loads(Path(file).read_text(encoding="utf-8"))["rules"]
    [status] = [one["status"] for one in rules if one["id"] == rule]
    return str(status)
