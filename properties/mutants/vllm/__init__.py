"""Mutants and known bugs of vLLM V1."""

from .defaults import MUTANTS as DEFAULTS
from .known_bugs import KNOWN_BUGS
from .known_bugs import OUT_OF_SCOPE as OUT_OF_SCOPE
from .mutants import MUTANTS as OTHERS

MUTANTS = (*OTHERS, *DEFAULTS, *KNOWN_BUGS)
