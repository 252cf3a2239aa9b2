"""Scenarios from Python: reading and writing their files."""

from pathlib import Path

from ...model.scenario import Scenario
from ..corpus.builtin_scenarios import scenario_named
from ..files import scenario_file


def read_scenario(path: Path | str) -> Scenario:
    """The scenario in a file of format `schedproof/scenario@1`, or a built-in one by its name.

    Raises:
        FileError: the file cannot be read or means nothing; the message names the JSON path.
    """
    return scenario_named(str(path))


def write_scenario(scenario: Scenario, folder: Path | str, name: str = "scenario") -> Path:
    """Write a scenario into a folder, whole or not at all; its file is named by its content.

    Raises:
        FileError: the folder cannot be written to.
    """
    return scenario_file.write_scenario(scenario, Path(folder), name)
