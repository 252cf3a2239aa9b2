from .served import vllm  # noqa: F401
