"""Each key of vLLM's scheduler and cache configuration is in docs/vllm-keys.toml."""

import ast
import tomllib
from pathlib import Path

import pytest

from schedproof.gate.targets.releases import cache_folder
from schedproof.gate.targets.vllm.releases import EXAMINED
from schedproof.model.vllm.config import VllmConfig

ROOT = Path(__file__).resolve().parents[4]
TABLE = tomllib.loads((ROOT / "docs" / "vllm-keys.toml").read_text(encoding="utf-8"))
FILES = {"SchedulerConfig": "scheduler.py", "CacheConfig": "cache.py"}
RELEASES = ("0.28.0", "0.33.0")
STATUSES = {"modelled", "derived", "no effect", "refused"}


def keys_of(folder: Path, name: str) -> set[str]:
    """The fields of a configuration class, read without importing it."""
    tree = ast.parse((folder / "vllm" / "config" / FILES[name]).read_text(encoding="utf-8"))
    classes = {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        line.target.id
        for line in classes[name]
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and "ClassVar" not in ast.unparse(line.annotation)
    }


def test_every_key_has_a_status_and_a_reason():
    for name, entries in TABLE.items():
        assert name in FILES
        for key, entry in entries.items():
            assert entry.keys() == {"releases", "status", "why"}, key
            assert entry["status"] in STATUSES, key
            assert entry["why"], key
            assert entry["releases"], key
            assert set(entry["releases"]) <= set(RELEASES), key


def test_modelled_keys_name_a_key_of_the_scenario_format_or_an_option():
    words = {*VllmConfig.__struct_fields__, "Option"}
    for entries in TABLE.values():
        for key, entry in entries.items():
            first = entry["why"].split()[0].rstrip(",")
            assert entry["status"] != "modelled" or first in words, key


def test_a_new_key_is_missing(tmp_path):
    folder = tmp_path / "vllm" / "config"
    folder.mkdir(parents=True)
    source = "class CacheConfig:\n    block_size: int = 1\n    brand_new: int = 2\n"
    (folder / "cache.py").write_text(source, encoding="utf-8")
    assert keys_of(tmp_path, "CacheConfig") - TABLE["CacheConfig"].keys() == {"brand_new"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("version", RELEASES)
def test_an_installed_release_has_the_keys_of_the_table(version, name):
    assert version in EXAMINED
    folder = cache_folder() / f"vllm-{version}"
    if not folder.is_dir():
        pytest.skip(f"vllm {version} is not installed")
    listed = {key for key, entry in TABLE[name].items() if version in entry["releases"]}
    assert keys_of(folder, name) == listed
