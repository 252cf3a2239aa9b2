"""Puts what `schedproof matrix` made into the documentation: docs/track-record.md, and beside it
the scenarios that the page names.

    python tests/bench/track_record.py FOLDER

FOLDER is the one of the matrix (`--out`).
"""

import json
import shutil
import sys
from pathlib import Path

from schedproof.tests.bench.pages import DOCS

PAGE, SCENARIOS = DOCS / "track-record.md", DOCS / "track-record"


def main() -> int:
    """Copy the page, and each scenario under a name that says where it is from."""
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    text = (folder / "matrix.md").read_text(encoding="utf-8")
    shutil.rmtree(SCENARIOS, ignore_errors=True)
    SCENARIOS.mkdir()
    for row in json.loads((folder / "matrix.json").read_text(encoding="utf-8"))["rows"]:
        source = folder / row["scenario"]
        name = f"{source.parent.name}-{source.stem}.json"
        shutil.copyfile(source, SCENARIOS / name)
        text = text.replace(f"`{row['scenario']}`", f"[{source.stem}](track-record/{name})")
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.name}: {len([*SCENARIOS.iterdir()])} scenarios")
    return 0


if __name__ == "__main__":
    sys.exit(main())
