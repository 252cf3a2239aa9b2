"""A user's repository: a target bent where a test says, and a configuration file."""

from pathlib import Path

ADAPTER = """
from schedproof.model.target import ModelTarget

class Target(ModelTarget):
    def step(self):
        reply = super().step()
        {bend}
        return reply
"""
# A request that waits is forgotten (ALL-R03), and beside it a decode gives no request a token
# (SPY-R22).
LOSES = "reply['step']['waiting'] = reply['step']['waiting'][:0]"
SILENT = "reply['step']['emitted'] = {}"


def write_project(folder: Path, bend: str = "pass", **options: str) -> None:
    """`options` are those of the plugin, without their prefix."""
    (folder / "adapter.py").write_text(ADAPTER.format(bend=bend))
    given = {"target": "adapter:Target", "revision": "sound"} | options
    lines = [f'schedproof_{name} = "{value}"' for name, value in given.items()]
    text = "\n".join(["[tool.pytest.ini_options]", *lines, ""])
    (folder / "pyproject.toml").write_text(text)
