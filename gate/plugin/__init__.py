"""The pytest plugin: run the gate as tests of the user's repository."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .judgement import Judgement  # noqa: F401 (the type of a key)

# Keys under which the plugin stores data in pytest's objects.
JUDGEMENT = pytest.StashKey["Judgement"]()
REPORTED = "schedproof"
