"""`schedproof step`: what it serves and where, how it ends, and what it does not take."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from functools import partial

import pytest

from schedproof.gate.cli import step as step_command
from schedproof.gate.cli.step import configured
from schedproof.model.errors import InputError


@pytest.mark.slow
def test_it_says_where_it_is_and_ctrl_c_ends_it():
    process = subprocess.Popen(
        [sys.executable, "-m", "schedproof", "step", "--revision", "documented"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "40"},
        # A shell's background job, as some test runners are, ignores what Ctrl-C sends.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("step spyre documented, block_size 4, chunk_size 8, ")
        [address] = re.findall(r"^at (http://127\.0\.0\.1:\d+/[\w-]+/) \(Ctrl-C ends\)\n$", second)
        with urllib.request.urlopen(address) as page:
            assert b"step by step" in page.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (0, "ended\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scale", "huge"], "--scale: 'huge'; valid: small, short, tight, production"),
        (["--config", "x"], "--config: 'x'; valid: KEY=VALUE with KEY one of block_size, "),
        (["--config", "=3"], "--config: '=3'; valid: KEY=VALUE with KEY one of block_size, "),
        (["--config", "x=3"], "--config: x: unknown key; valid: block_size, "),
        (
            ["--config", "chunk_size=3"],
            "--config: chunk_size: 3 is not a multiple of block_size (4)",
        ),
        (["--config", "chunk_size=a"], "--config: chunk_size: 'a': Expected `int`, got `str`"),
        (["--port", "65536"], "--port: 65536; valid: 0 to 65,535"),
        (["--port", "-1"], "--port: -1; valid: 0 to 65,535"),
        (["--system", "x"], "--system: 'x' is not a system; valid: spyre, "),
        (["--revision", "x"], "--revision: 'x' is not a revision of spyre; valid: sound, "),
        (["--step-limit", "0"], "--step-limit: 0; valid: at least 0.1"),
        (["--target", "none_there"], "TARGET 'none_there' is not understood; valid: model, "),
        (["--path", "x"], "--path: "),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(run, monkeypatch, words, message):
    monkeypatch.setattr(step_command, "Server", lambda *_: pytest.fail("it serves"))
    run("step", *words).refused(message)


def test_production_is_what_the_system_has_by_default():
    config = configured("spyre", "sound", "production", [])
    assert (config["block_size"], config["chunk_size"]) == (64, 512)
    assert config["max_batch_tkv"] == 131_072


def test_values_are_numbers_truths_nulls_or_words():
    words = ["policy=priority", "num_blocks=null", "enable_chunked_prefill=false", "watermark=0.5"]
    config = configured("vllm", "documented", "small", words)
    assert config["policy"] == "priority"
    assert config["num_blocks"] is None
    assert config["enable_chunked_prefill"] is False
    assert config["watermark"] == 0.5
    with pytest.raises(InputError, match="--config: policy: "):
        configured("vllm", "documented", "small", ["policy=x"])
