"""The head of a test file for nano-vLLM's repository: its scheduler, stepped by itself."""

from .upstream_loop import LOOP

IMPORTS = '''\
"""Regression tests of the scheduler, step by step: no GPU, no weights.

Exported from a corpus of schedproof, of which nothing is needed. Run in the repository's folder, or
name it: NANO_VLLM=CHECKOUT pytest THIS_FILE
A request joins before step `add_step`; row N of a table is what is there after step N (from 1).
In rows that are not written nothing changes, but that a tkv grows by one.
"""

import os
import sys
import types
from itertools import count
from zlib import crc32

import pytest

# The package imports torch and kernels; its scheduler needs neither.
CHECKOUT = os.environ.get("NANO_VLLM", os.getcwd())
package = types.ModuleType("nanovllm")
package.__path__ = [os.path.join(CHECKOUT, "nanovllm")]
config_module = types.ModuleType("nanovllm.config")
config_module.Config = types.SimpleNamespace
sys.modules.setdefault("nanovllm", package)
sys.modules.setdefault("nanovllm.config", config_module)

from nanovllm.engine.scheduler import Scheduler  # noqa: E402
from nanovllm.engine.sequence import Sequence  # noqa: E402
from nanovllm.sampling_params import SamplingParams  # noqa: E402

'''
BODY = '''

def slots_within_limit(engine, row):
    return running_in(row) <= engine.scheduler.max_num_seqs


class Engine:
    """The scheduler, and the tokens that its model would sample."""

    def __init__(self, block_size, num_blocks, max_num_seqs, max_num_batched_tokens):
        Sequence.block_size = block_size
        Sequence.counter = count()
        self.scheduler = Scheduler(
            types.SimpleNamespace(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                eos=EOS,
                kvcache_block_size=block_size,
                num_kvcache_blocks=num_blocks,
            )
        )
        self.chunked = hasattr(self.scheduler.block_manager, "hash_blocks")
        self.requests = {}

    def add(self, request):
        one = Sequence(prompt_of(request), SamplingParams(max_tokens=request["max_tokens"]))
        self.requests[one.seq_id] = request
        self.scheduler.add(one)

    def is_finished(self):
        return self.scheduler.is_finished()

    def names(self, sequences):
        return [self.requests[one.seq_id]["id"] for one in sequences]

    def step(self):
        if self.scheduler.is_finished():
            return self.row("idle", {}, [])
        sequences, is_prefill = self.scheduler.schedule()
        tokens = {name: self.tokens(one, is_prefill) for name, one in
                  zip(self.names(sequences), sequences)}
        sampled = [
            sampled_token(self.requests[one.seq_id], one.num_completion_tokens)
            for one in sequences
        ]
        self.scheduler.postprocess(sequences, sampled, *([is_prefill] if self.chunked else []))
        done = [one for one in sequences if one.is_finished]
        kind = "prefill" if is_prefill else "decode"
        return self.row(kind if tokens else "idle", tokens, done)

    def tokens(self, one, is_prefill):
        if self.chunked:
            return one.num_scheduled_tokens
        return len(one) - one.num_cached_tokens if is_prefill else 1

    def row(self, kind, scheduled, done):
        return dict(
            kind=kind,
            scheduled=scheduled,
            waiting=self.names(self.scheduler.waiting),
            running=self.names(self.scheduler.running),
            finished_requests=sorted(self.names(done)),
        )
'''
NANO_HEAD = IMPORTS + LOOP + BODY
