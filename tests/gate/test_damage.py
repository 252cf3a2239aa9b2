"""Every file that is read, damaged at random: it is read all the same, or refused in one line."""

import datetime
import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedproof.examples.studies.compare import requests_of
from schedproof.gate.cli import app
from schedproof.gate.compare.baseline import read_baseline
from schedproof.gate.corpus.folder import Origin, add, entries
from schedproof.gate.files.scenario_file import FileError, read_scenario, scenario_json
from schedproof.gate.judging.deviations import read_deviations
from schedproof.gate.judging.profiles import PROFILES, Profile
from schedproof.gate.traces.recorder import record_target
from schedproof.gate.traces.trace_file import open_trace, read_trace
from schedproof.model.errors import InputError
from schedproof.model.scenario import Request, Scenario
from schedproof.model.systems import full_config
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay
from schedproof.spec.catalogue import load

RULES = load("spyre")
SMALL = {"block_size": 4, "chunk_size": 8, "max_model_len": 32, "max_batch_tkv": 64}
TWO = Scenario(
    system="spyre",
    revision="sound",
    config=full_config("spyre", "sound", SMALL),
    requests=tuple(
        Request(
            id=name, arrival=0, prompt=((name, 3),), max_tokens=4, output_len=2, abort_at=number
        )
        for number, name in enumerate(("r0", "r1"), 5)
    ),
)
KNOWN = """[[known]]
rule = "SPY-R35"
scenario = "two.json"
reason = "later"
until = 2999-01-01
"""


def trace(path):
    with open_trace(str(path)) as source:
        for _ in read_trace(source):
            pass


def baseline(path):
    for _ in read_baseline(path)[1]:
        pass


READERS: dict[str, Callable[[Path], Any]] = {
    "two.json": read_scenario,
    "corpus/two.json": lambda path: entries(path.parent),
    "known.toml": lambda path: read_deviations(path, "spyre", RULES, datetime.date(2026, 1, 1)),
    "trace.jsonl": trace,
    "trace.jsonl.gz": trace,
    "baseline.gz": baseline,
    "workload.json": lambda path: requests_of(str(path)),
}
BYTES = st.one_of(
    st.binary(min_size=1, max_size=6),
    st.sampled_from([b'"', b"{", b"}", b"[", b"]", b",", b"\n", b"\x00", b"\xff\xfe", b"1e999"]),
    st.sampled_from(
        [b"-1", b"0", b"null", b"true", b'"\\ud800"', b"99999999999999999999", b"=", b"'"]
    ),
)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with one file of each kind."""
    folder = tmp_path_factory.mktemp("good")
    (folder / "two.json").write_text(scenario_json(TWO))
    (folder / "workload.json").write_text(scenario_json(TWO))
    (folder / "known.toml").write_text(KNOWN)
    add(folder / "corpus", TWO, Origin("SPY-R35")).rename(folder / "corpus" / "two.json")
    for name in ("trace.jsonl", "trace.jsonl.gz"):
        with record_target(ModelTarget(), folder / name) as target:
            replay(target, TWO, RULES)
    return folder


@pytest.fixture(scope="module")
def recorded_baseline(good):
    """The same folder, with a baseline of a few scenarios in it."""
    words = ["diff", "model", "--profile", "quick", "--save", str(good / "baseline.gz")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "quick", Profile(3, 0, 0, 0))
        patch.setattr(sys, "argv", ["schedproof", *words])
        with pytest.raises(SystemExit):
            app.main()
    return good


@pytest.mark.parametrize("name", READERS)
def test_what_is_whole_is_read(recorded_baseline, name):
    READERS[name](recorded_baseline / name)


@pytest.mark.parametrize("value", [b"{},", b'"",'])
def test_a_small_baseline_cannot_use_much_memory(recorded_baseline, tmp_path, value):
    header, *_ = gzip.decompress((recorded_baseline / "baseline.gz").read_bytes()).splitlines()
    path = tmp_path / "bomb.gz"
    begin = b'{"engine":"a","scale":"b","scenario":{"x":['
    bomb = begin + value * 9_000_000 + b'0]},"answers":[]}'
    path.write_bytes(gzip.compress(b"\n".join((header, bomb, b'{"records":1}\n')), 1))
    with pytest.raises(FileError, match="line 2: more values than any record can have"):
        baseline(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_is_damaged_is_read_or_refused_in_one_line(recorded_baseline, name, data):
    whole = (recorded_baseline / name).read_bytes()
    packed = name.endswith(".gz") and data.draw(st.booleans(), "damage what is inside")
    damaged = gzip.decompress(whole) if packed else whole
    for _ in range(data.draw(st.integers(1, 3), "places")):
        start = data.draw(st.integers(0, len(damaged)), "from")
        end = min(start + data.draw(st.integers(0, 30), "cut out"), len(damaged))
        damaged = damaged[:start] + data.draw(BYTES | st.just(b""), "put in") + damaged[end:]
    folder = recorded_baseline / "damaged"
    path = folder / Path(name).name
    folder.mkdir(exist_ok=True)
    (folder / "two.json").write_text(scenario_json(TWO))
    path.write_bytes(gzip.compress(damaged) if packed else damaged)
    refusal = refused(READERS[name], path)
    path.unlink()
    assert "\n" not in refusal
    assert not refusal or str(path.parent) in refusal


def refused(reader, path):
    """Why the file is refused; nothing where it is read."""
    try:
        reader(path)
    except (FileError, InputError) as refusal:
        return str(refusal)
    return ""
