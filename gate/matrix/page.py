"""The matrix as a page for readers, in Markdown."""

from jinja2 import Environment, PackageLoader, StrictUndefined

from .table import Matrix


def page_of(matrix: Matrix, command: str) -> str:
    """Return the page; `command` made the matrix."""
    environment = Environment(
        loader=PackageLoader("schedproof.gate.matrix", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # no page of HTML
    )
    environment.filters["cell"] = lambda text: text.replace("|", "\\|").replace("\n", " ")
    return environment.get_template("page.md.jinja").render(matrix=matrix, command=command)
