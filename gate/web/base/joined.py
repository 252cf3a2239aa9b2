"""A page of one file: its HTML with the styles, the scripts and the data in it."""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

# Nothing is loaded from anywhere; a page that is served may ask its own server.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'{script}; "
    "img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def joined(name: str, data: Any, *, connect: str = "'none'") -> str:
    """The page `name.html` of this package, with `base.css`, `name.css`, `name.js` and the data."""
    return filled(name, {"data": _harmless(data)}, [name], policy(connect=connect))


def filled(name: str, parts: Mapping[str, str], scripts: Sequence[str], allowed: str) -> str:
    """The page `name.html`, with `base.css`, `name.css`, the scripts one behind the other, what is
    `allowed` (a policy), and further parts, which are HTML: each stands where its @name@ is."""
    own = {
        "policy": allowed,
        "style": _text("base.css") + _text(f"{name}.css"),
        "script": "\n".join(_text(f"{script}.js") for script in scripts),
    }
    every = {**own, **parts}
    return re.sub(r"@(\w+)@", lambda mark: every[mark[1]], _text(f"{name}.html"))


def policy(*, connect: str = "'none'", script: str = "") -> str:
    """What a page may do: ask `connect`, and load scripts from `script` beside its own."""
    return POLICY.format(connect=connect, script=script and f" {script}")


def _harmless(data: Any) -> str:
    """JSON in which nothing can end the element that it stands in."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
