"""The keys of the scheduler's configuration, and their defaults."""

from collections.abc import Mapping
from typing import Any

import msgspec

from schedproof.model.config import Positive, convert


class ToyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a run.

    Without the second key, schedproof would assume a prefix cache, which this scheduler lacks.
    """

    max_num_seqs: Positive = 2
    enable_prefix_caching: bool = False


def read_config(values: Mapping[str, Any], revision: str) -> ToyConfig:
    """Return the configuration that `values` gives, with every other key at its default.

    Raises:
        InputError: an unknown key, or an impossible value.
    """
    return convert(values, ToyConfig)
