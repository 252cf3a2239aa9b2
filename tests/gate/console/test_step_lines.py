"""A line a step: what it says, what is folded, and `replay --fold`."""

import io
import json
from pathlib import Path

from rich.console import Console

from schedproof.gate.console.step_lines import StepLines, step_line
from schedproof.model.observation import Step
from schedproof.model.target import ModelTarget
from schedproof.properties.checking.replay import replay

from ..trace_build import request, scenario

CONFIG = {"block_size": 64, "max_batch_tkv": 520}
DOCUMENTED = {
    **{"block_size": 64, "chunk_size": 256, "max_num_seqs": 2, "max_model_len": 512},
    **{"max_batch_tkv": 520, "revision": "documented"},
}


def lines(fold, *steps, config=CONFIG):
    printed: list[str] = []
    lines = StepLines(lambda text: printed.append(text.plain), config, fold=fold)
    for number, step in enumerate(steps):
        lines(number, step)
    lines.close()
    return printed


def steps_of(*requests, **config):
    steps: list[Step] = []
    replay(
        ModelTarget(), scenario(*requests, **config), (), lambda number, step: steps.append(step)
    )
    return steps


def test_the_overshoot_of_the_document_is_told_with_its_jumps_and_its_border():
    steps = steps_of(request("r1", 0, 3, 3), request("r2", 0, 256, 2), **DOCUMENTED)
    assert lines(False, *steps) == [
        "step     0 prefill r1+3  tkv 3  left_pad_blocks {r1 3}  waiting [r2]",
        "step     1 decode  r1+1  tkv 4  volume 4/520  left_pad_blocks {r1 0}",
        "step     2 prefill r2+256  tkv 4 -> 256 jump  left_pad_blocks {r2 0}",
        "step     3 decode  r2+1, r1+1  tkv 256 -> 261 jump | border r2  volume 522/520 over  "
        "left_pad_blocks {r2 0, r1 4}  finished {r2 length, r1 length}",
    ]


def test_a_border_without_a_tkv_has_its_bar_too():
    last = Step(kind="decode", scheduled={"a": 1}, computed={"a": 64})
    line = step_line(9, Step(kind="decode", scheduled={"a": 1}), last, CONFIG)
    assert line == "step     9 decode  a+1  | border a"


def test_what_an_encoder_computes_and_drops_is_told_in_each_step():
    step = Step(
        kind="prefill",
        scheduled={"a": 4},
        encoder_inputs={"a": (0, 2), "b": (1,)},
        encoder_dropped=("cat",),
    )
    assert step_line(3, step, step, {}) == (
        "step     3 prefill a+4  encoder_inputs {a 0+2, b 1}  encoder_dropped [cat]"
    )


def test_decode_steps_that_are_alike_fold_up_to_what_is_new():
    steps = steps_of(request("a", 0, 6, 13))
    small = {"block_size": 4, "max_batch_tkv": 256}
    assert len(lines(False, *steps)) == 13
    assert lines(True, *steps, config=small) == [
        "step     0 prefill a+6  tkv 6  left_pad_blocks {a 0}",
        "step     1 decode  a+1  tkv 7  volume 7/256",
        "step     2 decode  a+1  tkv 8  volume 8/256",
        "step     3 decode  a+1  tkv 9 | border a  volume 9/256",
        "steps 4-6 decode  a+1  tkv 10 -> 12  volume 10 -> 12/256  3 steps alike",
        "step     7 decode  a+1  tkv 13 | border a  volume 13/256",
        "steps 8-10 decode  a+1  tkv 14 -> 16  volume 14 -> 16/256  3 steps alike",
        "step    11 decode  a+1  tkv 17 | border a  volume 17/256",
        "step    12 decode  a+1  tkv 18  volume 18/256  finished {a length}",
    ]


def test_chunks_fold_and_so_do_chunks_that_alternate_with_decode_steps():
    steps = steps_of(
        *(request("a", 0, 40, 20), request("b", 8, 100, 2)),
        **{"block_size": 16, "chunk_size": 16, "max_model_len": 256, "max_batch_tkv": 1024},
    )
    folded = lines(True, *steps, config={"block_size": 16, "max_batch_tkv": 1024})
    assert len(folded) == 17
    assert folded[8] == (
        "steps 11-14 decode  a+1 and prefill b+16  tkv 47 -> 48  volume 47 -> 48/1024  "
        "4 steps in turn"
    )
    chunk = Step(kind="prefill", scheduled={"a": 16})
    assert lines(True, chunk, chunk, chunk, chunk) == [
        "step     0 prefill a+16",
        "steps 1-3 prefill a+16  3 steps alike",
    ]


def test_steps_that_preempt_never_fold():
    step = Step(kind="decode", scheduled={"a": 1}, preempted=("b",), waiting=("b",))
    assert len(lines(True, step, step, step)) == 3


def test_what_is_folded_is_said_though_nothing_follows():
    step = Step(kind="decode", scheduled={"a": 1})
    assert lines(True, step, step, step) == [
        "step     0 decode  a+1",
        "steps 1-2 decode  a+1  2 steps alike",
    ]


def test_hostile_names_stay_on_their_line():
    step = Step(kind="decode", scheduled={"a\n\x1b[31m": 1}, waiting=("[red]\n",))
    [line] = lines(False, step)
    assert line == "step     0 decode  a  [31m+1  waiting [[red] ]"


def test_colours_only_repeat_what_the_words_say():
    steps = steps_of(request("r1", 0, 3, 3), request("r2", 0, 256, 2), **DOCUMENTED)

    def printed(**how):
        console = Console(file=io.StringIO(), width=200, highlight=False, soft_wrap=True, **how)
        said = StepLines(console.print, DOCUMENTED)
        for number, step in enumerate(steps):
            said(number, step)
        return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]

    coloured = printed(force_terminal=True, color_system="standard", no_color=False)
    assert "\x1b[1;31m over\x1b[0m" in coloured
    assert "\x1b" not in printed(force_terminal=False)


def test_replay_folds_where_it_is_asked_to(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"block_size": 16, "chunk_size": 32, "max_model_len": 64, "max_batch_tkv": 96}
    only = {"id": "a", "arrival": 0, "prompt": [["a", 16]], "max_tokens": 12}
    whole = {"format": "schedproof/scenario@1", "system": "spyre", "config": small}
    Path("s.json").write_text(json.dumps({**whole, "requests": [only]}))
    plain, folded = run("replay", "s.json"), run("replay", "s.json", "--fold")
    assert (plain.code, folded.code) == (0, 0)
    assert "steps 2-10 decode  a+1  tkv 18 -> 26  volume 18 -> 26/96  9 steps alike" in folded.out
    assert len(folded.out.splitlines()) == len(plain.out.splitlines()) - 8
