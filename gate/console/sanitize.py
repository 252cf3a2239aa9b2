"""Words of a target, as they may be printed."""


def one_line(text: str) -> str:
    """What a target says, without line ends and control characters."""
    return "".join(char if char.isprintable() else " " for char in text)
