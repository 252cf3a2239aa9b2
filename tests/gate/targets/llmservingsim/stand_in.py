"""Checkouts of LLMServingSim that the tests write themselves: small, and as the page says.

The scheduler keeps what the adapter reads of 1.1.0 and 1.0.0, under their names. Its memory has no
end; what it has computed it finds again, block by block.
"""

from pathlib import Path

REQUEST = """
class Request:
    def __init__(self, id, model, input, output, arrival, instance_id, prompt, answer):
        self.id, self.arrival, self.tokens = id, arrival, [*prompt, *answer]
        self.input = self.original_input = input
        self.output, self.is_init = output, True
        self.num_computed_tokens = self.prefix_cache_hit = self.recent_end = 0
        self.queuing_delay = -1
"""
IS_PREFILL = """
    def is_prefill(self):
        return self.num_computed_tokens < self.original_input
"""
BATCH = """

class Batch:
    def __init__(self, batch_id, requests, q_list):
        self.batch_id, self.requests, self.q_list = batch_id, requests, q_list
"""
SCHEDULER = """
from .request import Batch, Request


class Cache:
    def evictable_size(self):
        return 0


class Memory:
    weight, npu_used = 2**20, 2**20

    def __init__(self, gib):
        self.npu_mem = gib * 2**30
        self.npu_prefix_cache = Cache()

    def get_kv(self, tokens):
        return 1024 * tokens


class Scheduler:
    def __init__(self, model, node_id, instance_id, {slots}, max_num_batched_tokens,
                 npu_mem, cpu_mem, start_npu, block_size, {stages}, prioritize_prefill,
                 enable_prefix_caching{chunked}):
        self.slots, self.stages, self.first = {slots}, {stages}, prioritize_prefill
        self.max_num_batched_tokens, self.block = max_num_batched_tokens, block_size
        self.chunked, self.threshold = {chunk_values}
        self.caches, self.memory = enable_prefix_caching, Memory(npu_mem)
        self.request, self.seen, self.batches, self.answers = [], set(), {{}}, 0

    def add_request(self, values):
        self.request.append(Request(*values))

    def schedule(self, current, sys):
        if len(self.batches) >= self.stages:
            return None
        queue = sorted(self.request, key=self.place)
        left, batch = self.max_num_batched_tokens, []
        for request in queue:
            if len(batch) >= self.slots or not left:
                break
            hit = self.hit(request) if request.queuing_delay < 0 else 0
            need = request.original_input - request.num_computed_tokens - hit
            need = need if request.is_prefill() else 1
            wanted = min(need, self.threshold or need)
            if not self.chunked and wanted > left:
                continue
            if request.queuing_delay < 0:
                request.queuing_delay = current - request.arrival
                request.num_computed_tokens = request.prefix_cache_hit = hit
            batch.append((request, min(wanted, left)))
            left -= batch[-1][1]
        if not batch:
            return None
        made = Batch(self.answers, [request for request, _ in batch], [n for _, n in batch])
        self.answers += 1
        self.request = [request for request in self.request if request not in made.requests]
        return made if self.batches.setdefault(made.batch_id, made) else None

    def place(self, request):
        return self.first and not request.is_prefill(), request.arrival, request.id

    def hit(self, request):
        whole = (request.original_input - 1) // self.block * self.block
        ends = range(self.block, whole + 1, self.block)
        known = [end for end in ends if tuple(request.tokens[:end]) in self.seen]
        return max(known, default=0) if self.caches else 0

    def add_done(self, number, sys, finish):
        batch, prompts, answers, finished = self.batches.pop(number - 1), 0, 0, []
        for request, tokens in zip(batch.requests, batch.q_list):
            prefill = request.is_prefill()
            request.num_computed_tokens += tokens
            computed = request.num_computed_tokens
            for end in range(self.block, computed + 1, self.block):
                self.seen.add(tuple(request.tokens[:end]))
            if prefill:
                prompts += tokens + request.prefix_cache_hit * (computed == request.original_input)
            if computed >= request.original_input:
                answers, request.recent_end, request.is_init = answers + 1, finish, False
            if request.output == computed + 1:
                finished.append(request)
            else:
                self.request.append(request)
        self.request.sort(key=lambda request: request.id)
        return prompts, answers, finished
"""
# 1.0.0 has no counter of this name, by which the adapter tells it.
COUNTERS = {"1.1.0": "num_computed_tokens", "1.0.0": "_through"}
CHUNKED = ", enable_chunked_prefill=False, long_prefill_token_threshold=0"


def write_1_1_0(folder: Path) -> Path:
    """Write a checkout of the generation of 1.1.0, and return its folder."""
    values = "enable_chunked_prefill, long_prefill_token_threshold"
    names = {"slots": "max_num_seqs", "stages": "pp_size"}
    code = SCHEDULER.format(**names, chunked=CHUNKED, chunk_values=values)
    return _write(folder, "serving/core", "1.1.0", f"{REQUEST}{IS_PREFILL}{BATCH}", code)


def write_1_0_0(folder: Path) -> Path:
    """Write a checkout of the generation of 1.0.0, which has no chunks and counts known tokens."""
    names = {"slots": "max_batch", "stages": "npu_group"}
    code = SCHEDULER.format(**names, chunked="", chunk_values="False, 0")
    code = code.replace("request.is_prefill()", "request.is_init")
    code = code.replace(
        "request.is_init = answers + 1, finish, False",
        "request.is_init, request.input = answers + 1, finish, False, computed + 1",
    )
    return _write(folder, "inference_serving", "1.0.0", f"{REQUEST}{BATCH}", code)


def _write(folder: Path, package: str, version: str, request: str, scheduler: str) -> Path:
    place = folder / package
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("")
    (place / "request.py").write_text(request.replace("num_computed_tokens", COUNTERS[version]))
    (place / "scheduler.py").write_text(scheduler.replace("num_computed_tokens", COUNTERS[version]))
    (folder / "CHANGELOG.md").write_text(f"## [v{version}] - 2026-01-01\n")
    return folder
