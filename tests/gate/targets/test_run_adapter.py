"""Adapters run without schedproof, and hide no package of the environment that they run in."""

import subprocess
import sys

import pytest

from schedproof.gate.targets.checkouts import ADAPTERS, known_checkouts

from ... import house

# Serves an empty stdin, and then looks for what lies beside the launcher.
CODE = """
import importlib.util, runpy, sys
sys.argv = [FILE, SYSTEM]
sys.path.insert(0, FOLDER)
runpy.run_path(FILE, run_name="__main__")
print([name for name in NAMES if importlib.util.find_spec(name)], "schedproof" in sys.modules)
"""


@pytest.mark.parametrize("system", ["nano_vllm", "llmservingsim"])
def test_no_file_beside_the_launcher_can_be_imported_by_its_name(tmp_path, system):
    folder = ADAPTERS.parent
    values: dict[str, object] = {"FILE": str(ADAPTERS), "FOLDER": str(folder), "SYSTEM": system}
    values["NAMES"] = [path.parent.name for path in folder.glob("*/__init__.py")]
    values["NAMES"] += [path.stem for path in folder.glob("[a-z]*.py")]
    script = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + CODE
    done = subprocess.run(
        [sys.executable, "-c", script],
        input="",
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stderr == "[] False\n"  # whatever is printed goes there


@pytest.mark.parametrize(
    "module",
    [
        *(f"{checkout.system}.target" for checkout in known_checkouts().values()),
        "vllm.recorder",
        "vllm.connector",
    ],
)
def test_an_adapter_needs_no_file_outside_the_targets_and_nothing_that_is_to_be_installed(module):
    graph, named = house.imports(), house.modules()
    reached, new = set[str](), {f"gate.targets.{module}"}
    while new:
        reached |= new
        new = {target for name in new for target in graph[name]} - reached
    assert all(name.startswith("gate.targets.") for name in reached)
    for name in reached:
        for imported in house.imported(named[name]):
            top = imported.partition(".")[0]
            assert top in sys.stdlib_module_names or imported.startswith("schedproof."), imported
