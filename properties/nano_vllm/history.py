"""How nano-vLLM differs from other systems in what a client can infer.

Source: the slide deck on nano-vLLM, chapter 7: a full block is stored in the cache, and a starting
sequence shares every cached block up to the first that is missing.
"""

from ..history.features import Features


class NanoFeatures(Features):
    """The cache keeps blocks of generated tokens, too."""

    def caches_output(self, revision: str) -> bool:
        return True


FEATURES = NanoFeatures()
