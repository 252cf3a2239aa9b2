"""The errors of the core: an input that means nothing, and a release that ends."""


class InputError(ValueError):
    """Input that cannot be honoured; `path` is its JSON path (`$.requests[2].prompt`)."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class ReleaseEnded(Exception):  # noqa: N818 (what the modelled release does, no error of ours)
    """The modelled release does not survive this step: from here on its model says nothing."""
