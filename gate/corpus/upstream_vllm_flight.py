"""The part of a test file for vLLM's repository that has decisions in flight, and a connector."""

FLIGHT_IMPORTS = """\
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorMetadata,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402
from vllm.v1.outputs import KVConnectorOutput  # noqa: E402
"""
CONNECTOR = '''

class FromNowhere(KVConnectorBase_V1):
    """A connector that loads and sends what the requests of a test say, from nowhere."""

    def __init__(self, vllm_config, role, kv_cache_config=None):
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        except TypeError:  # of earlier releases
            super().__init__(vllm_config, role)
        self.block_size = vllm_config.cache_config.block_size
        self.asked, self.loading, self.sending, self.right, self.found = {}, {}, {}, {}, 0

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        asked = self.asked.get(request.request_id, {})
        if asked.get("load_deferrals", 0):
            asked["load_deferrals"] -= 1
            return None, False
        self.found, external = num_computed_tokens, asked.get("external_tokens", 0)
        external = min(external, request.num_prompt_tokens)
        whole = external // self.block_size * self.block_size
        tokens = request.num_tokens if external >= request.num_tokens else whole
        return max(tokens - num_computed_tokens, 0), tokens > num_computed_tokens

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens > 0:
            asked = self.asked[request.request_id]
            asked["external_tokens"] = 0  # what was loaded once is not offered again
            self.loading[request.request_id] = asked.get("load_steps", 0)
            covered, fails_at = self.found + num_external_tokens, asked.get("load_fails_at")
            right = covered if fails_at is None else min(covered, max(self.found, fails_at))
            self.right[request.request_id] = right

    def request_finished(self, request, block_ids):
        steps = self.asked.pop(request.request_id, {}).get("send_steps")
        unsent = (RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR)
        if steps is None or request.status in unsent:
            return False, None
        self.sending[request.request_id] = steps
        return True, None

    def report(self, engine):
        """What the worker says of loads and sends in a step."""
        landed = {name for name, left in self.loading.items() if left == 0}
        sent = {name for name, left in self.sending.items() if left == 0}
        self.loading = {name: n - 1 for name, n in self.loading.items() if name not in landed}
        self.sending = {name: n - 1 for name, n in self.sending.items() if name not in sent}
        lost = set()
        for name in landed:
            right = self.right.pop(name)
            if right < engine.scheduler.requests[name].num_computed_tokens:
                (blocks,) = engine.scheduler.kv_cache_manager.get_block_ids(name)
                lost.update(blocks[right // self.block_size :])
        return KVConnectorOutput(
            finished_recving=landed or None, finished_sending=sent or None, invalid_block_ids=lost
        )

    def build_connector_meta(self, scheduler_output):
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context, **kwargs):
        pass

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass


def transfers(kv_connector, policy):
    if not kv_connector:
        return None
    return KVTransferConfig(
        kv_connector="FromNowhere",
        kv_connector_module_path=__name__,
        kv_role="kv_both",
        kv_load_failure_policy=policy,
    )


class InFlight:
    """The decisions that are in flight, the oldest first, and what the worker has sampled."""

    def __init__(self, depth, early):
        self.depth, self.queue, self.known = depth, [], {}
        self.early, self.in_a_row = early, 0  # steps in a row in which one completes early

    def first_tokens(self, scheduler, decision):
        """By request, the place in its output of the token that the decision gives."""
        joining = {one.req_id for one in decision.scheduled_new_reqs}
        joining |= set(decision.scheduled_cached_reqs.resumed_req_ids)
        first = {}
        for name in decision.num_scheduled_tokens:
            one = scheduler.requests[name]
            if name in joining or self.depth == 1:
                self.known[name] = one.num_tokens
            if one.num_computed_tokens >= self.known[name]:
                first[name] = self.known[name] - one.num_prompt_tokens
                self.known[name] += 1
        return first

    def coming(self, name):
        return sum(name in first for _, _, first in self.queue)

    def set_off(self, decision, output, first):
        """The decision that completes now, if any, with its output."""
        empty = not decision.num_scheduled_tokens
        if not empty or not self.queue:
            self.queue.append((decision, output, first))
        if empty or len(self.queue) == self.depth:
            self.in_a_row = 0
            return self.queue.pop(0)[:2]
        if self.in_a_row < self.early:
            self.in_a_row += 1
            return self.queue.pop(0)[:2]
        self.in_a_row = 0
        return None


MOST_IDLE = 50  # steps in a row in which nothing is computed, beside those that loads may take


def waits(request):
    """Steps in which a connector may keep a request, or its blocks."""
    return sum(request.get(key) or 0 for key in ("load_steps", "load_deferrals", "send_steps"))


def gets_on(engine, row):
    engine.idle = 0 if row["scheduled"] else engine.idle + 1
    return engine.idle <= MOST_IDLE + sum(waits(one) for one in engine.told.values())
'''
