"""A page in one file: its HTML with the styles, scripts and data."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ...console import output

# Nothing is loaded from anywhere; a page that is served may fetch from its own server.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def render_page(name: str, data: Any, *, connect: str = "'none'") -> str:
    """Return the page `name.html` of this package, with `base.css`, `name.css`, `name.js` and the
    data. The page may fetch only from the origin `connect`."""
    allowed = content_security_policy(connect=connect)
    return render_template(name, {"data": Markup(_harmless(data))}, [name], allowed)


def render_template(
    name: str,
    values: Mapping[str, Any],
    scripts: Sequence[str],
    allowed: str,
    styles: Sequence[str] = (),
) -> str:
    """Return the template `name.html` with `base.css`, `name.css` and the scripts, in this order.

    Args:
        name: the name of the template and its style.
        values: the values for the template; they are escaped unless they are `Markup`.
        scripts: the names of the scripts, without suffix.
        allowed: the page's Content-Security-Policy.
        styles: further style sheets, before the template's own.
    """
    own = {
        "policy": Markup(allowed),  # it stands in double quotes and has none
        "style": Markup("".join(_text(f"{sheet}.css") for sheet in ("base", *styles, name))),
        "script": Markup("\n".join(_text(f"{script}.js") for script in scripts)),
    }
    return _templates().get_template(f"{name}.html").render({**own, **values})


def content_security_policy(*, connect: str = "'none'") -> str:
    """Return the page's Content-Security-Policy; the page may fetch only from the origin
    `connect`."""
    return POLICY.format(connect=connect)


def _templates() -> Environment:
    made = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(_text))
    made.filters["shown"] = lambda text: output.one_line(output.unicode_text(str(text)))
    return made


def _harmless(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
