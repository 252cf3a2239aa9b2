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
                 npu_mem, cpu_mem, start_npu, pd_type, block_size, {stages}, prioritize_prefill,
                 enable_prefix_caching{chunked}):
        self.model, self.start, self.pd_type, self.pp_size = model, start_npu, pd_type, {stages}
        self.enable_prefix_caching = enable_prefix_caching
        self.slots, self.stages, self.first = {slots}, {stages}, prioritize_prefill
        self.max_num_batched_tokens, self.block = max_num_batched_tokens, block_size
        self.chunked, self.threshold = {chunk_values}
        self.caches, self.memory = enable_prefix_caching, Memory(npu_mem)
        self.request, self.seen, self.batches, self.answers = [], set(), {{}}, 0

    def add_request(self, values):
        self.request.append(Request(*values))

    def add_decode(self, request):
        self.request.append(request)

    def is_request_empty(self):
        return not self.request and not self.batches

    def schedule(self, current, sys, number=-1):
        if sys != self.start or len(self.batches) >= self.stages:
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
        prompts, answers, finished = 0, 0, []
        if sys != self.start or number - 1 not in self.batches:
            return prompts, answers, finished
        batch = self.batches.pop(number - 1)
        for request, tokens in zip(batch.requests, batch.q_list):
            prefill = request.is_prefill()
            request.num_computed_tokens += tokens
            computed = request.num_computed_tokens
            for end in range(self.block, computed + 1, self.block):
                self.seen.add(tuple(request.tokens[:end]))
            if prefill:
                prompts += tokens + request.prefix_cache_hit * (computed == request.original_input)
            if self.pd_type == "prefill" and computed >= request.original_input:
                request.recent_end, request.is_init = finish, False
                finished.append(request)
                continue
            if computed >= request.original_input:
                answers, request.recent_end, request.is_init = answers + 1, finish, False
            if request.output <= computed + 1:
                finished.append(request)
            else:
                self.request.append(request)
        self.request.sort(key=lambda request: request.id)
        return prompts, answers, finished
"""
ROUTER = """
import json


class Router:
    def __init__(self, number, schedulers, limit, policy):
        self.to = [each for each in schedulers if each.pd_type != "decode"]
        self.decoders = [each for each in schedulers if each.pd_type == "decode"]
        self._pending_requests, self._pending_idx, self.known, self.open = [], 0, 0, set()

    def load_requests(self, path, enable_prefix_caching=False, is_init=True):
        for row in map(json.loads, open("../" + path)):
            first = row.get("sub_requests", [row])[0]
            if first is not row:
                self.open.add(self.known)
            due = {"index": self.known, "arrival_time_ns": row["arrival_time_ns"]}
            self._pending_requests.append({**first, **due})
            self.known += 1
        self._pending_requests.sort(key=lambda row: row["arrival_time_ns"])

    def route_arrived_requests(self, now):
        while self.has_pending_requests() and self.get_next_pending_arrival() <= now:
            row = self._pending_requests[self._pending_idx]
            self._pending_idx += 1
            whole = row["input_toks"] + row["output_toks"]
            tokens = row["input_tok_ids"], row["output_tok_ids"]
            values = [row["index"], "model", row["input_toks"], whole, row["arrival_time_ns"], 0]
            self.to[0].add_request([*values, *tokens])

    def has_pending_requests(self):
        return self._pending_idx < len(self._pending_requests)

    def has_deferred_sessions(self):
        return bool(self.open)

    def get_next_pending_arrival(self):
        return self._pending_requests[self._pending_idx]["arrival_time_ns"]

    def notify_request_completed(self, number, now):
        self.open.discard(number)

    def transfer_prefill_request(self, requests):
        for request in requests:
            self.decoders[0].add_decode(request)
"""
MAIN = """
import argparse
import os
import re
import subprocess

from serving.core.router import Router
from serving.core.scheduler import Scheduler


def build_cluster_config(path):
    raise FileNotFoundError(path)


def get_workload(batch):
    return f"inputs/batch{batch.batch_id}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset")
    parser.add_argument("--dtype")
    args = parser.parse_args()
    os.chdir(os.path.join(os.getcwd(), "simulator"))
    cluster = build_cluster_config("cluster.json")
    instances, owner = cluster["instances"], cluster["npu2inst_mapping"]
    schedulers = [Scheduler(each["model_name"]) for each in instances]
    router = Router(len(instances), schedulers, 0, "RR")
    router.load_requests(args.dataset)
    process = subprocess.Popen(["simulator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    npu, number, current, done = 0, 0, 0, set()
    while True:
        lines = [""]
        while "Waiting" not in lines[-1]:
            lines.append(process.stdout.readline())
        if found := re.search(r"sys.(\\d+). iteration (\\d+) finished, (\\d+)", lines[-2]):
            npu, number, current = map(int, found.groups())
        router.route_arrived_requests(current)
        own, kind = schedulers[owner[npu]], instances[owner[npu]]["pd_type"]
        _, _, finished = own.add_done(number, npu, current)
        for request in finished:
            router.notify_request_completed(request.id, current)
        if kind == "prefill":
            router.transfer_prefill_request(finished)
        batch = own.schedule(current, npu, number)
        if batch is not None:
            answer = get_workload(batch)
        elif router.has_pending_requests() or router.has_deferred_sessions():
            if router.has_pending_requests() and own.is_request_empty():
                current = max(current, router.get_next_pending_arrival())
            answer = "pass"
        elif not own.is_request_empty() or (kind == "decode" and not done):
            answer = "pass"
        else:
            done.add(owner[npu])
            answer = "exit" if len(done) == len(schedulers) else "done"
        process.stdin.write(answer + "\\n")
        process.stdin.flush()
        if answer == "exit":
            break
    while process.stdout.readline() != "All Request Has Been Exited":
        pass
"""
# 1.0.0 has no counter of this name, by which the adapter tells it.
COUNTERS = {"1.1.0": "num_computed_tokens", "1.0.0": "_through"}
CHUNKED = ", enable_chunked_prefill=False, long_prefill_token_threshold=0"


def write_1_1_0(folder: Path) -> Path:
    """Write a checkout of the generation of 1.1.0, and return its folder."""
    values = "enable_chunked_prefill, long_prefill_token_threshold"
    names = {"slots": "max_num_seqs", "stages": "pp_size"}
    code = SCHEDULER.format(**names, chunked=CHUNKED, chunk_values=values)
    _write(folder, "serving/core", "1.1.0", f"{REQUEST}{IS_PREFILL}{BATCH}", code)
    (folder / "serving/__main__.py").write_text(MAIN)
    (folder / "serving/core/router.py").write_text(ROUTER)
    return folder


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
