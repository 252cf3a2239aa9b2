"""Read the configuration of any system, and report the first error clearly."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from .errors import InputError

# A larger number can only be a mistake, and the run would never end.
MOST = 10**9
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]


Config = TypeVar("Config", bound=msgspec.Struct)


def convert(values: Mapping[str, Any], kind: type[Config]) -> Config:
    """Read a configuration from `values`, with defaults for missing keys.

    Raise InputError for an unknown key or a wrong type.
    """
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        unknown = [key for key in values if key not in kind.__struct_fields__]
        if unknown:
            path = f"$.config.{ascii(unknown[0])[1:-1]}"
            problem = f"unknown key; valid: {', '.join(kind.__struct_fields__)}"
        else:
            message, _, place = str(error).rpartition(" - at `$.")
            key = place.removesuffix("`")
            value = values.get(re.split(r"[.\[]", key)[0])  # the whole value of a key
            path, problem = f"$.config.{key}", f"{value!r:.60}: {message}"
        raise InputError(path, problem) from None
