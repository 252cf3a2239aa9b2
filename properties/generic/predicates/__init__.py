"""Predicates of any scheduler: each reads the step and what was shown before it, and no more.

Source: target protocol, "The step observation"; the bounds that a configuration gives.
"""

from . import blocks, bounds, tokens

PREDICATES = {**bounds.PREDICATES, **blocks.PREDICATES, **tokens.PREDICATES}
