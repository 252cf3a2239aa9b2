"""The rules of the layout: imports run one way, and the kernel of a layer knows no system."""

from dataclasses import fields

import pytest

from schedproof.spec.systems import SYSTEMS
from schedproof.tools import house
from schedproof.tools.house import LAYERS, ROOT


@pytest.fixture(scope="module")
def graph():
    return house.imports()


def test_no_import_runs_upward(graph):
    assert house.upward_imports(graph) == []


def test_no_files_import_each_other_in_a_circle(graph):
    assert house.circles(graph) == []


def test_the_kernel_imports_no_system(graph: dict[str, set[str]]) -> None:
    assert house.kernel_leaks(graph) == {}


def test_a_system_imports_at_most_the_one_that_its_descriptor_names(
    graph: dict[str, set[str]],
) -> None:
    named = {name: {system.builds_on} for name, system in SYSTEMS.items() if system.builds_on}
    assert house.between_systems(graph) == named
    assert named["spyre"] == {"vllm"}


def test_the_paths_of_a_descriptor_lie_in_the_folders_of_its_system() -> None:
    for name, system in SYSTEMS.items():
        for part in fields(system):
            value = getattr(system, part.name)
            if isinstance(value, str) and value.startswith("schedproof."):
                assert f".{name}." in value or value.endswith(f".{name}"), value


def test_no_file_lies_loose():
    assert house.loose_files() == []


def test_every_folder_is_a_room_and_every_room_a_folder():
    for layer, rooms in house.ROOMS.items():
        folders = {path.parent.name for path in (ROOT / layer).glob("*/__init__.py")}
        assert folders - {*house.SYSTEMS} == {*rooms}, layer


def test_no_product_file_is_too_long():
    lengths = {
        str(path.relative_to(ROOT)): house.line_count(path) for path in house.product_files()
    }
    assert [path for path, lines in lengths.items() if lines > house.MAX_LINES] == []


def test_an_import_upward_and_a_circle_are_noticed():
    bad = {"gate.files.a": {"gate.cli.b"}, "gate.cli.b": {"gate.files.a"}}
    assert house.upward_imports(bad) == [("gate.files.a", "gate.cli.b")]
    assert house.circles(bad) == [["gate.cli.b", "gate.files.a"]]


def test_an_import_of_a_system_is_noticed_wherever_the_system_lies():
    graph = {
        "gate.judging.context": {"solver.spyre.worst"},
        "model.vllm.queue": {"model.pool", "model.spyre.tkv"},
        "properties.vllm.strategies": {"model.vllm.queue"},
    }
    assert house.kernel_leaks(graph) == {"gate.judging.context": {"spyre"}}
    assert house.between_systems(graph) == {"vllm": {"spyre"}}


def test_a_file_that_only_its_neighbour_imports_is_counted():
    graph = house.imports()
    alone = house.one_importer(graph)
    assert alone
    for target in alone:
        assert sum(target in targets for targets in graph.values()) == 1


def test_the_systems_have_a_catalogue_and_a_model():
    assert {*house.SYSTEMS} == {*SYSTEMS}
    assert LAYERS == ("spec", "model", "properties", "solver", "gate")
