"""The keys under which the plugin stores data in pytest's objects."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .judgement import Judgement  # noqa: F401 (the type of a key)

JUDGEMENT = pytest.StashKey["Judgement"]()
REPORTED = "schedproof"
