"""Read the keys of the configuration that a user fixes for every run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...model.errors import InputError
from ...model.systems import config_keys, full_config
from .scales import scales_of


def read_changes(
    system: str, revision: str, changes: Sequence[str], fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what `--set KEY=VALUE` fixes; a value is JSON, or a word.

    A key in `fixed` can have no other value.

    Raises:
        InputError: an unknown key, or values that fit no scale.
    """
    keys = config_keys(system, revision)
    read: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or key not in keys:
            raise InputError("--set", f"{change!r:.80}; valid: KEY=VALUE with {', '.join(keys)}")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if key in fixed and value != fixed[key]:
            raise InputError(
                "--set", f"{change!r:.80}; valid: {key}={json.dumps(fixed[key])}, for both to take"
            )
        if key in read and value != read[key]:
            raise InputError("--set", f"{change!r:.80}: {key} is given twice")
        read[key] = value
    problem = None
    for values in scales_of(system).scales.values():
        try:
            full_config(system, revision, {**values, **read})
        except InputError as error:
            problem = error
        else:
            return read
    assert problem is not None
    raise InputError("--set", str(problem))
