"""Can any input from outside break schedproof?

Runs every attack of this folder at full size, and writes the table of each one in
`docs/reference/attacks.md`. This takes two hours on two cores:

    make tool NAME=hostile
    make tool NAME=hostile.inputs OPTIONS="--inputs 10000"    # a single attack, without --write

The exit code is the number of attacks that found a fault.
"""

import subprocess
import sys

ATTACKS = (
    *("inputs", "commands", "targets", "kills", "surroundings", "installs", "pages", "server"),
    "silence",
)


def main() -> int:
    failed = 0
    for attack in ATTACKS:
        print(f"{attack}:", flush=True)
        words = [sys.executable, "-m", f"{__package__}.{attack}", "--write", *sys.argv[1:]]
        failed += subprocess.run(words, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
