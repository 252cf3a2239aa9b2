"""Mutants of the generic system: its model is vLLM's, so the faults are, too."""

from .mutants import MUTANTS as MUTANTS
