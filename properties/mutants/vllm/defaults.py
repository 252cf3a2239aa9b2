"""A mutant for each default that the chapter on chunked prefill names."""

from ..faulty_targets import with_default
from .mutants import mutant

MUTANTS = (
    mutant(
        "whole prompts by default",
        "V1CP-R06",
        target=with_default("enable_chunked_prefill", False),
    ),
    mutant(
        "a threshold by default",
        "V1CP-R09",
        target=with_default("long_prefill_token_threshold", 2048),
    ),
    mutant("a reserve by default", "V1CP-R21", target=with_default("watermark", 0.01)),
    mutant("a first chunk is enough", "V1CP-R23", target=with_default("reserve_full_isl", False)),
)
