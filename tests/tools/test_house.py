"""The rules of the layout: imports run one way, and the kernel of a layer knows no system."""

import pytest

from schedproof.tools import house
from schedproof.tools.house import LAYERS, ROOT

# Files of the kernel that still import a system: none, and none must come.
LEAKS: set[str] = set()


@pytest.fixture(scope="module")
def graph():
    return house.imports()


@pytest.mark.slow
def test_no_import_runs_upward(graph):
    assert house.upward_imports(graph) == []


def test_no_files_import_each_other_in_a_circle(graph):
    assert house.circles(graph) == []


def test_the_kernel_imports_no_system_but_for_the_known_leaks(graph):
    assert {*house.kernel_leaks(graph)} == LEAKS


def test_a_system_imports_at_most_one_other(graph):
    assert {system: len(others) for system, others in house.between_systems(graph).items()} == {
        "generic": 1,
        "llmservingsim": 1,
    }


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
        "properties.search.vllm": {"model.vllm.queue"},
    }
    assert house.kernel_leaks(graph) == {"gate.judging.context": {"spyre"}}
    assert house.between_systems(graph) == {"vllm": {"spyre"}}


@pytest.mark.slow
def test_a_file_that_only_its_neighbour_imports_is_counted():
    graph = house.imports()
    alone = house.one_importer(graph)
    assert alone
    for target in alone:
        assert sum(target in targets for targets in graph.values()) == 1


def test_the_systems_have_a_catalogue_and_a_model():
    assert {"spyre", "vllm", "nano_vllm", "llmservingsim", "generic"} == {*house.SYSTEMS}
    assert LAYERS == ("spec", "model", "properties", "solver", "gate")
