"""Shared parts of all pictures: check the file and Plotly, and convert a figure to bytes."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...gate.console.option_checks import check_file
from ...gate.console.output import one_line
from ...model.errors import InputError

SUFFIXES = (".html", ".svg")
WIDTH = 900  # of an .svg; a page is as wide as its window
VIEW = '<meta name="viewport" content="width=device-width">'
ADAPTS = Path(__file__).with_name("picture.js").read_text(encoding="utf-8")


def check_picture(path: Path) -> None:
    """Check before the work that the picture can be written.

    Raises:
        InputError: an unknown suffix, a file that cannot be written, or a missing package.
    """
    if path.suffix not in SUFFIXES:
        raise InputError("--picture", f"{path}; valid: a file that ends in .html or .svg")
    check_file("--picture", path)
    if find_spec("plotly") is None:
        raise InputError("--picture", "Plotly is not installed; valid: pip install plotly")
    if path.suffix == ".svg" and find_spec("kaleido") is None:
        raise InputError(
            "--picture",
            f"{path}: Kaleido, which draws .svg, is not installed; valid: an .html file, or "
            "pip install kaleido",
        )


def drawn_as(path: Path, figure: Any, name: str, height: int) -> bytes:
    """Return a Plotly figure in the format of the file's suffix: a page that needs no network, or
    an image.

    Raises:
        InputError: Kaleido cannot draw without a browser.
    """
    if path.suffix == ".html":
        page: str = figure.to_html(
            include_plotlyjs=True, full_html=True, div_id=name, post_script=ADAPTS
        )
        return page.replace("<head>", f"<head>{VIEW}", 1).encode()
    try:
        image: bytes = figure.to_image(format="svg", width=WIDTH, height=height)
    except Exception as error:  # Kaleido's own, Plotly's, or those of the browser that it starts
        why = one_line(str(error).strip().partition("\n")[0])
        raise InputError(
            "--picture", f"{path}: Kaleido cannot draw it ({why}); valid: an .html file"
        ) from None
    return image
