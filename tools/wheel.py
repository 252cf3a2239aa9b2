"""Do a newcomer's first commands work in a fresh environment with the built wheel?

`make dist` runs this tool, with the folder of the wheel as its argument.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

FIRST = (
    (["--version"], 0),
    (["demo"], 0),
    (["init"], 0),
    (["doctor"], 0),
    (["gate"], 0),
    (["gate", "model", "--system", "spyre", "--revision", "documented", "--rule", "SPY-R07"], 1),
)


def main(folder: Path) -> int:
    """Install the wheel and run the first commands. Return the number of commands that did not
    end as expected."""
    [wheel] = folder.glob("*.whl")
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "venv"
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", wheel.resolve()], check=True)
        for words, expected in FIRST:
            ran = subprocess.run(
                [home / "bin" / "schedproof", *words],
                cwd=place,
                capture_output=True,
                text=True,
                check=False,
            )
            right = ran.returncode == expected
            failed += not right
            print(f"{'ok' if right else 'WRONG'}  schedproof {' '.join(words)}: {ran.returncode}")
            if not right:
                print(ran.stdout[-2000:], ran.stderr[-2000:])
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
