"""Mutants and known bugs of vLLM V1."""

from .defaults import MUTANTS as DEFAULTS
from .drafts import MUTANTS as DRAFTS
from .known_bugs import KNOWN_BUGS
from .known_bugs import OUT_OF_SCOPE as OUT_OF_SCOPE
from .mutants import MUTANTS as OTHERS

MUTANTS = (*OTHERS, *DEFAULTS, *DRAFTS, *KNOWN_BUGS)
