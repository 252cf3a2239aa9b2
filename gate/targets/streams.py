"""Compute the tokens of a scenario. Only their equality matters, so they are not stored.

A token has 31 bits, more than a model's vocabulary needs. With fewer bits, two of a thousand
streams could begin with the same token by chance, and correct hits of a prefix cache would be
reported as wrong.

Source: scenario format, `requests[].prompt` and `requests[].output_len`.
"""

from dataclasses import dataclass
from zlib import crc32

VOCABULARY = 2**31 - 1
EOS = 1
FIRST_TOKEN = 2  # 0 is padding, 1 is EOS


def stream_tokens(stream: str, count: int, start: int = 0) -> list[int]:
    base = crc32(stream.encode())
    span = VOCABULARY - FIRST_TOKEN
    return [FIRST_TOKEN + (base + 2654435761 * i) % span for i in range(start, start + count)]


@dataclass(frozen=True)
class Output:
    """The output of a request. In the n-th verification of drafts, `accepted[n]` of them are right;
    after its end, `accepted` starts over. `stream` names the tokens; the default is the request's
    id."""

    id: str
    length: int
    ends_with_eos: bool
    accepted: tuple[int, ...] = ()
    stream: str = ""

    def token(self, index: int) -> int:
        if self.ends_with_eos and index == self.length - 1:
            return EOS
        return stream_tokens(f"out:{self.stream or self.id}", 1, index)[0]
