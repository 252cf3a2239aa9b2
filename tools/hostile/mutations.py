"""Corrupt a file: its bytes, or its values if it is JSON. The same seed always makes the same
change."""

import gzip
import json
import random
from typing import Any

BYTES = [
    *(
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\n",
        b"\r",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
    ),
    *(
        b"1e999",
        b"-1",
        b"0",
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"99999999999999999999",
        b"1e5",
    ),
    *(
        b'"\\ud800"',
        b"\\u0000",
        b"\x1b]0;x\x07",
        b"::error::",
        b"=",
        b"'",
        b"[[",
        b"#",
        b"\\",
        b"$(x)",
    ),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 10**15, 10**16, 10**30, 1.5, 1e308, -0.0),
    *(
        "",
        " ",
        "x" * 300,
        "\ud800",
        "\x00",
        "\n",
        "\x1b[31m",
        "../../x",
        "<script>",
        "r0",
        "ALL-R01",
    ),
    *([], {}, [[]], [None], {"": 0}, [1] * 50, {"id": "r0"}),
]


def corrupt(whole: bytes, seed: int, packed: bool) -> bytes:
    """Return the corrupted file. If the file is `packed`, corrupt its unpacked content in half
    of the cases."""
    rng = random.Random(seed)
    inside = packed and rng.random() < 0.5
    data = gzip.decompress(whole) if inside else whole
    if rng.random() < 0.5 and (meant := _meant(data, rng)) is not None:
        data = meant
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        data = _cut(data, rng)
    return gzip.compress(data, mtime=0) if inside else data


def _cut(data: bytes, rng: random.Random) -> bytes:
    """Remove, insert, duplicate or replace some of the bytes."""
    start = rng.randint(0, len(data))
    end = min(start + rng.choice((0, 0, 1, 2, 8, 40, 10**6)), len(data))
    put = rng.choice(
        (b"", rng.choice(BYTES), rng.randbytes(rng.randint(1, 6)), data[start:end] * 2)
    )
    return data[:start] + put + data[end:]


def _meant(data: bytes, rng: random.Random) -> bytes | None:
    """Return the JSON with another value, key or length somewhere, or None if the data is not
    JSON."""
    lines = data.splitlines(keepends=True)
    number = 0
    try:
        read = json.loads(data)
    except ValueError:
        if not lines:
            return None
        number = rng.randrange(len(lines))
        try:
            read = json.loads(lines[number])
        except ValueError:
            return None
        lines[number] = json.dumps(_change(read, rng)).encode() + b"\n"
        return b"".join(lines)
    return json.dumps(_change(read, rng)).encode()


def _change(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice([*value])
        what = rng.random()
        if what < 0.1:
            return {name: member for name, member in value.items() if name != key}
        if what < 0.2:
            return {**value, rng.choice(["", "x", key.upper(), "\x1b[0m"]): value[key]}
        return {**value, key: _change(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        place = rng.randrange(len(value))
        what = rng.random()
        if what < 0.1:
            return value[:place] + value[place + 1 :]
        if what < 0.2:
            return [*value, *value[: rng.choice((1, 20))]]
        return [*value[:place], _change(value[place], rng), *value[place + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 10**6, -(10**6), 2**63))
    return rng.choice(VALUES)
