"""Runs the scheduler's own step on symbols, with a given number of decoding requests.

`step_lemmas` explains what is proven, and which parts of the step are stubbed; `step_claims` states
the claims.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, cast

import z3

from ...model import allocator
from ...model.spyre import (
    blocks,
    documented,
    forward,
    release_2_1_2,
    release_2_5_2,
    scheduler,
)
from ...model.spyre.config import SpyreConfig
from ...model.spyre.model import SpyreModel
from ...model.spyre.revision import Revision
from ...model.spyre.state import Sequence as Request
from ...model.spyre.state import State
from ..smt.execution import (
    Once,
    Queue,
    SymbolicLength,
    SymbolicRun,
    UndecidedError,
    bare,
    count_like,
    paths,
    stubs,
)
from ..smt.numbers import Numbers
from ..smt.on_symbols import length_of, on_symbols
from ..smt.passed_on import Name, plain_id
from ..smt.terms import all_of, any_of, boolean, integer
from .symbolic_admission import MANY, length
from .symbolic_state import (
    MODULES,
    SWITCHES,
    AnyPool,
    Call,
    Held,
    Lengths,
    OnlyVisited,
    StepConfiguration,
    Stepped,
    SymbolicConfig,
    Unread,
    check_fields,
    several,
    several_names,
)

FEW = 1  # with up to this many decoding requests, any request may be aborted within the step
FEW_PAUSED = 2  # with more decoding and paused requests, none ends early or is aborted
ENDING = 2  # with MANY requests, this many may each end in the step; the others end together


class Step:
    """All paths of one step with `size` decoding requests.

    The step runs when `paths` is first read. `settles` means that the release decides within the
    step which requests decode and which pause. With `pauses`, earlier steps may have done so.
    """

    settles = False

    def __init__(
        self, configuration: StepConfiguration, size: int, *, pauses: bool = False
    ) -> None:
        self.configuration, self.size = configuration, size
        self.numbers = numbers = Numbers()
        self.more = length(numbers, "more decoding", 0)
        # This member represents `more` others as well. It is not the last one, so any number of
        # requests may come before the members that follow it.
        self.counted = 1 if size == MANY else None
        self.in_line, self.pool = length(numbers, "waiting", 0), length(numbers, "num_blocks")
        self.reported = length(numbers, "aborts to report", 0)
        self._tkvs: dict[tuple[int, ...], tuple[Any, list[Any]]] = {}
        self.limit, self.slots = length(numbers, "limit"), length(numbers, "slots")
        self.longest = length(numbers, "longest")
        self.members = [self._decoding(number) for number in range(size)]
        self.ongoing, self.waiting = self._prefilling(), [self._new(), self._new()]
        self.hit_by_now = length(numbers, "hit by now", 0)
        self.gone = length(numbers, "aborts of requests that have left", 0)
        numbers.facts.append(self.hit_by_now * configuration.block < self.ongoing.prompt)
        self.tkv, self.runner_tkv = (length(numbers, name, 0) for name in ("tkv", "runner_tkv"))
        self.paths = Once(paths(numbers, self._code, quick=True))
        self.was_prefill, self.prefills = boolean("was_prefill"), boolean("prefills")
        # A paused request may be longer than the tkv.
        if configuration.remembers and not pauses:
            lengths = [member.computed for member in self.members]
            covered = all_of([all_of(has <= self.tkv, has <= self.runner_tkv) for has in lengths])
            apart = self.was_prefill if configuration.interleave else z3.BoolVal(False)
            numbers.facts.append(any_of(apart, covered))

    @property
    def newcomers(self) -> dict[str, Lengths]:
        return {"p": self.ongoing, "w0": self.waiting[0], "w1": self.waiting[1]}

    def _new(self) -> Lengths:
        numbers, block = self.numbers, self.configuration.block
        prompt, tokens, ends = (length(numbers, name) for name in ("prompt", "tokens", "ends"))
        hit = numbers.fresh("hit", 0)
        # The check on arrival accepts a request that is within the limit when alone; its last token
        # is never a hit.
        numbers.facts += [ends <= tokens, prompt + tokens - 1 <= self.limit]
        numbers.facts.append(hit * block < prompt)
        if self.settles and self.size > FEW_PAUSED:
            numbers.facts.append(ends == tokens)
        none = z3.IntVal(0)
        return Lengths(prompt, tokens, ends, none, none, hit, hit * block)

    def _decoding(self, number: int) -> Lengths:
        new, generated = self._new(), length(self.numbers, "generated")
        self.numbers.facts.append(generated < new.ends)
        if self.size > MANY:
            self.numbers.facts.append(generated + 1 < new.ends)
        elif number >= ENDING and self.size == MANY:
            together, early = boolean("the others end"), boolean("the others end early")
            self.numbers.facts.append((generated + 1 == new.ends) == together)
            self.numbers.facts.append((new.ends < new.tokens) == early)
        return new._replace(generated=generated, computed=new.prompt + generated - 1)

    def _prefilling(self) -> Lengths:
        new, computed = self._new(), length(self.numbers, "computed")
        self.numbers.facts += [computed < new.prompt, new.hit_tokens <= computed]
        return new._replace(computed=computed)

    def state(self, run: SymbolicRun) -> State:
        def request(name: str, of: Lengths, **more: Any) -> Request:
            prompt, tokens, ends, generated, computed = map(run.number, of[:5])
            lengths = {"prompt": prompt, "max_tokens": tokens, "output_len": ends}
            more |= {"content": Unread(), "computed": computed, "generated": generated}
            return Request(Name(name), **lengths, **more)

        def admitted(name: str, of: Lengths) -> Request:
            def some(what: str) -> Any:
                return run.number(integer(f"{what} of {name}"))

            return request(
                *(name, of),
                prefix_hit=run.number(of.hit_tokens),
                blocks=Held(some("blocks")),
                published=some("published blocks"),
                paused_steps=0 if self.settles else some("paused steps"),
            )

        check_fields()
        running = [admitted(f"r{number}", of) for number, of in enumerate(self.members)]
        if self.counted is not None:
            running[self.counted] = several(running[self.counted], run.number(self.more))
        for held in self._asked_for_blocks(running):
            cast(Any, held.blocks).counts = True
        first, others = (request(f"w{number}", of) for number, of in enumerate(self.waiting))
        in_line = run.number(self.in_line)
        waiting = Queue([first, several(others, in_line - 2)], in_line)
        if run.answer(self.prefills):
            ongoing = admitted("p", self.ongoing)
            at_front = run.answer(boolean("prefilling first"))
            running = [ongoing, *running] if at_front else [*running, ongoing]
        reported: Any = run.number(self.reported)
        gone = Queue([several_names("gone", reported - 1)], reported)
        return State(
            waiting=cast(Any, waiting),
            running=tuple(running),
            last_step_was_prefill=run.truth(self.was_prefill),
            tkv=run.number(self.tkv),
            runner_tkv=run.number(self.runner_tkv),
            pool=AnyPool.of(run),
            lost_blocks=run.number(integer("lost blocks")),
            aborted=cast(Any, () if self.settles and self.size > FEW_PAUSED else gone),
        )

    def _asked_for_blocks(self, running: list[Request]) -> list[Request]:
        if self.settles:
            return running[:1] if self.size <= FEW_PAUSED else []
        if self.size == MANY:
            return running[1:2]  # the one that represents others
        return running[: 2 if self.size == 2 else 1]

    def within(self, run: SymbolicRun, state: State) -> State:
        """Return the state at an arbitrary moment of a step: its requests may have computed and
        generated any numbers of tokens."""

        def some(request: Request) -> Request:
            names = [
                f"{what} of {plain_id(request.id)} by now" for what in ("computed", "generated")
            ]
            computed, generated = (run.number(integer(name)) for name in names)
            return request._replace(
                computed=count_like(computed, request.computed),
                generated=count_like(generated, request.generated),
            )

        running, paused = map(some, state.running), map(some, state.paused)
        return state._replace(running=tuple(running), paused=tuple(paused))

    def config(self, run: SymbolicRun, *, any_switches: bool = False) -> Any:
        slots, longest, limit = map(run.number, (self.slots, self.longest, self.limit))
        settings = SpyreConfig(
            block_size=self.configuration.block,
            chunk_size=self.configuration.chunk,
            max_num_seqs=slots,
            max_model_len=longest,
            max_batch_tkv=limit,
            interleave=self.configuration.interleave,
            pausing=False,
        )
        # A release that never pauses requests still has the switch, which is on by default.
        unused = () if self.configuration.pauses else ("pausing",)
        free = SWITCHES if any_switches or self.settles else unused
        return SymbolicConfig(run, settings, self.pool, free)

    def _code(self, run: SymbolicRun) -> Stepped:
        config, before, calls = self.config(run), self.state(run), list[Call]()
        observed, compared = list[Any](), list[tuple[list[Request], Any]]()
        tkvs = list[tuple[list[Any], Any]]()

        def check(members: Any, newcomer: Any, block: Any, limit: Any, tkv: Any) -> bool:
            if not isinstance(members, list | tuple):
                raise UndecidedError(
                    "passes members to the check that may be gone when they are read"
                )
            answer = boolean(f"accepted {len(calls)}")
            calls.append(Call([*members], newcomer, block, limit, tkv, answer))
            return run.answer(answer)

        asked = count()

        def any_answer(name: str) -> Callable[..., bool]:
            return lambda *of: run.answer(boolean(f"{name} {plain_id(of[-1].id)} {next(asked)}"))

        def fits_limit(given: SpyreConfig, batch: Any) -> bool:
            if given is not config:
                raise UndecidedError("compares a batch with the limit of another configuration")
            as_it_is = [any(request is other for other in before.running) for request in batch]
            if not self.settles and len(batch) == self.size and all(as_it_is):
                return True  # `batch_within_limit_is_not_paused`: it was accepted
            fits = boolean(f"fits {len(compared)}")
            compared.append(([*batch], fits))
            return run.answer(fits)

        revision = replace(
            self.configuration.revision,
            volume_check=check,
            fits_model_length=any_answer("fits length"),
            fits_pool=any_answer("fits pool"),
        )
        if self.settles:  # a request that may prefill does not affect which requests decode

            def candidate(config: SpyreConfig, revision: Revision, state: State) -> Any:
                ongoing = state.prefilling
                choice = state.waiting if ongoing is None else (ongoing,)
                may = (r for r in choice if run.answer(boolean(f"may prefill {plain_id(r.id)}")))
                return next(may, None)

            revision = replace(revision, candidate=candidate)
        model = SpyreModel(config, revision)
        # A request in its prefill publishes blocks of its own, so its hit may have grown.
        hits = {name: of.hit for name, of in self.newcomers.items()} | {"p": self.hit_by_now}
        known = cast(Any, before.waiting).known
        contents = {plain_id(r.id): r.content for r in (*known, *before.running)}

        def prefix_hit(given: Any, state: State, request: Request) -> SymbolicLength:
            own = self.newcomers[request.id]
            if (
                given is not config
                or state.pool is not before.pool
                or request.content is not contents[request.id]
                or bare(request.prompt) is not own.prompt
            ):
                raise UndecidedError("asks for the hit of another request, pool or configuration")
            return SymbolicLength(run.number(hits[request.id]))

        room = any_answer("fits prompt") if self.configuration.bounded else lambda *_: True
        inside = next(
            (names for names in self._may_abort(before) if run.answer(boolean(" ".join(names)))), ()
        )
        with (
            on_symbols(*MODULES),
            stubs(scheduler, observe=lambda *given: observed.append(given)),
            stubs(
                documented,
                written=lambda *_: Unread(),
                left_pad_blocks=lambda lengths, _: [
                    count_like(run.number(integer(f"padding {at}")), each)
                    for at, each in enumerate(lengths)
                ],
                max_tkv=partial(self._max_tkv, run, tkvs),
                request_tkvs=partial(self._request_tkvs, run),
            ),
            stubs(
                blocks,
                prefix_hit=prefix_hit,
                hold=lambda config, request, covered, pool: (request, pool),
                release=lambda config, revision, state, request: state.pool,
            ),
            stubs(allocator, touch=lambda pool, _: pool),
            # Only a decode step asks how many blocks a request holds. One request that answers is
            # enough (`loop_lemmas`).
            stubs(forward, len=lambda of: length_of(of) if getattr(of, "counts", True) else 0),
            stubs(release_2_1_2, fits_prompt=room),
            stubs(release_2_5_2, fits_limit=fits_limit),
        ):
            after, _ = model.step(before, self._aborted_inside(run, inside))
        if vars(model).keys() != {"config", "revision"}:
            raise UndecidedError("remembers something for later calls in the model")
        [(*_, decision, computed, _, _)] = observed
        # A queue that no code has read is unchanged.
        unseen = after.waiting is before.waiting
        waited = tuple(cast(Any, before.waiting).known if unseen else before.waiting)
        before = before._replace(waiting=waited)
        after = after._replace(waiting=waited) if unseen else after
        return Stepped(before, after, decision, computed, calls, inside, compared, tkvs)

    def _aborted_inside(self, run: SymbolicRun, names: tuple[str, ...]) -> Any:
        """Return the ids of the aborts within the step. With few requests, they include ids of
        requests that have already left."""
        if self.settles or self.size > FEW:
            return OnlyVisited(names)
        gone: Any = run.number(self.gone)
        return Queue([*names, several_names("gone", gone - 1)], gone + len(names))

    def _max_tkv(self, run: SymbolicRun, tkvs: list[Any], lengths: list[Any], block: int) -> Any:
        """Return an arbitrary number that the lemma `no_length_exceeds_its_tkv_N` allows, and
        append it to `tkvs`, with the lengths."""
        if block != self.configuration.block:
            raise UndecidedError("asks for a tkv in blocks of another size")
        if not lengths:
            return 0
        tkv = run.number(self._at_least([bare(each) for each in lengths]))
        tkvs.append(([*lengths], tkv))
        return tkv if lengths[1:] else count_like(tkv, lengths[0])

    def _request_tkvs(self, run: SymbolicRun, lengths: list[Any], block: int) -> list[Any]:
        return [self._max_tkv(run, [], [each], block) for each in lengths]

    def _at_least(self, lengths: list[Any]) -> Any:
        key = tuple(each.get_id() for each in lengths)
        if key not in self._tkvs:
            tkv = length(self.numbers, "tkv of a batch")
            self.numbers.define([tkv >= each for each in lengths])
            self._tkvs[key] = tkv, lengths
        return self._tkvs[key][0]

    def _may_abort(self, state: State) -> Iterator[tuple[str, ...]]:
        if self.settles and self.size > FEW:
            if self.size <= FEW_PAUSED and len(state.paused) == 1:
                yield (state.paused[0].id,)
        elif self.size <= FEW:
            yield from ((request.id,) for request in state.running)
            yield ("w0",)
        elif self.size in (2, MANY):
            yield "r0", "w0"
        if self.size == 2:
            yield ("r0",)
