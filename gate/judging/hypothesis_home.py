"""Where Hypothesis keeps its files: in our cache, not in the user's working folder."""

import os

from ..targets.releases import cache_folder


def set_hypothesis_home() -> None:
    """Before Hypothesis is first run; HYPOTHESIS_STORAGE_DIRECTORY has its way."""
    from hypothesis.configuration import set_hypothesis_home_dir  # takes a tenth of a second

    if "HYPOTHESIS_STORAGE_DIRECTORY" not in os.environ:
        set_hypothesis_home_dir(cache_folder() / "hypothesis")
