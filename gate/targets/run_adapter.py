"""Run the adapter of a system in an environment without schedproof, such as that of a release.

    python gate/targets/run_adapter.py SYSTEM

The adapter is `SYSTEM/target.py` next to this file. Adapters share files through relative imports,
so this folder is loaded as a package with a unique name. It is removed from the path, because its
subfolder `vllm` would hide the real vLLM.
"""

import importlib
import sys
import types
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PACKAGE = "schedproof_targets"


def main() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != FOLDER]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(FOLDER)]
    sys.modules[PACKAGE] = package
    importlib.import_module(f"{PACKAGE}.{sys.argv[1]}.target").main()


if __name__ == "__main__":
    main()
