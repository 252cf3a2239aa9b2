"""The one error of the core: an input that means nothing, with the place where it stands."""


class InputError(ValueError):
    """Input that cannot be honoured; `path` is its JSON path (`$.requests[2].prompt`)."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
