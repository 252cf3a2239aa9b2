"""A module that takes long to import: it writes down each import."""

import os
import threading
import time
from pathlib import Path

with Path(os.environ["IMPORTED"]).open("a") as file:
    file.write(f"{os.getpid()}\n")

if "THREADED" in os.environ:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
