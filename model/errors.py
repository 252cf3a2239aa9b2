"""Exceptions of the models: invalid input, and a step in which the modelled release would crash."""


class InputError(ValueError):
    """Invalid input. `path` is the JSON path of the invalid value, such as
    `$.requests[2].prompt`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class ReleaseEnded(Exception):  # noqa: N818 (what the modelled release does, no error of ours)
    """Raised if the modelled release would crash in this step. The model cannot continue then."""
