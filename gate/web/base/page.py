"""Put a page together in one file: its HTML, styles, scripts and data."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ...console import output

# A page loads nothing and runs only its own styles and scripts. If a server sent the page, it may
# fetch data from that server.
POLICY = (
    "default-src 'none'; style-src {style}; script-src {script}; "
    "img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def render_page(name: str, data: Any, *, connect: str = "'none'") -> str:
    """Return the page `name.html` of this package, including `base.css`, `name.css`, `name.js`
    and the data. `connect` is the only origin from which the page may fetch."""
    return render_template(name, {"data": Markup(_harmless(data))}, [name], connect=connect)


def render_template(
    name: str,
    values: Mapping[str, Any],
    scripts: Sequence[str],
    styles: Sequence[str] = (),
    *,
    connect: str = "'none'",
) -> str:
    """Render the template `name.html`, including `base.css`, `styles`, `name.css` and the scripts,
    in this order.

    Values are escaped unless they are `Markup`. `connect` is the only origin from which the page
    may fetch.
    """
    style, script = _parts(name, scripts, styles)
    policy = POLICY.format(style=_source(style), script=_source(script), connect=connect)
    own = {"policy": policy, "style": style, "script": script}
    # The policy needs no escaping inside quotes.
    made = {part: Markup(text) for part, text in own.items()}
    return _templates().get_template(f"{name}.html").render({**made, **values})


def content_security_policy(name: str, *, connect: str) -> str:
    style, script = _parts(name, [name], [])
    return POLICY.format(style=_source(style), script=_source(script), connect=connect)


def _parts(name: str, scripts: Sequence[str], styles: Sequence[str]) -> tuple[str, str]:
    style = "".join(_text(f"{sheet}.css") for sheet in ("base", *styles, name))
    return style, "\n".join(_text(f"{script}.js") for script in scripts)


def _source(text: str) -> str:
    digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'" if text else "'none'"


def _templates() -> Environment:
    made = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(_text))
    made.filters["shown"] = lambda text: output.one_line(output.unicode_text(str(text)))
    return made


def _harmless(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
