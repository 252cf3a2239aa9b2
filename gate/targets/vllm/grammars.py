"""Grammars that take as many steps to compile as a scenario prescribes, and then allow the scripted
output of their request.

The grammars are objects of the release's own class for its default library, xgrammar; only the
library's matcher is replaced. The masks are read with the worker's own function for applying them.

Source: StructuredOutputManager, which makes the masks, and whose `grammar_init` stores the `Future`
of the grammar in a request before the scheduler sees it; XgrammarGrammar; apply_grammar_bitmask.
"""

import importlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from ..protocol_checks import FIRST_TOKEN, VOCABULARY, CheckedRequest, Output, stream_tokens
from .in_flight import Flight, Flights

KEY = "structured_outputs"
MISFIT = 0  # a draft that fits no grammar
ANY = -1  # both numbers in a mask that allows every token
OTHER = -1  # reported for a mask that was not made from the request's own grammar

Masks = dict[str, list[int | None]]


class Matcher:
    """Stands in for xgrammar's state of a grammar. Until the grammar ends, the matcher accepts the
    output that follows the request's reasoning, and any draft for the current place in this output.

    A mask contains the number of the matcher and the place of the masked token in the output.
    """

    def __init__(self, number: int, request: CheckedRequest) -> None:
        self.number = number
        self.tokens: list[int] = []
        self._output: Output = request.output
        self._ends, self._drafts = request.grammar_ends, request.grammar_drafts
        self._begins = request.grammar_begins

    @property
    def place(self) -> int:
        """Return the place in the output of the next token that the grammar accepts."""
        return self._begins + len(self.tokens)

    def accept_token(self, token: int) -> bool:
        place = self.place
        accepts = token in (self._output.token(place), fitting_draft(place))
        if self.is_terminated() or not accepts:
            return False
        self.tokens.append(token)
        return True

    def rollback(self, tokens: int) -> None:
        del self.tokens[len(self.tokens) - tokens :]

    def is_terminated(self) -> bool:
        return self._ends is not None and self.place >= self._ends

    def fill_next_token_bitmask(self, masks: Any, row: int) -> None:
        masks[row, 0], masks[row, 1] = self.number, self.place

    def reset(self) -> None:
        self.tokens = []

    def fitting(self, place: int, drafts: int) -> int:
        """Return how many of `drafts` drafts fit the grammar. The drafts follow the first `place`
        tokens of the output."""
        fit = drafts
        if self._drafts:
            fit = min(drafts, self._drafts[place % len(self._drafts)])
        if self._ends is not None:
            fit = max(min(fit, self._ends - place), 0)
        return max(fit, min(drafts, self._begins - place))


class Reasoner:
    """Stands in for the parser that finds the end of a model's reasoning by the tokens that may end
    it. If there are no such tokens, the reasoning has already ended in the prompt."""

    def __init__(self, *ends: int) -> None:
        self.ends = {*ends}

    def is_reasoning_end(self, tokens: Sequence[int]) -> bool:
        return not self.ends

    def is_reasoning_end_streaming(self, tokens: Sequence[int], new: Iterable[int]) -> bool:
        return not self.ends.isdisjoint(new)


def fitting_draft(place: int) -> int:
    return stream_tokens("draft", 1, place)[0]


class Grammars:
    """The grammars of all requests, and the number of steps left until each is compiled."""

    def __init__(self) -> None:
        self._left: list[tuple[int, Future[Any], Any]] = []
        self._matchers: dict[str, Matcher] = {}
        self._later: dict[str, deque[Matcher | None]] = {}  # grammars of turns that have been sent
        self._numbers: dict[str, int] = {}  # how many tokens each grammar has accepted
        self.over: set[str] = set()  # sessions whose turn ends in this step
        self._made = 0
        self.masks: Masks = {}  # the masks of the last decision
        self.lost: set[str] = set()  # requests whose drafts the scheduler does not get

    def compile(self, own: Any, request: CheckedRequest, manager: Any) -> None:
        """Let the request wait for its grammar, which may turn out to be invalid. `manager` is the
        release's StructuredOutputManager."""
        if (matcher := self._compile(own, request, manager)) is not None:
            self._matchers[request.output.id] = matcher

    def _compile(self, own: Any, request: CheckedRequest, manager: Any) -> Matcher | None:
        reason(manager, own.structured_output_request, request)
        grammar: Future[Any] = Future()
        own.structured_output_request.grammar = grammar
        matcher, compiled = None, RuntimeError("the grammar is invalid")
        if not request.grammar_fails:
            matcher = Matcher(self._made, request)
            module: Any = importlib.import_module("vllm.v1.structured_output.backend_xgrammar")
            compiled = module.XgrammarGrammar(VOCABULARY, matcher, None)
            self._made += 1
        self._left.append((request.grammar_steps, grammar, compiled))
        return matcher

    def compile_turn(self, name: str, own: Any, request: CheckedRequest, manager: Any) -> None:
        """Compile the grammar of a further turn of a session, if the turn has one. The grammar is
        ready at once, because the scheduler may see the turn before the next step. `begin_turn`
        begins the turn later."""
        matcher = self._compile(own, request, manager) if request.has_grammar else None
        self._later.setdefault(name, deque()).append(matcher)
        self._set_ready()

    def begin_turn(self, name: str) -> None:
        matcher = self._later[name].popleft()
        self._matchers.pop(name, None)
        if matcher is not None:
            self._matchers[name] = matcher

    def forget(self, name: str) -> None:
        self._matchers.pop(name, None)
        self._later.pop(name, None)

    def step(self) -> None:
        self.masks, self.lost, self.over = {}, set(), set()
        self._set_ready()
        self._left = [(steps - 1, *others) for steps, *others in self._left]

    def _set_ready(self) -> None:
        for steps, grammar, compiled in self._left:
            if not steps and isinstance(compiled, RuntimeError):
                grammar.set_exception(compiled)
            elif not steps:
                grammar.set_result(compiled)
        self._left = [entry for entry in self._left if entry[0]]

    def count(self) -> None:
        """Count the tokens that each grammar has accepted, before further turns begin."""
        self._numbers = {name: len(matcher.tokens) for name, matcher in self._matchers.items()}

    def accepted(self, names: Mapping[str, Any]) -> dict[str, int]:
        """Return how many tokens the grammar of each of these requests has accepted."""
        return {name: self._numbers[name] for name in names if name in self._numbers}

    def verified(self, flight: Flight, before: Flights) -> Flight:
        """Add to a decision made ahead the number of drafts that the worker may accept. Only the
        worker has the drafts, and it gives those of its last decision to the scheduler. In some
        releases, the scheduler tells the worker how many of these it has checked.
        """
        tells = "num_acceptable_drafts" in _output_class().__annotations__
        drafts = dict(flight.drafts)
        for name in drafts.keys() & self._matchers.keys():
            drafts[name] = self._matchers[name].fitting(flight.first[name], drafts[name])
            if not before.tokens_in_flight(name):
                self.lost.add(name)
                drafts[name] = 0 if tells else drafts[name]
        return flight._replace(drafts=drafts)

    def fitting(self, name: str, place: int, drafts: int) -> int:
        matcher = self._matchers.get(name)
        return drafts if matcher is None else matcher.fitting(place, drafts)

    def drafts(self, name: str, place: int, count: int) -> list[int]:
        """Return the drafts that a drafter proposes after the first `place` tokens of an output."""
        if name not in self._matchers:
            return [FIRST_TOKEN] * count
        fitting = self._matchers[name].fitting(place, count)
        tokens = [fitting_draft(place + number) for number in range(fitting)]
        return tokens + [MISFIT] * (count - fitting)

    def read(self, decision: Any, flight: Flight, output: Any) -> None:
        """Keep the masks that the worker applies to each token that it may sample."""
        rows, applied = _apply(decision, output)
        self.masks, row = {}, 0
        for name in decision.num_scheduled_tokens:
            if row in applied and name not in self.over:
                last = row + 1 + flight.drafts.get(name, 0)
                own = self._matchers[name].number if name in self._matchers else None
                self.masks[name] = [
                    None if number == ANY else place if number == own else OTHER
                    for number, place in rows[row:last]
                ]
            row += 1 + len(decision.scheduled_spec_decode_tokens.get(name, ()))


def _apply(decision: Any, output: Any) -> tuple[list[list[int]], set[int]]:
    """Let the worker apply the masks of a decision to a batch in the order of the decision. Return
    a mask for each row of the batch, and the rows to which masks are applied."""
    torch: Any = importlib.import_module("torch")
    worker: Any = importlib.import_module("vllm.v1.structured_output.utils")
    drafts = decision.scheduled_spec_decode_tokens
    names = list(decision.num_scheduled_tokens)
    tokens = sum(1 + len(drafts.get(name, ())) for name in names)
    found: list[tuple[Any, Any]] = []

    def keep(_: Any, masks: Any, indices: Any) -> None:
        found.append((masks, indices))

    replaced = {"xgr": worker.xgr, "PIN_MEMORY": getattr(worker, "PIN_MEMORY", False)}
    worker.xgr = SimpleNamespace(apply_token_bitmask_inplace=keep)
    worker.PIN_MEMORY = False  # there is no accelerator to read this memory
    try:
        batch = SimpleNamespace(req_ids=names)
        worker.apply_grammar_bitmask(decision, output, batch, torch.zeros(tokens, 1))
    finally:
        for name, value in replaced.items():
            setattr(worker, name, value)
    masks, indices = found[0]
    return masks.tolist(), {*(range(tokens) if indices is None else indices)}


def _output_class() -> Any:
    return importlib.import_module("vllm.v1.core.sched.output").GrammarOutput


def reason(manager: Any, structured: Any, request: CheckedRequest) -> None:
    """Let the release find the end of a request's reasoning in the request's output and drafts.

    Older releases have one parser for all requests. They look for the end only in outputs, and
    cannot tell the prompts of these requests apart.
    """
    last = request.grammar_begins - 1
    ends = (request.output.token(last), fitting_draft(last)) if request.grammar_begins else ()
    if hasattr(structured, "reasoner"):
        structured.reasoner = Reasoner(*ends)
        manager.reasoner_cls = Reasoner if ends else manager.reasoner_cls
    else:
        structured.reasoning_ended = not ends
        if ends:
            manager.reasoner = manager.reasoner or Reasoner()
            manager.reasoner.ends.add(ends[0])


def ask_for(taken: Any) -> None:
    params = importlib.import_module("vllm.sampling_params").StructuredOutputsParams
    taken.sampling_params.structured_outputs = params(regex=".*")


class Backend:
    """Stands in for the library that compiles grammars. Each of its masks consists of the two
    numbers that a `Matcher` writes."""

    def allocate_token_bitmask(self, rows: int) -> Any:
        torch: Any = importlib.import_module("torch")
        return torch.full((rows, 2), ANY, dtype=torch.int32)


def provide_masks(manager: Any) -> None:
    if manager.backend is None:
        manager.backend = Backend()
