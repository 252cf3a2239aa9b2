"""Parts of a prompt that an encoder computes, and the encoder outputs that the worker has.

Source: release 0.33.0, Scheduler._try_schedule_encoder_inputs; GPUModelRunner, which first drops
outputs, then computes inputs, and then needs the output of each input that it reaches.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ....model.observation import Step
from ....model.scenario import Request

Config = Mapping[str, Any]


class Input(NamedTuple):
    """A segment of a prompt: its number, its name, and the positions of its first token and of its
    end (exclusive)."""

    number: int
    name: str
    start: int
    end: int

    @property
    def tokens(self) -> int:
        return self.end - self.start


def encodes(config: Config) -> bool:
    return bool(config.get("max_num_encoder_input_tokens"))


def are_whole(config: Config) -> bool:
    """Return whether a step must compute all tokens of an encoder input or none, provided that it
    has room for all of them."""
    return bool(config.get("disable_chunked_mm_input"))


def inputs_of(request: Request) -> tuple[Input, ...]:
    if not request.encoder_inputs:
        return ()
    starts = request.segment_starts
    return tuple(
        [
            Input(number, request.prompt[number][0], starts[number], starts[number + 1])
            for number in sorted(request.encoder_inputs)
        ]
    )


def longest(config: Config) -> int:
    return min(int(config["max_num_encoder_input_tokens"]), int(config["encoder_cache_size"]))


def beyond(config: Config, inputs: tuple[Input, ...]) -> bool:
    if not inputs or not encodes(config):
        return bool(inputs)
    return max(image.tokens for image in inputs) > longest(config)


def after(outputs: Mapping[str, int], step: Step, new: Iterable[Input]) -> dict[str, int]:
    """Return the encoder outputs that the worker has after a step, with their sizes in tokens.
    `new` lists the inputs that the step computed."""
    dropped = set(step.encoder_dropped or ())
    kept = {name: tokens for name, tokens in outputs.items() if name not in dropped}
    return kept | {image.name: image.tokens for image in new}


def at(inputs: tuple[Input, ...], token: int) -> Input | None:
    return next((image for image in inputs if image.start <= token < image.end), None)
