"""What does `schedproof matrix` find in the published releases?

Copies the page that a matrix made to `docs/track-record.md`, and beside it the scenarios that the
page names. The matrix takes an hour of two cores and 5 GB, and resumes where it was stopped:

    schedproof matrix vllm sendnn-inference vllm-spyre --out FOLDER
    make tool NAME=track_record OPTIONS=FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

from .pages import DOCS

PAGE, SCENARIOS = DOCS / "track-record.md", DOCS / "track-record"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
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
