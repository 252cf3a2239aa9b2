"""Prompts with pictures: their names say their sizes, and they are never cut."""

from hypothesis import given
from hypothesis import strategies as st

from schedproof.model.scenario import Request, check_requests
from schedproof.model.systems import full_config
from schedproof.properties.vllm import strategies as vllm
from schedproof.properties.vllm.history import encoder
from schedproof.properties.vllm.request_features import encoders, with_pictures


@st.composite
def configs(draw):
    config = draw(vllm.configs("small", "documented"))
    drawn = draw(encoders(config))
    drafts = ("num_speculative_tokens", "num_lookahead_tokens")
    kept = {key: value for key, value in config.items() if key not in drafts}
    return full_config("vllm", "documented", kept | drawn)


@given(st.data())
def test_requests_with_pictures_keep_their_length_and_can_be_computed(data):
    config = data.draw(configs())
    said: list[Request] = []
    for number in range(3):
        name, length = f"r{number}", data.draw(st.integers(1, 20))
        content = data.draw(vllm.contents(config, said, name, length))
        plain = Request(id=name, arrival=0, prompt=content, max_tokens=1)
        request = data.draw(with_pictures(plain, config))
        assert request.prompt_len == plain.prompt_len
        assert not encoder.beyond(config, encoder.inputs_of(request))
        said.append(request)
    check_requests(tuple(said))
