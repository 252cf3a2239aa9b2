"""Mutants and known bugs of vLLM V1."""

from .defaults import MUTANTS as DEFAULTS
from .drafts import MUTANTS as DRAFTS
from .encoder import MUTANTS as ENCODER
from .in_flight import MUTANTS as IN_FLIGHT
from .known_bugs import KNOWN_BUGS
from .known_bugs import OUT_OF_SCOPE as OUT_OF_SCOPE
from .loads import MUTANTS as LOADS
from .mutants import MUTANTS as OTHERS

MUTANTS = (*OTHERS, *DEFAULTS, *DRAFTS, *IN_FLIGHT, *LOADS, *ENCODER, *KNOWN_BUGS)
