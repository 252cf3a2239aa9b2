"""The configurations of a search."""

from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from ...model.errors import InputError
from ...model.scenario import Request
from ...model.systems import full_config, make_model
from ..checking.translation import optional_in_effect, with_fixed
from .generators import generators_of
from .state import Search, SearchOptions


def configs(search: Search) -> st.SearchStrategy[dict[str, Any]]:
    """The configurations of the search."""
    asked = search.options
    if asked.config is not None:
        return st.just(full_config(asked.system, asked.revision, asked.config))
    meant = optional_in_effect(asked.system, asked.revision, asked.fixed)
    chosen = {key: st.sampled_from(values) for key, values in asked.choices.items()}

    def configured(drawn: dict[str, Any]) -> dict[str, Any]:
        values = with_fixed(asked.system, asked.revision, drawn, asked.fixed)
        try:
            config = full_config(asked.system, asked.revision, values)
            if meant:
                _check_smallest(asked, config)
        except InputError as error:  # what is drawn does not go with what is fixed
            search.refused[str(error)] += 1
            reject()
        return config

    drawn = generators_of(asked.system).configs(asked.scale, asked.revision)
    if chosen and "own" not in asked.fixed:
        return st.builds(_with_own, drawn, st.fixed_dictionaries(chosen)).map(configured)
    return drawn.map(configured)


def _check_smallest(asked: SearchOptions, config: dict[str, Any]) -> None:
    """Raise InputError where the model refuses even the smallest request: a pool that was drawn has
    no room for the drafts that are fixed, say, and a target need not refuse it."""
    smallest = Request(id="r", arrival=0, prompt=(("r", 1),), max_tokens=1)
    why = make_model(asked.system, asked.revision, config).refusal(smallest)
    if why is not None:
        raise InputError("$.config", why)


def _with_own(drawn: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the keys that the target declares."""
    return {**drawn, "own": own}
