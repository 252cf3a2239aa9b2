"""schedproof: executable models and checks for the schedulers of LLM inference engines."""

__version__ = "0.1.0"
