"""`[tool.schedproof]`: what it may say, and one clear line where it means nothing."""

import pytest

from schedproof.gate.files.project_file import Project, read_project
from schedproof.gate.files.scenario_file import FileError


def read(folder, text):
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return read_project(folder)


def test_a_folder_without_the_table_says_nothing(tmp_path):
    assert read_project(tmp_path) == Project()
    assert read(tmp_path, "[project]\nname = 'x'\n") == Project()
    assert read(tmp_path, "tool = 3\n").given == {}


def test_each_key_is_read(tmp_path):
    (tmp_path / "corpus").mkdir()
    said = read(
        tmp_path,
        '[tool.schedproof]\ntarget = "model"\nsystem = "vllm"\nrevision = "documented"\n'
        'profile = "quick"\ncorpus = "corpus"\nexclude = ["V1-R09"]\n',
    )
    assert said.given == {
        "target": "model",
        "system": "vllm",
        "revision": "documented",
        "profile": "quick",
        "corpus": "corpus",
        "exclude": ["V1-R09"],
    }


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            "targt = 'model'",
            "tool.schedproof: Object contains unknown field `targt`; valid: target",
        ),
        ("system = 'vlm'", "tool.schedproof.system: 'vlm' is not a system; valid: spyre, vllm"),
        ("system = 'vllm'\nrevision = '9'", "tool.schedproof.revision: '9' is not a revision of"),
        (
            "revision = '2.1.2'",
            "tool.schedproof.revision: '2.1.2'; valid only together with a system",
        ),
        ("exclude = 'V1-R09'", "tool.schedproof.exclude: Expected `array`, got `str`"),
        ("exclude = ['']", "tool.schedproof.exclude[0]: Expected `str` of length >= 1"),
        ("target = 3", "tool.schedproof.target: Expected `str | null`, got `int`"),
        ("corpus = 'none'", "tool.schedproof.corpus: 'none' does not exist"),
        ("= 3", "pyproject.toml: not TOML: Invalid"),
    ],
)
def test_what_means_nothing_is_one_line_with_the_file_and_the_key(tmp_path, table, says):
    with pytest.raises(FileError) as error:
        read(tmp_path, f"[tool.schedproof]\n{table}\n")
    assert says in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "pyproject.toml"))
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_bytes(b"x = '\xff'")
    with pytest.raises(FileError, match="byte 5 is not UTF-8"):
        read_project(tmp_path)
