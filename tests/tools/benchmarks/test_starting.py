"""How long a command takes to begin: beside Python alone, and only of commands that end well."""

import subprocess

import pytest

from schedproof.tools.benchmarks import starting


def test_a_command_takes_longer_than_python_alone():
    alone, *commands = starting.rows(quick=True)
    assert (alone.what, alone.ratio) == (starting.PYTHON, 1.0)
    assert [one.what for one in commands] == [*starting.BEGIN][1:]
    assert all(one.ratio is not None and one.ratio > 1 for one in commands)


def test_a_command_that_fails_is_no_figure():
    with pytest.raises(subprocess.CalledProcessError):
        starting.begin(["-c", "raise SystemExit(2)"])
