"""A module that takes long to import: it writes down each import."""

import os
import threading
import time
from pathlib import Path

with Path(os.environ["IMPORTED"]).open("a") as file:
    file.write(f"{os.getpid()}\n")

if "THREADED" in os.environ:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def fork_later(fork=os.fork):
    """Fail once, as if there were too many processes."""
    os.fork = fork
    raise BlockingIOError


if "FAILS" in os.environ:
    os.fork = fork_later
