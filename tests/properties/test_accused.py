"""Schedulers that decide otherwise than the models, as documents allow: no rule accuses them."""

from importlib import import_module
from pathlib import Path

import pytest

from schedproof.tests.mutants.faults import MODEL
from schedproof.tests.mutants.planting import imported_anew

HERE = Path(__file__).parent / "accused"
SCALE = {"spyre": {"max_model_len": 1024, "max_batch_tkv": 2048}, "nano_vllm": {"num_blocks": 8}}
SORTS = '    if config.policy == "priority":\n        return tuple(sorted((*waiting, newcomer), '
ONE_A_CONTENT = (
    "pool.py",
    "cached[content] = (*cached.get(content, ()), block)",
    "cached[content] = cached.get(content) or (block,)",
)
TO_THE_FRONT = (
    "vllm/queue.py",
    '    if config.policy == "priority":\n        return enqueued(config, waiting, preempted)\n',
    "",
)
# What the scheduler does, its system, what is changed of the model, and the files to run.
ALLOWED = {
    "the first of two blocks with one content is found (hash -> block_id)": (
        "nano_vllm",
        [
            (
                "allocator.py",
                "{**pool.cached, **{content: (block,) for block, content in filled}}",
                "{**{content: (block,) for block, content in filled}, **pool.cached}",
            )
        ],
        ["nano_R34_onemap.json"],
    ),
    "one block for each content": ("vllm", [ONE_A_CONTENT], ["ok_onemap.json"]),
    "one block for each content, LLMServingSim": ("llmservingsim", [ONE_A_CONTENT], []),
    "one block for each content, Spyre": ("spyre", [ONE_A_CONTENT], []),
    "one block for each content, any": ("generic", [ONE_A_CONTENT], []),
    "generated tokens are not cached": (
        "vllm",
        [
            (
                "vllm/kv_cache.py",
                "known = min(covered, sequence.num_tokens - sequence.named_beyond)",
                "known = min(covered, sequence.prompt)",
            )
        ],
        [],
    ),
    "with chunking off, a prompt above the threshold waits for its whole budget": (
        "vllm",
        [("vllm/scheduler.py", "and capped(config, uncomputed) > plan", "and uncomputed > plan")],
        ["ok_whole_or_not.json"],
    ),
    "priority picks the victim only": (
        "vllm",
        [("vllm/queue.py", f"{SORTS}key=importance))\n", ""), TO_THE_FRONT],
        [],
    ),
    "the victims of a step wait behind all, in the order of their preemptions": (
        "generic",
        [
            (
                "vllm/queue.py",
                "return (*waiting[:front], preempted, *waiting[front:])",
                "return (*waiting, preempted)",
            )
        ],
        ["ok_victims_behind_all.json"],
    ),
    "by priority, too, a preempted request goes to the front": ("vllm", [TO_THE_FRONT], []),
    "a token of a preempted request is dropped": (
        "vllm",
        [
            (
                "vllm/completion.py",
                "        remaining = sequence.output_len - sequence.generated\n",
                "        if config.depth > 1 and not sequence.promised:\n            continue\n"
                "        remaining = sequence.output_len - sequence.generated\n",
            )
        ],
        ["ok_discard_stale.json"],
    ),
    "a request keeps its place while its grammar is compiled": (
        "vllm",
        [
            (
                "vllm/blocked.py",
                "return state._replace(waiting=revision.queue_blocked(state.waiting))",
                "return state",
            )
        ],
        ["ok_grammar_in_line.json"],
    ),
    "the watermark is rounded up": (
        "vllm",
        [
            (
                "vllm/parameters.py",
                "int(self.watermark * (self.num_blocks + NULL_BLOCK))",
                "-int(-self.watermark * (self.num_blocks + NULL_BLOCK) // 1)",
            )
        ],
        [],
    ),
    "the next request is tried while one waits for blocks": (
        "llmservingsim",
        [("llmservingsim/documented.py", "return plan._replace(short=True)", "return plan")],
        [],
    ),
    "cached tokens count with the first chunk": (
        "llmservingsim",
        [
            (
                "llmservingsim/documented.py",
                "sequence.prefix_hit * completes(sequence)",
                "sequence.prefix_hit * (sequence.computed == sequence.prefix_hit + tokens)",
            )
        ],
        [],
    ),
    "256 tokens so far: at boundary, a new block": (
        "nano_vllm",
        [
            (
                "nano_vllm/block_manager.py",
                "sequence.num_tokens % config.block_size == 1",
                "blocks_for(sequence.num_tokens + 1, config.block_size) > len(sequence.blocks)",
            ),
            (
                "nano_vllm/block_manager.py",
                "pool\n    return allocator.hold(pool, sequence, sequence.num_tokens,",
                "pool\n    return allocator.hold(pool, sequence, sequence.num_tokens + 1,",
            ),
        ],
        [],
    ),
    "cached chunks are run all the same": (
        "spyre",
        [
            (
                "spyre/blocks.py",
                "    return allocator.start(state.pool, newcomer, hit, config.block_size)",
                "    one, pool = allocator.start(state.pool, newcomer, hit, config.block_size)\n"
                "    return one._replace(computed=0), pool",
            ),
            (
                "spyre/scheduler.py",
                '"scheduled": computed.scheduled,',
                '"scheduled": {n: max(tokens, 0) for n, tokens in computed.scheduled.items()},',
            ),
        ],
        ["ok_cached_chunks_in_a_row.json", "ok_cached_chunks_aborted.json"],
    ),
    "a hit to the end of a prompt whose last chunk runs": (
        "spyre",
        [("spyre/blocks.py", "newcomer.prompt, config.block", "newcomer.prompt + 1, config.block")],
        ["ok_hits_to_the_end_in_a_row.json"],
    ),
    "every request is counted from the tkv of the batch": (
        "spyre",
        [
            (
                "spyre/documented.py",
                "    width = max(current, newcomer.prompt) // config.block_size\n",
                "    width = max(current, newcomer.prompt) // config.block_size\n"
                "    lengths = [newcomer.prompt, *(request.computed for request in decoding)]\n"
                "    offset = max(length % config.block_size for length in lengths)\n"
                "    start = width * config.block_size + offset\n"
                "    remaining = [newcomer.max_tokens - 1, *(r.remaining for r in decoding)]\n"
                "    if start + max(remaining) > config.max_model_len:\n"
                "        return False\n",
            )
        ],
        ["ok_tkv_of_the_batch.json"],
    ),
    "room for a request does not count on blocks that it shares": (
        "spyre",
        [
            (
                "spyre/blocks.py",
                "blocks_at_end(config, newcomer) - shared",
                "blocks_at_end(config, newcomer)",
            )
        ],
        [],
    ),
    "a block more is promised": (
        "spyre",
        [
            (
                "spyre/blocks.py",
                "max_tokens - 1) // config.block_size)",
                "max_tokens - 1) // config.block_size) + 1",
            )
        ],
        [],
    ),
}


def accused(system, edits, files, target=None, workloads=True):
    """What rules say of the changed model: in these files, in the seed corpus, in workloads."""
    texts = {}
    for file, before, after in edits:
        text = texts.get(file) or (MODEL / file).read_text(encoding="utf-8")
        assert text.count(before) == 1, (file, before)
        texts[file] = text.replace(before, after)
    with imported_anew(texts):
        engines = import_module("schedproof.tests.mutants.engines")
        read = import_module("schedproof.gate.files.scenario_file").read_scenario
        scenarios = [read(HERE / file) for file in files]
        if workloads:
            scenarios += engines.seed_corpus(system, "small").values()
            draw = import_module("schedproof.properties.search.workloads").workloads
            scale = SCALE.get(system, {})
            scenarios += draw(system, "documented", "scarce", scale, {}, seed=0, number=2)
        rules = [rule for rule in engines.checked(system) if rule.id != "ALL-R07"]
        found = []
        for scenario in scenarios:
            run = engines.replace(scenario, revision="documented", expect=None)
            found += engines.replay((target or engines.ModelTarget)(), run, rules).broken
        return found


@pytest.mark.parametrize("does", ALLOWED)
def test_what_a_document_allows_is_not_accused(does):
    system, edits, files = ALLOWED[does]
    assert accused(system, edits, files) == []


@pytest.mark.parametrize(
    ("system", "file"), [("vllm", "ok_publish_late.json"), ("generic", "ok_publish_late_any.json")]
)
def test_blocks_may_be_published_when_their_decision_completes(system, file):
    none_in_flight = (
        "vllm/kv_cache.py",
        "    if not config.enable_prefix_caching:\n        return ()",
        "    if not config.enable_prefix_caching or config.depth > 1:\n        return ()",
    )
    assert accused(system, [none_in_flight], [file], workloads=False) == []


def test_a_draft_may_be_computed_at_the_last_position():
    one_more = ("vllm/speculation.py", "- 1 - sequence.computed", "- sequence.computed")
    slots = ("vllm/speculation.py", "config.max_model_len - 1)", "config.max_model_len)")
    assert accused("vllm", [one_more, slots], ["ok_draft_len.json"], workloads=False) == []


def test_a_token_may_have_room_that_is_never_computed():
    more = ("llmservingsim/documented.py", "sequence.max_tokens - 1\n", "sequence.max_tokens\n")
    found = accused("llmservingsim", [more], [])
    # One that needs the whole pool, and is accepted, then waits for ever.
    assert {broken.rule for broken in found} <= {"ALL-R10"}


def test_prefilling_names_those_of_which_no_token_has_come():
    from schedproof.model.target import ModelTarget

    class Literal(ModelTarget):
        def start(self, *words):
            self.came = set()
            return super().start(*words)

        def step(self):
            reply = super().step()
            step = reply["step"]
            self.came.update(name for name, tokens in step["emitted"].items() if tokens)
            there = [name for name, tokens in step["computed"].items() if tokens]
            step["prefilling"] = [name for name in there if name not in self.came]
            return reply

    assert accused("vllm", [], ["ok_prefilling_text.json"], Literal) == []


@pytest.mark.parametrize(
    ("system", "file"),
    [
        ("nano_vllm", "ok_victim_aborted_nano.json"),
        ("vllm", "ok_victim_aborted_running.json"),
        ("vllm", "ok_victim_aborted_tail.json"),
        ("vllm", "ok_victim_aborted_priority.json"),
    ],
)
def test_preempted_need_not_name_one_that_was_aborted_inside_the_step(system, file):
    """The lists of a step are without requests that have finished."""
    from schedproof.model.target import ModelTarget

    left_out = []

    class Literal(ModelTarget):
        def step(self):
            reply = super().step()
            step = reply["step"]
            ended = [name for name in step["preempted"] if name in step["finished"]]
            left_out.extend(ended)
            step["preempted"] = tuple(name for name in step["preempted"] if name not in ended)
            return reply

    assert accused(system, [], [file], target=Literal, workloads=False) == []
    assert left_out
