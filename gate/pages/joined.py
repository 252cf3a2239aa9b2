"""A page of one file: its HTML with the styles, the script and the data in it."""

import json
import re
from importlib.resources import files
from typing import Any

# Nothing is loaded from anywhere; a page that is served may ask its own server.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def joined(name: str, data: Any, *, connect: str = "'none'") -> str:
    """The page `name.html` of this package, with `base.css`, `name.css`, `name.js` and the data."""
    page = _text(f"{name}.html")
    parts = {
        "policy": POLICY.format(connect=connect),
        "style": _text("base.css") + _text(f"{name}.css"),
        "data": _harmless(data),
        "script": _text(f"{name}.js"),
    }
    return re.sub(r"@(policy|style|data|script)@", lambda mark: parts[mark[1]], page)


def _harmless(data: Any) -> str:
    """JSON in which nothing can end the element that it stands in."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
