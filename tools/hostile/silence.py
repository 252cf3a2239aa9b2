"""How long does each long command print nothing on a terminal?

More than two seconds without output are a failure. The tool takes a few minutes:

    make tool NAME=hostile.silence OPTIONS="gate model"    # only commands that begin like this
"""

import os
import pty
import select
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .kills import LOST
from .loaders import TWO
from .report import finish, parser

MOST = 2.0  # how many seconds may pass without output
LIMIT = 60.0
LONG = 20_000  # steps of the recorded run
COMMANDS = (
    "gate model --system vllm --time-limit 20",
    "gate model --system vllm --time-limit 20 --jobs 2",
    f"gate {shlex.quote(LOST)} --system vllm --profile quick --step-limit 1",
    "gate model --system spyre --revision documented --profile quick",
    "replay long.json --quiet",
    "replay far.json --quiet --target model --trace far.jsonl --time-limit 20",
    "show long.json -o long.html",
    "check-trace long.jsonl",
    "check-trace long.jsonl --explain",
    "diff model model --system vllm --time-limit 20",
    "diff model --system vllm --save base.gz --time-limit 20",
    "search SPY-R07",
    "search SPY-R07 --prove",
    "search SPY-R07 --maximize volume --param requests=5 --time-limit 20",
    "search SPY-R07 --engine hypothesis --time-limit 20",
    "search V1-R05 --engine explore --time-limit 20",
    "explore --system vllm --time-limit 20",
    "corpus minimize long.json --time-limit 20",
    "campaign --items 20 --workers 2 --ledger l.ndjson",
    "doctor model --system spyre",
    "check contracts --time-limit 20",
    "demo",
)


def longest_silence(command: str, folder: Path) -> tuple[float, float, int]:
    """Run a command. Return its longest time without output and its total time, both in seconds,
    and its exit code."""
    ours, theirs = pty.openpty()
    began = last = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "schedproof", *shlex.split(command)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
        start_new_session=True,
    )
    os.close(theirs)
    silence = 0.0
    while time.monotonic() - began < LIMIT:
        ready, _, _ = select.select([ours], [], [], 0.1)
        silence = max(silence, time.monotonic() - last)
        if ready:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # the command has closed the terminal
                break
            if not data:
                break
            last = time.monotonic()
    process.terminate()
    code = process.wait()
    os.close(ours)
    return silence, time.monotonic() - began, code


def write_inputs(folder: Path) -> None:
    """Write a scenario with many steps, its trace, and a scenario with a very late arrival."""
    from msgspec.structs import replace

    from schedproof.gate.files.scenario_file import scenario_json

    first, second = TWO.requests
    many = tuple(
        replace(second, id=f"r{number}", arrival=number * 10, prompt=((f"r{number}", 6),))
        for number in range(LONG // 10)
    )
    (folder / "long.json").write_text(scenario_json(replace(TWO, requests=many)))
    far = replace(TWO, requests=(first, replace(second, arrival=10**7)))
    (folder / "far.json").write_text(scenario_json(far))
    words = ("replay", "long.json", "--quiet", "--trace", "long.jsonl")
    subprocess.run([sys.executable, "-m", "schedproof", *words], cwd=folder, check=False)


def main() -> int:
    """Time each command and print a table. Return the number of commands that are silent for too
    long."""
    known = parser(__doc__)
    known.add_argument("words", nargs="*", help="only commands that begin with these words")
    options = known.parse_args()
    lines, silent = (
        ["| command | longest silence | total time | exit code |", "|---|---|---|---|"],
        [],
    )
    with tempfile.TemporaryDirectory() as place:
        write_inputs(Path(place))
        for command in COMMANDS:
            if not command.startswith(" ".join(options.words)):
                continue
            silence, seconds, code = longest_silence(command, Path(place))
            shown = command.replace(LOST, "TARGET").replace(shlex.quote(LOST), "TARGET")
            lines.append(f"| `{shown}` | {silence:.1f} s | {seconds:.0f} s | {code} |")
            silent += [f"{shown}: silent for {silence:.1f} s"] if silence > MOST else []
    return finish("silence", lines, silent, write=options.write)


if __name__ == "__main__":
    sys.exit(main())
