"""Grammars that take as many steps to compile as a scenario prescribes, and then allow any token.

Source: StructuredOutputManager.grammar_init, which stores the `Future` of the grammar in a request
before the scheduler sees it.
"""

import functools
import importlib
from concurrent.futures import Future
from typing import Any

KEY = "structured_outputs"


class Grammars:
    """The grammars that are being compiled, with the number of steps left."""

    def __init__(self) -> None:
        self._left: list[tuple[int, Future[Any], bool]] = []

    def compile(self, request: Any, steps: int, fails: bool) -> None:
        """Let the request wait for its grammar for this many steps. If `fails`, the compilation
        then raises an error."""
        grammar: Future[Any] = Future()
        request.structured_output_request.grammar = grammar
        self._left.append((steps, grammar, fails))

    def step(self) -> None:
        for steps, grammar, fails in self._left:
            if not steps and fails:
                grammar.set_exception(RuntimeError("the grammar is invalid"))
            elif not steps:
                grammar.set_result(_any_token()())
        self._left = [(steps - 1, grammar, fails) for steps, grammar, fails in self._left if steps]


def ask_for(taken: Any) -> None:
    params = importlib.import_module("vllm.sampling_params").StructuredOutputsParams
    taken.sampling_params.structured_outputs = params(regex=".*")


class Masks:
    """Stands in for the library that compiles grammars. Its masks forbid nothing."""

    def allocate_token_bitmask(self, rows: int) -> Any:
        torch: Any = importlib.import_module("torch")
        return torch.full((rows, 1), -1, dtype=torch.int32)


def provide_masks(manager: Any) -> None:
    if manager.backend is None:
        manager.backend = Masks()


@functools.cache
def _any_token() -> Any:
    types: Any = importlib.import_module("vllm.v1.structured_output.backend_types")

    class AnyToken(types.StructuredOutputGrammar):  # type: ignore[misc]
        """A grammar that allows any text."""

        def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
            return True

        def validate_tokens(self, tokens: list[int]) -> list[int]:
            return tokens

        def rollback(self, num_tokens: int) -> None:
            """Do nothing."""

        def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
            """Do nothing."""

        def is_terminated(self) -> bool:
            return False

        def reset(self) -> None:
            """Do nothing."""

    return AnyToken
