"""`schedproof serve`: serve a Python target on stdin and stdout."""

from typing import Annotated

import typer

from ...model.target import ModelTarget
from ..targets.factory import make_target
from ..targets.jsonl import serve as serve_lines
from ..targets.target_spec import parse_target


def command(
    target: Annotated[str, typer.Argument(help="model, or MODULE:FACTORY")],
) -> None:
    """Serve a Python target on stdin and stdout, through the target protocol as JSON Lines."""
    spec = parse_target(target)
    serve_lines(ModelTarget(spec.formula) if spec.is_model else make_target(spec))
