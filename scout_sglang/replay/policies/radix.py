"""A call's way through SGLang's real cache: match, lock, allocate, insert, decode, release.

The order and the amounts follow the scheduler of SGLang 0.5.23 for one request with the whole
prompt in one chunk: ``Req.init_next_round_input``, ``PrefillAdder.add_one_req``,
``alloc_for_extend``, ``checkpoint_kv_cache``, ``alloc_for_decode``, ``release_kv_cache``.
Output slots are taken when the call starts decoding, not one by one.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.common import (
    checkpoint_kv_cache,
    evict_from_tree_cache,
    match_kv_cache,
)
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from scout_sglang.replay.request import LabRequest
from scout_sglang.replay.timing import Job


class RadixPolicy:
    """Any eviction policy that SGLang can run, on its own cache classes."""

    guard_switches = 0
    warmed_tokens = 0

    def __init__(self, cache: UnifiedRadixCache):
        self.cache = cache
        self.allocator = cache.token_to_kv_pool_allocator
        self.page_size = self.allocator.page_size
        self.capacity = self.allocator.available_size()
        self.running: dict[int, LabRequest] = {}
        self.evicted_tokens = 0
        self._count_evictions()

    def _count_evictions(self) -> None:
        def counted(freed_tokens: int, start_time: float) -> None:
            self.evicted_tokens += freed_tokens

        self.cache.update_eviction_metrics = counted

    # The policy protocol.

    def start(self, job: Job) -> int | None:
        req = self.make_request(job)
        self.on_arrival(job, req)
        hit = self.admit(req, len(job.output))
        if hit is None:
            self.on_abort(job, req)
            return None
        self.running[job.number] = req
        return hit

    def finish(self, job: Job) -> None:
        req = self.running.pop(job.number)
        req.finish(job.output)
        self.release(req)
        self.on_finish(job, req)

    def close(self) -> None:
        """Every slot is free, evictable or protected; with nothing running, none is protected."""
        free = self.allocator.available_size()
        evictable, held = self.cache.evictable_size(), self.cache.protected_size()
        assert free + evictable + held == self.capacity, (free, evictable, held, self.capacity)
        assert held == 0 or self.running, held

    # What a policy with its own state overrides.

    def make_request(self, job: Job) -> LabRequest:
        extra_key, cache_salt = job.call.namespace
        return LabRequest(f"r{job.number}", job.prompt, extra_key, cache_salt)

    def on_arrival(self, job: Job, req: LabRequest) -> None:
        """The call enters the queue."""

    def on_finish(self, job: Job, req: LabRequest) -> None:
        """The call's tokens are in the tree, its lock is released."""

    def on_abort(self, job: Job, req: LabRequest) -> None:
        """The call was not admitted."""

    # The scheduler's steps.

    def admit(self, req: LabRequest, output_tokens: int) -> int | None:
        cache, page = self.cache, self.page_size
        prompt_len = len(req.origin_input_ids)
        row_len = prompt_len + output_tokens
        if row_len > cache.req_to_token_pool.max_context_len:
            return None
        match_kv_cache(
            req, cache, req.full_untruncated_fill_ids, max_prefix_len=max(prompt_len - 1, 0)
        )
        hit = req.kv.cache_protected_len = req.cached_tokens = req.prefix_len
        lock = cache.lock(req.last_node)
        room = self.allocator.available_size() + cache.evictable_size()
        if prompt_len - hit + output_tokens + page >= room:
            cache.unlock(lock)
            return None
        if cache.req_to_token_pool.alloc([req]) is None:
            cache.unlock(lock)
            return None
        req.lock = lock
        req.extend_end = prompt_len
        self._write(req, hit, prompt_len, self._prefill_slots(req, hit, prompt_len))
        checkpoint_kv_cache(req, cache)
        decoded = max(output_tokens - 1, 0)  # the last token's KV is never computed
        if decoded:
            self.decode(req, decoded)
        return hit

    def decode(self, req: LabRequest, count: int) -> None:
        """Slots for ``count`` generated tokens behind the prompt."""
        start = req.extend_end
        self._write(req, start, start + count, self._decode_slots(req, start, count))

    def _prefill_slots(self, req: LabRequest, hit: int, end: int) -> torch.Tensor:
        if hit:
            row = self.cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
            row[:hit] = self.cache.prefix_device_indices(req)
        # SGLang reserves a page more than it takes (alloc_paged_token_slots_extend).
        spare = self.page_size if self.page_size > 1 else 0
        evict_from_tree_cache(self.cache, end - hit + spare)
        return self._new_pages(end - hit)

    def _decode_slots(self, req: LabRequest, start: int, count: int) -> torch.Tensor:
        """Slots of all decode steps, evicting what the steps one after the other would evict."""
        page = self.page_size
        in_last_page = min(-start % page, count)
        new = count - in_last_page
        # A step wants a whole free page even where its token fits the page at hand.
        taken_before_last = (new - 1 + page - 1) // page if new else 0
        evict_from_tree_cache(self.cache, (taken_before_last + 1) * page)
        if not in_last_page:
            return self._new_pages(new)
        row = self.cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        first = int(row[start - 1]) + 1
        rest = torch.arange(first, first + in_last_page)
        return torch.cat([rest, self._new_pages(new)]) if new else rest

    def _new_pages(self, tokens: int) -> torch.Tensor:
        """Slots on fresh pages: what ``alloc_extend`` hands one request at a page boundary."""
        page = self.page_size
        slots = self.allocator.alloc(-(-tokens // page) * page)
        assert slots is not None, "admission let through what does not fit"
        return slots[:tokens]

    def _write(self, req: LabRequest, start: int, end: int, slots: torch.Tensor) -> None:
        pool: Any = self.cache.req_to_token_pool
        pool.write((req.kv.req_pool_idx, slice(start, end)), slots.to(torch.int32))
        req.kv.kv_allocated_len = req.kv.kv_committed_len = end

    def release(self, req: LabRequest) -> None:
        cache = self.cache
        end = req.kv.kv_committed_len
        cache.checkpoint(req, up_to=end)
        cache.free_kv_row(req.kv, [(req.kv.cache_protected_len, end)])
        cache.unlock(req.lock)
        req.lock = None
        cache.on_release(req, checkpointed=True)
        cache.req_to_token_pool.free(req)
        req.kv.mark_kv_released()
