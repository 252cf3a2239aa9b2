"""Print every tool, with the question that it answers."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> None:
    for path in sorted(FOLDER.rglob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        question, _, _ = doc.partition("\n\n")
        if question.endswith("?"):
            name = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
            print(f"{name.removesuffix('.__main__'):<23}{' '.join(question.split())}")


if __name__ == "__main__":
    main()
