"""Tests for a target's own repository: they run there, without schedproof."""

import ast
import os
import subprocess
import sys
from enum import Enum
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from schedproof.gate.corpus.export import as_repository_tests, expressible
from schedproof.gate.corpus.folder import builtin_scenarios, entries
from schedproof.gate.corpus.replay import with_expectation
from schedproof.gate.files.scenario_file import FileError
from schedproof.model.scenario import Event, Request, Scenario
from schedproof.model.systems import full_config

from ..corpus_build import crowd, kept
from .test_export import hostile

SPYRE = Scenario(
    system="spyre",
    revision="2.1.2",
    config={"max_num_seqs": 2, "max_model_len": 512, "chunk_size": 128, "block_size": 64},
    requests=(
        Request(id="a", arrival=0, prompt=(("a", 300),), max_tokens=80),
        Request(id="b", arrival=2, prompt=(("b", 9),), max_tokens=9, output_len=4, abort_at=9),
    ),
)


def exported(folder, *scenarios):
    for scenario, rule in scenarios:
        kept(folder, scenario, rule=rule)
    text = as_repository_tests(entries(folder))
    ast.parse(text)
    return text


def test_a_rule_with_words_of_the_target_is_asserted_in_every_step(tmp_path):
    text = exported(tmp_path, (SPYRE, "SPY-R07"))
    assert "always=volume_within_limit" in text
    assert "checked_steps=[" not in text
    assert "dict(id='a', add_step=0, prompt=[('a', 300)], max_tokens=80)" in text
    code = [line for line in text.splitlines() if line.startswith(("import", "from"))]
    assert not any("schedproof" in line for line in code)


def test_other_rules_have_the_steps_of_the_model(tmp_path):
    text = exported(tmp_path, (SPYRE, "SPY-R04"))
    assert "# The steps of the scheduler of revision 2.1.2." in text
    assert "ends_after=4, abort_step=9" in text
    rows = [line for line in text.splitlines() if line.strip().startswith("dict(step=")]
    assert rows[0].startswith("            dict(step=1, kind='prefill', scheduled={'a': ")
    assert rows[0].endswith("}, waiting=[], running=['a'], finished_requests=[]),")
    assert 3 < len(rows) < 20


def test_the_steps_are_those_of_a_model_that_keeps_the_rule(tmp_path):
    folder = builtin_scenarios("spyre")
    scenario = replace(
        folder["a-token-too-little-of-slack.json"], revision="documented", expect=None
    )
    text = exported(tmp_path, (scenario, "SPY-R47"))
    assert "# The steps of the scheduler of revision sound." in text


def test_what_is_known_to_break_is_expected_to_fail(tmp_path):
    text = exported(tmp_path, (with_expectation(SPYRE, ["SPY-R07"]), "SPY-R07"))
    assert '@pytest.mark.xfail(strict=True, reason="known: SPY-R07")' in text


def test_names_stay_within_their_quotes(tmp_path):
    text = exported(tmp_path, (replace(SPYRE, requests=(hostile(),)), "SPY-R04"))
    assert repr(hostile().id) in text


@pytest.mark.parametrize("rule", ["ALL-R03", "V1-I2"])
def test_vllm_has_a_head_of_its_own(tmp_path, rule):
    scenario = builtin_scenarios("vllm")["preempted-before-it-was-computed.json"]
    text = exported(tmp_path, (scenario, rule))
    assert "from vllm.v1.core.sched.scheduler import Scheduler" in text
    assert "policy='priority'" in text


LOADED = Scenario(
    system="vllm",
    revision="documented",
    config=full_config("vllm", "documented", {"kv_connector": True, "async_scheduling": True}),
    requests=(
        Request(
            id="a",
            arrival=0,
            prompt=(("a", 33),),
            max_tokens=2,
            external_tokens=32,
            load_steps=1,
            send_steps=3,
        ),
    ),
)


Status = Enum("Status", ["FINISHED_ABORTED", "FINISHED_ERROR"])


@pytest.mark.parametrize(
    ("rule", "checked"), [("ALL-R10", "always=progresses"), ("V1-R20", "checked_steps=[")]
)
def test_decisions_in_flight_and_loads_are_part_of_the_file(tmp_path, rule, checked):
    text = exported(tmp_path, (LOADED, rule))
    assert checked in text
    assert "external_tokens=32, load_steps=1, send_steps=3" in text
    assert "async_scheduling=True, kv_connector=True" in text
    assert "schedproof" not in "".join(line for line in text.splitlines() if "import" in line)


def test_a_worker_that_is_fast_is_part_of_the_file(tmp_path):
    fast = replace(LOADED, config={**LOADED.config, "early_completions": 2})
    text = exported(tmp_path, (fast, "V1-R20"))
    assert "async_scheduling=True, early_completions=2, kv_connector=True" in text
    assert "InFlight(depth, early_completions)" in text


def test_the_policy_for_loads_that_fail_is_part_of_the_file(tmp_path):
    config = {**LOADED.config, "kv_load_failure_policy": "fail"}
    fails = replace(LOADED.requests[0], load_fails_at=16)
    text = exported(tmp_path, (replace(LOADED, config=config, requests=(fails,)), "V1-R28"))
    assert "kv_load_failure_policy='fail'" in text
    assert "load_fails_at=16" in text
    assert "kv_load_failure_policy=kv_load_failure_policy" in text


class Connector:
    """A release's base class of connectors, as far as the exported one needs it."""

    def __init__(self, *_):
        pass


def test_blocks_of_an_aborted_request_are_sent_if_the_request_says_so(tmp_path):
    sends = replace(LOADED.requests[0], send_aborted=True, abort_at=2)
    text = exported(tmp_path, (replace(LOADED, requests=(sends,)), "V1-R20"))
    assert "send_aborted=True" in text
    names = {"KVConnectorBase_V1": Connector, "RequestStatus": Status}
    exec(text[text.index("class FromNowhere") : text.index("class InFlight")], names)
    connector = names["FromNowhere"](
        SimpleNamespace(cache_config=SimpleNamespace(block_size=16)), 0
    )
    connector.options = {"a": {"send_steps": 3, "send_aborted": True}, "b": {"send_steps": 3}}
    for name in "ab":
        aborted = SimpleNamespace(request_id=name, status=Status.FINISHED_ABORTED)
        connector.request_finished(aborted, [1])
    assert connector.sending == {"a": 3}


def test_loads_within_a_step_are_refused(tmp_path):
    config = {**LOADED.config, "synchronous_loads": True}
    kept(tmp_path, replace(LOADED, config=config), rule="V1-R92")
    with pytest.raises(FileError, match=r"\$\.config\.synchronous_loads: true: these tests"):
        as_repository_tests(entries(tmp_path))


def test_what_cannot_be_said_honestly_is_refused(tmp_path):
    kept(tmp_path / "two", LOADED, rule="V1-R20")
    kept(tmp_path / "two", SPYRE, rule="SPY-R04")
    with pytest.raises(FileError, match="the entries belong to spyre, vllm; valid: one system"):
        as_repository_tests(entries(tmp_path / "two"))
    kept(tmp_path / "other", crowd())
    with pytest.raises(FileError, match=r"nano_vllm has no template for tests; valid: spyre, vllm"):
        as_repository_tests(entries(tmp_path / "other"))
    drafts = {"num_speculative_tokens": 2}
    with_drafts = Scenario(
        system="vllm", revision="documented", config=drafts, requests=SPYRE.requests[:1]
    )
    kept(tmp_path / "drafts", with_drafts, rule="V1CP-R35")
    with pytest.raises(FileError, match=r"\$\.config\.num_speculative_tokens: 2: these tests"):
        as_repository_tests(entries(tmp_path / "drafts"))
    reset = Scenario(
        system="vllm",
        revision="documented",
        config={},
        requests=SPYRE.requests[:1],
        events=(Event(step=1, kind="reset_prefix_cache"),),
    )
    kept(tmp_path / "reset", reset, rule="V1-R35")
    with pytest.raises(FileError, match=r"\$\.events\[0\]\.kind: reset_prefix_cache: these"):
        as_repository_tests(entries(tmp_path / "reset"))


def test_what_cannot_be_said_is_named_and_the_rest_is_exported(tmp_path):
    reset = Scenario(
        system="vllm",
        revision="documented",
        config={},
        requests=SPYRE.requests[:1],
        events=(Event(step=1, kind="reset_prefix_cache"),),
    )
    kept(tmp_path, reset, rule="V1-R35")
    kept(tmp_path, LOADED, rule="V1-R20")
    able, [why] = expressible("upstream", entries(tmp_path))
    assert [entry.rule for entry in able] == ["V1-R20"]
    assert "$.events[0].kind: reset_prefix_cache" in why


# A package that has whatever is imported from it, and a scheduler of a few lines.
PACKAGE = """
import importlib.abc
import importlib.machinery
import sys
from enum import Enum
from types import SimpleNamespace
from types import ModuleType, SimpleNamespace


class Anything:
    def __init__(self, *args, **values):
        vars(self).update(values)

    def __getattr__(self, name):
        return Anything()

    def __call__(self, *args, **values):
        return Anything()


class Enumeration:
    OOT = FINISHED_ABORTED = FINISHED_ERROR = None


class Arguments(Anything):
    def __init__(self, model, block_size):
        cache = SimpleNamespace(block_size=block_size, enable_prefix_caching=False)
        self.config = SimpleNamespace(cache_config=cache)

    def create_engine_config(self):
        return self.config


class Scheduler:
    def __init__(self, **options):
        self.requests, self.waiting, self.running, self.connector = {}, [], [], None

    def add_request(self, request):
        request.num_tokens = request.num_prompt_tokens = len(request.prompt_token_ids)
        request.num_computed_tokens = request.num_output_tokens = 0
        request.max_tokens = request.sampling_params.max_tokens
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def has_unfinished_requests(self):
        return bool(self.waiting or self.running)

    def schedule(self):
        joining, self.waiting = ([], self.waiting) if STALLS else (self.waiting, [])
        self.running += joining
        tokens = {}
        for request in self.running:
            tokens[request.request_id] = request.num_tokens - request.num_computed_tokens
            request.num_computed_tokens = request.num_tokens
        return SimpleNamespace(
            num_scheduled_tokens=tokens,
            scheduled_new_reqs=[SimpleNamespace(req_id=one.request_id) for one in joining],
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
        )

    def update_from_output(self, decision, output):
        outputs = []
        for request in [*self.running]:
            request.num_tokens += 1
            request.num_output_tokens += 1
            ends = request.num_output_tokens == request.max_tokens
            if ends:
                self.running.remove(request)
            reason = "length" if ends else None
            outputs.append(SimpleNamespace(request_id=request.request_id, finish_reason=reason))
        return {0: SimpleNamespace(outputs=outputs)}


OWN = {
    "Scheduler": Scheduler,
    "EngineArgs": Arguments,
    "PlatformEnum": Enumeration,
    "RequestStatus": Enumeration,
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("vllm."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: OWN.get(name) or type(name, (Anything,), {})
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("stalls", "ends"), [(True, "2 failed"), (False, "2 passed")])
def test_the_file_fails_where_a_rule_breaks_and_passes_where_it_holds(tmp_path, stalls, ends):
    alone = Scenario(
        system="vllm",
        revision="documented",
        config=full_config("vllm", "documented", {}),
        requests=(Request(id="a", arrival=0, prompt=(("a", 5),), max_tokens=3),),
    )
    text = exported(tmp_path / "corpus", (alone, "ALL-R10"), (alone, "V1-R20"))
    (tmp_path / "test_it.py").write_text(text)
    package = tmp_path / "vllm" / "__init__.py"
    package.parent.mkdir()
    package.write_text(f"STALLS = {stalls}\n{PACKAGE}")
    reported = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ends in reported.stdout, reported.stdout + reported.stderr
