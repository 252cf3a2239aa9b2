"""A scheduler in the style of SGLang, whose KV groups each have a pool, is not accused."""

import pytest

import schedproof
from schedproof.gate.judging.profiles import PROFILES, Profile

USUAL = {"num_blocks": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 2048}
PLAIN = {"enable_prefix_caching": False, "enable_chunked_prefill": True}


class Request:
    def __init__(self, sent):
        self.id, self.max_tokens, self.output = sent["id"], sent["max_tokens"], sent["output_len"]
        self.prompt = sum(tokens for _, tokens in sent["prompt"])
        self.emitted = 0
        self.rewind()

    def rewind(self):
        self.computed, self.previous, self.since, self.tables = 0, 0, 0, []

    @property
    def known(self):
        return self.prompt + self.emitted

    @property
    def prefills(self):
        return not self.emitted or self.computed < self.known - 1


class TwoPools:
    """It prefills before it decodes, and the newest request gives way if a pool is exhausted.

    Blocks that left the window are given back late: in a prompt, after one more chunk; in a
    decode, once per window. Both are what SGLang does.
    """

    def __init__(self, loses_blocks=False):
        self.loses_blocks = loses_blocks

    def start(self, system, revision, config):
        for key, value in PLAIN.items():
            if config[key] != value:
                return {"ok": False, "error": "config", "message": f"$.config.{key}: not here"}
        size, self.slots, self.budget, self.longest = (
            config[key] or usual for key, usual in USUAL.items()
        )
        self.block = config["block_size"]
        groups = config.get("kv_groups", [{"kind": "full"}])
        self.windows = [group.get("window") for group in groups]
        sizes = [size, *(group["num_blocks"] for group in groups[1:])]
        self.free = [list(range(1, blocks + 1)) for blocks in sizes]
        self.sizes, self.waiting, self.running, self.aborted = sizes, [], [], []
        shown = ["waiting", "running", "prefilling", "preempted", "finished", "emitted", "computed"]
        shown += ["blocks", "free_blocks"]
        shown += ["group_blocks", "group_free_blocks"] if len(groups) > 1 else []
        features = {"features": ["kv_groups"]}
        return {"ok": True, "name": "two pools", "version": "1", "observes": shown, **features}

    def blocks(self, tokens):
        return -(-tokens // self.block)

    def add(self, sent):
        request = Request(sent)
        whole = request.prompt + request.max_tokens
        for window, size in zip(self.windows, self.sizes, strict=True):
            # a window, and either the last two chunks or another window
            at_once = whole if window is None else window + max(window, 2 * self.budget)
            most = min(self.blocks(whole), self.blocks(at_once) + 1)
            if whole > self.longest or most > size:
                return {"ok": False, "error": "rejected", "message": "it would never fit"}
        self.waiting.append(request)
        return {"ok": True}

    def abort(self, id, inside=False):  # noqa: A002
        if inside:
            return {"ok": False, "error": "unsupported", "message": "not inside a step"}
        for queue in (self.waiting, self.running):
            for request in [request for request in queue if request.id == id]:
                self.give_back(request)
                queue.remove(request)
                self.aborted.append(id)
        return {"ok": True}

    def give_back(self, request):
        for group, table in enumerate(request.tables):
            self.free[group] += [block for block in table if block]
        request.rewind()

    def slide(self, request):
        decodes = request.computed >= request.prompt
        request.since += decodes
        for group, window in enumerate(self.windows):
            if window is None or not request.tables or (decodes and request.since % window != 1):
                continue
            read = request.computed if decodes else request.previous
            for place in range(max(read - window + 1, 0) // self.block):
                if block := request.tables[group][place]:
                    request.tables[group][place] = 0
                    self.free[group] += [block] if not self.loses_blocks else []

    def hold(self, request, covered):
        """Take blocks for the first `covered` tokens from each pool, or from none."""
        tables = request.tables or [[] for _ in self.windows]
        missing = [self.blocks(covered) - len(table) for table in tables]
        if any(len(free) < count for free, count in zip(self.free, missing, strict=True)):
            return False
        for table, free, count in zip(tables, self.free, missing, strict=True):
            table += [free.pop(0) for _ in range(max(count, 0))]
        request.tables = tables
        return True

    def prefill(self):
        scheduled, budget = {}, self.budget
        unfinished = [request for request in self.running if request.prefills]
        for request in (*unfinished, *self.waiting):
            joins = request in self.waiting
            if not budget or (joins and len(self.running) >= self.slots):
                break
            self.slide(request)
            tokens = min(budget, request.known - request.computed)
            if not self.hold(request, request.computed + tokens):
                break
            scheduled[request.id], budget = tokens, budget - tokens
            if joins:
                self.running.append(request)
        self.waiting = [request for request in self.waiting if request not in self.running]
        return scheduled

    def decode(self, preempted):
        scheduled = {}
        for request in list(self.running):
            if request not in self.running or len(scheduled) == self.budget:
                continue
            self.slide(request)
            tokens = min(self.budget - len(scheduled), request.known - request.computed)
            while not self.hold(request, request.computed + tokens):
                victim = self.running.pop()
                scheduled.pop(victim.id, None)
                self.give_back(victim)
                self.waiting.insert(0, victim)
                preempted.append(victim.id)
                if victim is request:
                    break
            else:
                scheduled[request.id] = tokens
        return scheduled

    def step(self):
        finished, emitted, preempted = dict.fromkeys(self.aborted, "aborted"), {}, []
        self.aborted = []
        scheduled = self.prefill() or self.decode(preempted)
        members = [request for request in self.running if request.id in scheduled]
        first = {
            request.emitted == 0 or request.computed < request.known - 1 for request in members
        }
        kind = {frozenset(): "idle", frozenset({True}): "prefill", frozenset({False}): "decode"}
        kind = kind.get(frozenset(first), "mixed")
        for request in members:
            request.previous = request.computed
            request.computed += scheduled[request.id]
            if request.computed < request.known:
                continue
            request.emitted += 1
            emitted[request.id] = 1
            if request.emitted == request.output:
                finished[request.id] = "eos" if request.output < request.max_tokens else "length"
                self.give_back(request)
                self.running.remove(request)
        step = {"kind": kind, "scheduled": scheduled, "emitted": emitted, "finished": finished}
        step["preempted"] = preempted
        step["waiting"] = [request.id for request in self.waiting]
        step["running"] = [request.id for request in self.running]
        step["prefilling"] = [request.id for request in self.running if request.prefills]
        step["computed"] = {request.id: request.computed for request in self.running}
        step["blocks"] = {request.id: list(request.tables[0]) for request in self.running}
        step["free_blocks"] = len(self.free[0])
        if len(self.windows) > 1:
            step["group_free_blocks"] = [len(free) for free in self.free[1:]]
            step["group_blocks"] = {
                request.id: [list(table) for table in request.tables[1:]]
                for request in self.running
            }
        return {"ok": True, "step": step}

    def stop(self):
        return {"ok": True}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PROFILES, "quick", Profile(60, 20, 20, 2_000))


def judged(target, **more):
    return schedproof.judge(target, system="generic", profile="quick", **more)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_scheduler_that_gives_blocks_back_late_is_not_accused(seed):
    verdict = judged(TwoPools(), seed=seed)
    assert [finding.rule for finding in verdict.findings] == []
    held = {rule.id for rule in verdict.rules if rule.status == "held"}
    assert {"ALL-R09", "GEN-R05", "GEN-R06", "GEN-R07"} <= held


@pytest.mark.slow
def test_a_lost_block_of_a_window_is_found():
    verdict = judged(TwoPools(loses_blocks=True), rules=["ALL-R09"])
    assert {finding.rule for finding in verdict.findings} == {"ALL-R09"}
    assert "group 1" in verdict.findings[0].message
    assert "kv_groups" in " ".join(verdict.findings[0].needs)
