"""Published bugs of Spyre's scheduler, brought back as mutants of the model.

Each is the mutation that its fix undid, in the terms of the model; the rule is the one that its
invariant words. OUT_OF_SCOPE has the others, with what is missing to see them.
"""

from contextlib import ExitStack
from typing import Any

from ....model.spyre import admission, forward, padding, scheduler, volumetric
from ....model.spyre.state import Sequence, State
from ..mutant import Mutant, Plant, release_with, replaced, together
from .layout import no_padding_in_one_chunk
from .mutants import CACHED_CHUNKS_COMPUTED, REPAIRED_2_5_2, flags, observed, projection
from .queue import lose_waiting_request


def prompt_counted_as_generated(original: Any) -> Any:
    """SPY-001: what may still come is max_tokens less everything computed, the prompt included."""

    def fits_volume(config: Any, rev: Any, current: int, decoding: Any, newcomer: Any) -> bool:
        shorter = [
            one._replace(max_tokens=one.generated + max(one.max_tokens - 1 - one.computed, 0))
            for one in decoding
        ]
        return bool(original(config, rev, current, shorter, newcomer))

    return fits_volume


def generated_counted_again(original: Any) -> Any:
    """SPY-002: every request of the batch is taken for as long as it ever was."""

    def fits_model_length(config: Any, current: int, decoding: Any, newcomer: Any) -> bool:
        longer = [one._replace(generated=0) for one in decoding]
        return bool(original(config, current, longer, newcomer))

    return fits_model_length


def length_unchecked_in_chunks(original: Any) -> Any:
    """SPY-003: prompts of several chunks join without the condition on the model's length."""

    def fits_model_length(config: Any, current: int, decoding: Any, newcomer: Any) -> bool:
        return newcomer.computed > 0 or bool(original(config, current, decoding, newcomer))

    return fits_model_length


def first_token_counted_twice(original: Any) -> Any:
    """SPY-004: the token that prefill gives is asked room for."""

    def fits_model_length(config: Any, current: int, decoding: Any, newcomer: Any) -> bool:
        longer = newcomer._replace(max_tokens=newcomer.max_tokens + 1)
        return bool(original(config, current, decoding, longer))

    return fits_model_length


def old_tkv_after_last_chunk(original: Any) -> Any:
    """SPY-007: the last chunk, too, reports the tkv of the batch before it."""

    def prefill_tkv(config: Any, rev: Any, state: State, one: Sequence, *, ends: bool) -> int:
        return int(original(config, rev, state, one, ends=False))

    return prefill_tkv


def padding_recomputed_in_every_chunk(original: Any) -> Any:
    """SPY-010: in every boundary chunk as many blocks more are left unwritten as are padding."""

    def written(config: Any, one: Sequence, pad: int, end: int) -> list[int]:
        numbers: list[int] = original(config, one, pad, end)
        boundary = 0 in numbers[: len(numbers) - 1] and one.prefix_hit > 0
        cached = sum(number == 0 for number in numbers)
        return [
            0 if boundary and place < cached + pad else number
            for place, number in enumerate(numbers)
        ]

    return written


def tkv_kept_when_idle(original: Any) -> Any:
    """SPY-022: an empty step leaves the tkv of a batch that is gone."""

    def compute_nothing(state: State, **more: Any) -> Any:
        after, computed = original(state, **more)
        return after._replace(tkv=state.tkv), computed

    return compute_nothing


def one_token_each(original: Any) -> Any:
    """SPY-025: max_tokens is taken for 1."""

    def arrive(state: State, newcomer: Sequence) -> State:
        after: State = original(state, newcomer._replace(output_len=1))
        return after

    return arrive


def batch_cut_by_budget(original: Any) -> Any:
    """SPY-026: the base scheduler's token budget cuts the batch."""

    def compute_decode(config: Any, state: State) -> Any:
        kept, cut = state.decoding[:2], state.decoding[2:]
        if not cut:
            return original(config, state)
        smaller = tuple(one for one in state.running if one not in cut)
        after, computed = original(config, state._replace(running=smaller))
        assert len(kept) == len(computed.scheduled)
        return after._replace(running=after.running + cut), computed

    return compute_decode


def pool_of_someone_else(config: Any, seen: dict[str, Any]) -> None:
    """SPY-032: usage is reported from a pool that is unused."""
    if "free_blocks" in seen:
        seen["free_blocks"] = config.num_blocks


def older_projection(stack: ExitStack) -> None:
    """SPY-013: #835, the projection that #913 replaced: the document's, realigned."""
    flags(projection=volumetric.document_realigned)(stack)


# What the releases break without any mutation.
RELEASE_FAULTS = {"2.1.2": frozenset({"SPY-R35", "ALL-R01", "ALL-R08"})}


def _of(release: str, name: str, rule: str, bug: str, plant: Plant) -> Mutant:
    known = RELEASE_FAULTS.get(release, frozenset())
    return Mutant(name, rule, target=release_with(plant), revision=release, known=known, bug=bug)


KNOWN_BUGS = (
    Mutant(
        "remaining tokens less the prompt",
        "SPY-R47",
        replaced(admission, "fits_volume", prompt_counted_as_generated),
        bug="SPY-001",
    ),
    Mutant(
        "generated tokens counted again",
        "SPY-R42",
        replaced(admission, "fits_model_length", generated_counted_again),
        bug="SPY-002",
    ),
    Mutant(
        "no model length for several chunks",
        "SPY-R41",
        replaced(admission, "fits_model_length", length_unchecked_in_chunks),
        bug="SPY-003",
    ),
    Mutant(
        "room for the first token twice",
        "SPY-R42",
        replaced(admission, "fits_model_length", first_token_counted_twice),
        bug="SPY-004",
    ),
    _of(
        "2.1.2",
        "old tkv after the last chunk",
        "ALL-R07",
        "SPY-007",
        replaced(forward, "prefill_tkv", old_tkv_after_last_chunk),
    ),
    Mutant(
        "cached chunks are scheduled",
        "SPY-R54",
        CACHED_CHUNKS_COMPUTED,
        bug="SPY-008",
    ),
    Mutant(
        "padding counted in every boundary chunk",
        "SPY-R56",
        replaced(forward, "written", padding_recomputed_in_every_chunk),
        bug="SPY-010",
    ),
    Mutant("projection before #835", "SPY-R47", projection("1.10.0"), bug="SPY-012"),
    Mutant("projection before #913", "SPY-R47", older_projection, bug="SPY-013"),
    Mutant("projection before #954", "SPY-R47", projection("2.0.1"), bug="SPY-014"),
    Mutant("projection before #961", "SPY-R47", projection("2.1.0"), bug="SPY-015"),
    Mutant(
        "model length kept",
        "SPY-R42",
        together(REPAIRED_2_5_2, flags(keeps_model_length=True)),
        revision="2.5.2",
        bug="SPY-016",
    ),
    Mutant(
        "blocks for the padding of the first chunk",
        "SPY-R02",
        together(REPAIRED_2_5_2, flags(counts_ahead=True, whole_first_chunk=True)),
        revision="2.5.2",
        bug="SPY-017",
    ),
    Mutant(
        "tkv kept when idle",
        "ALL-R10",
        replaced(forward, "compute_nothing", tkv_kept_when_idle),
        revision="2.1.2",
        alone=True,
        bug="SPY-022",
    ),
    Mutant(
        "single chunk left-aligned",
        "SPY-R14",
        replaced(padding, "left_padding_blocks", no_padding_in_one_chunk),
        bug="SPY-023",
    ),
    Mutant(
        "one token each", "ALL-R04", replaced(scheduler, "arrive", one_token_each), bug="SPY-025"
    ),
    Mutant(
        "batch cut by a token budget",
        "SPY-R22",
        replaced(forward, "compute_decode", batch_cut_by_budget),
        bug="SPY-026",
    ),
    Mutant(
        "held back and lost",
        "ALL-R03",
        replaced(scheduler, "complete", lose_waiting_request),
        bug="SPY-028",
    ),
    Mutant("usage of another pool", "ALL-R09", observed(pool_of_someone_else), bug="SPY-032"),
)
OUT_OF_SCOPE = {
    "SPY-018": "statistics of cache look-ups are no part of a step observation",
    "SPY-019": "requests with a grammar are not in the protocol",
    "SPY-020": "grammar masks belong to the worker, not to a scheduling decision",
    "SPY-029": "an empty schedule that is executed all the same is a fault of the worker",
    "SPY-030": "rows of logits processors belong to the worker's batch",
    "SPY-031": "embeddings of images are not in the protocol",
    "SPY-033": "logits processors are not in the protocol",
    "SPY-034": "position numbers of padding are not in the protocol",
}
