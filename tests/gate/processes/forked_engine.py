"""A target that imports a slow module, and its scheduler from a folder on PYTHONPATH."""

import hashlib
import importlib
import json
import os
import sys
from pathlib import Path

from schedproof.gate.processes.fork_server import serve_forks


def digest_of(file):
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def main():
    serve_forks()
    importlib.import_module("slow_import")
    scheduler = importlib.import_module("scheduler")
    for line in sys.stdin:
        asked = json.loads(line)
        done = eval(asked["kind"], vars(scheduler)) if asked["op"] == "control" else None
        own = {"file": scheduler.__file__, "digest": digest_of(scheduler.__file__)}
        own |= {"change": scheduler.CHANGE, "variables": dict(os.environ)}
        print(json.dumps({"ok": True, "pid": os.getpid(), "done": done, **own}), flush=True)


if __name__ == "__main__":
    main()
