"""Keys of what the plugin stores in pytest's own objects."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .judgement import Judgement  # noqa: F401 (the type of a key)

JUDGEMENT = pytest.StashKey["Judgement"]()
REPORTED = "schedproof"
