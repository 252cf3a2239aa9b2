"""<!-- include: FILE --> becomes a Markdown file of the repository; what it links comes along."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
MARKER = re.compile(r"<!-- include: (\S+) -->")
LINK = re.compile(r"\]\(([^)#:]+)\)")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add what an included file links, at the same place beside its page."""
    for page in list(files.documentation_pages()):
        for name in MARKER.findall(page.content_string):
            for link in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
                there = posixpath.join(posixpath.dirname(page.src_uri), link)
                content = ((ROOT / name).parent / link).read_text(encoding="utf-8")
                if files.get_file_from_path(there) is None:
                    files.append(File.generated(config, there, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the file."""
    return MARKER.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8"), markdown)
