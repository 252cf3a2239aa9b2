"""schedproof: executable models and checks for the schedulers of LLM inference engines."""

from .systems import register_builtin

__version__ = "0.1.0"

register_builtin()
