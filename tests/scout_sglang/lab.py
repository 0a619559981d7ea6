"""SGLang's real cache under one policy, called as the scheduler calls it, without a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from radix_policy.config import POLICIES
from scout_sglang import plugin
from scout_sglang.dispatch import calls_of, on_queue, on_queue_abort
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.pools import build_cache
from scout_sglang.replay.request import LabRequest

PAGES = st.sampled_from([1, 16])
# Arguments for Program.step.
steps = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 3), st.integers(0, 60)),
    max_size=40,
)


def lab_request(rid: str, prompt: Any, **fields: Any) -> LabRequest:
    """A request with these ids; ``fields`` are attributes of SGLang's ``Req``."""
    req = LabRequest(rid, np.array(prompt, dtype=np.int32))
    for name, value in fields.items():
        assert hasattr(req, name), name
        setattr(req, name, value)
    return req


class Lab:
    """One cache. Calls are named by the caller; prompts and outputs are lists of token ids."""

    def __init__(self, policy: str, capacity: int, page_size: int = 1, **config: Any) -> None:
        if policy in POLICIES:
            config.setdefault("core", "python")
        hooks = [hook for hook in plugin.HOOKS if hook.target.startswith(plugin.CACHE)]
        plugin.apply(hooks)
        plugin.verify(hooks)
        self.cache = build_cache(
            policy=policy,
            policy_config=config or None,
            capacity=capacity,
            page_size=page_size,
            max_tokens=capacity,
            max_running=16,
            core="python",
        )
        self.core = self.cache.tree_core
        self.steps = RadixPolicy(self.cache)
        self.calls = calls_of(self.cache)
        self.under_way: dict[str, LabRequest] = {}

    @property
    def scout(self) -> Any:
        assert self.calls is not None
        return self.calls.scout

    @property
    def evicted(self) -> int:
        return self.steps.evicted_tokens

    def queue(self, rid: str, prompt: list[int], **fields: Any) -> LabRequest:
        """The call enters the queue. ``fields`` are those of lab_request, and ``label``."""
        label = fields.pop("label", None)
        req = lab_request(rid, prompt, **fields)
        req.sampling_params.custom_params = {"scout": label} if label else None
        on_queue(lambda *_: None, SimpleNamespace(tree_cache=self.cache), req)
        self.under_way[rid] = req
        return req

    def admit(self, rid: str, output_tokens: int = 4) -> int | None:
        """Match, allocate, insert the prompt; cached tokens, None where memory is short."""
        hit = self.steps.admit(self.under_way[rid], output_tokens)
        if hit is None:
            self.drop(rid)
        return hit

    def drop(self, rid: str) -> None:
        """The call leaves the queue without having run."""
        scheduler = SimpleNamespace(tree_cache=self.cache)
        on_queue_abort(lambda *_: None, scheduler, self.under_way.pop(rid))

    def finish(self, rid: str, output: list[int]) -> None:
        """The call ends; ``output`` has as many tokens as it was admitted with."""
        req = self.under_way.pop(rid)
        req.finish(np.array(output, dtype=np.int32))
        self.steps.release(req)

    def call(self, rid: str, prompt: list[int], output: list[int], **fields: Any) -> int | None:
        """A whole call, from arrival to end."""
        self.queue(rid, prompt, **fields)
        hit = self.admit(rid, len(output))
        if hit is not None:
            self.finish(rid, output)
        return hit

    def flush(self) -> None:
        """What the scheduler does for /flush_cache."""
        self.cache.reset()
        self.cache.req_to_token_pool.clear()
        self.steps.allocator.clear()

    # -- looking inside ----------------------------------------------------------------

    def nodes(self) -> list[tuple[tuple[int, ...], Any]]:
        """Every node with the token ids from the root to its end, in order of those."""
        found: list[tuple[tuple[int, ...], Any]] = []
        stack: list[tuple[tuple[int, ...], Any]] = [((), self.core.root_node)]
        while stack:
            path, node = stack.pop()
            for child in node.children.values():
                end = (*path, *child.key.token_ids[: len(child.key)])
                found.append((end, child))
                stack.append((end, child))
        return sorted(found, key=lambda pair: pair[0])

    def node(self, *tokens: int) -> Any:
        """The node whose path ends with exactly these tokens."""
        return dict(self.nodes())[tokens]

    def leaves(self) -> list[tuple[int, ...]]:
        """Token paths of all leaves: what is cached, whatever the nodes' boundaries."""
        return [path for path, node in self.nodes() if not node.children]

    def cached(self, tokens: list[int]) -> int:
        """How many of these tokens, from the first on, are cached; changes nothing."""
        from sglang.srt.mem_cache.radix_cache import RadixKey

        from scout_sglang.replay.request import token_array

        key = RadixKey(token_array(np.array(tokens, dtype=np.int32)), None)
        return int(self.core.match_full_device_prefix(key)[0])

    def check(self) -> None:
        """The tree is sound, and every slot is free, evictable or protected."""
        self.cache.sanity_check()
        free = self.steps.allocator.available_size()
        evictable, held = self.cache.evictable_size(), self.cache.protected_size()
        if self.under_way:
            assert free + evictable + held <= self.steps.capacity
        else:
            assert held == 0
            assert free + evictable == self.steps.capacity, (free, evictable, self.steps.capacity)


class Program:
    """Agents at work in sessions: a sequence of small integers decides every step.

    A session's prompt is the agent's own words, then its history, then fresh tokens; now and then
    a session rewrites its history, a call leaves the queue, or the cache is flushed.
    """

    def __init__(self, lab: Lab, labelled: bool) -> None:
        self.lab = lab
        self.labelled = labelled
        self.histories: dict[int, list[int]] = {}
        self.running: dict[int, tuple[str, list[int], list[int]]] = {}
        self.hits: list[int | None] = []
        self._next_token = 1000

    def step(self, action: int, session: int, agent: int, length: int) -> None:
        """One step; ``action`` 0..9, of which 0..6 begin or end a call."""
        if session in self.running:
            self._finish(session)
        elif action <= 6:
            self._begin(session, agent, length)
        elif action == 7:
            self._queue(session, agent, length)
            self.lab.drop(self._rid())
        elif action == 8:
            history = self.histories.get(session, [])
            self.histories[session] = history[: len(history) // 2]
        elif not self.running:
            self.lab.flush()

    def end(self) -> None:
        """Finish what runs."""
        for session in list(self.running):
            self._finish(session)

    def _rid(self) -> str:
        return f"r{len(self.hits)}"

    def _fresh(self, length: int) -> list[int]:
        self._next_token += length
        return list(range(self._next_token - length, self._next_token))

    def _queue(self, session: int, agent: int, length: int) -> list[int]:
        words = list(range(100 * agent, 100 * agent + 24))
        prompt = words + self.histories.get(session, []) + self._fresh(length)
        self.hits.append(None)
        fields = {"session_id": f"s{session}"} if self.labelled else {}
        self.lab.queue(self._rid(), prompt, **fields)
        return prompt[len(words) :]

    def _begin(self, session: int, agent: int, length: int) -> None:
        said = self._queue(session, agent, length)
        output = self._fresh(1 + length // 4)
        self.hits[-1] = self.lab.admit(self._rid(), len(output))
        if self.hits[-1] is not None:
            self.running[session] = (self._rid(), output, said)

    def _finish(self, session: int) -> None:
        rid, output, said = self.running.pop(session)
        self.lab.finish(rid, output)
        self.histories[session] = said + output


def span(start: int, length: int) -> list[int]:
    """Token ids that follow one another."""
    return list(range(start, start + length))


def evict(lab: Lab, tokens: int) -> int:
    """Evict as for an allocation of so many tokens; how many were freed."""
    return lab.cache.evict_for_alloc(EvictParams(num_tokens=tokens)).num_tokens_evicted


def random_steps(seed: int, count: int) -> list[tuple[int, int, int, int]]:
    """Arguments for Program.step."""
    rng = np.random.default_rng(seed)
    return [tuple(map(int, rng.integers(0, (10, 6, 4, 40)))) for _ in range(count)]  # type: ignore[misc]


def transcript(policy: str, page_size: int, seed: int) -> dict[str, Any]:
    """What a random program saw: cached tokens of every call, and what is cached at its end."""
    lab = Lab(policy, 40 * 16, page_size)
    program = Program(lab, labelled=seed % 2 == 0)
    for step in random_steps(seed, 300):
        program.step(*step)
    program.end()
    lab.check()
    return {"hits": program.hits, "evicted": lab.evicted, "leaves": lab.leaves()}
