"""schedproof: executable models and checks for the schedulers of LLM inference engines.

Names of the library are imported on first use, since they need Hypothesis.
"""

import os
import signal
import sys

# Ctrl-C ends the command without a traceback until `gate.cli.start` handles it.
if (
    os.path.basename(sys.argv[0]) == "schedproof"
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .systems import register_builtin

if TYPE_CHECKING:
    from .gate.judging.rule_choice import OwnRule as OwnRule
    from .gate.library.judging import Counterexample as Counterexample
    from .gate.library.judging import judge as judge
    from .gate.library.judging import open_target as open_target
    from .gate.library.judging import read_scenario as read_scenario
    from .gate.library.judging import replay as replay
    from .gate.library.judging import search as search
    from .gate.library.judging import write_scenario as write_scenario
    from .model.scenario import Request as Request
    from .model.scenario import Scenario as Scenario

__version__ = "0.1.0"

LIBRARY = {
    "open_target": "gate.library.judging",
    "judge": "gate.library.judging",
    "replay": "gate.library.judging",
    "search": "gate.library.judging",
    "Counterexample": "gate.library.judging",
    "read_scenario": "gate.library.judging",
    "write_scenario": "gate.library.judging",
    "Scenario": "model.scenario",
    "Request": "model.scenario",
    "OwnRule": "gate.judging.rule_choice",
}
__all__ = ["LIBRARY", "__version__", *LIBRARY]

register_builtin()


def __getattr__(name: str) -> Any:
    if name not in LIBRARY:
        raise AttributeError(f"module 'schedproof' has no attribute {name!r}")
    return getattr(import_module(f".{LIBRARY[name]}", __name__), name)
