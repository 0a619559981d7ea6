import numpy as np
import pytest

from scout_sglang.replay.describe import describe
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import Timing, schedule
from scout_sglang.replay.trace import MemoryTrace, Session, TraceCall
from tests.replay.reference import ReferenceLRU

POLICIES = (
    "lru",
    "slru",
    "tlru",
    "lfu",
    "lfu-da",
    "lhd",
    "ttl",
    "kvflow",
    "cachescout",
    "scout",
    "belady",
    "belady-leaf",
    "infinite",
)
SEQUENTIAL = Timing(sessions_per_second=1e-3)


def run(
    sessions, policy, capacity, page_size=16, timing=None, seed=0, uncounted_calls=0, **options
):
    timing = timing or Timing()
    facts = describe(lambda: schedule(sessions, timing, seed), page_size)
    setting = Setting(
        policy=policy,
        capacity=capacity,
        page_size=page_size,
        max_tokens=facts.longest + page_size,
        footprint=facts.footprint,
        events=lambda: schedule(sessions, timing, seed),
        **options,
    )
    built = build(setting)
    result = Result(policy, capacity, page_size, seed, hits=[])
    return replay(built, schedule(sessions, timing, seed), result, uncounted_calls), built


def one_call_sessions(calls):
    """A session for each (prompt, output) pair of token lists."""
    return MemoryTrace(
        "calls",
        [
            Session(
                f"s{index}",
                [np.asarray(prompt, np.int32), np.asarray(output, np.int32)],
                [TraceCall("a", (0,), 1, "start")],
            )
            for index, (prompt, output) in enumerate(calls)
        ],
    )


def branching_calls(n, seed):
    """Prompts that share prefixes of all lengths: walks down a small tree of tokens."""
    rng = np.random.default_rng(seed)
    return [
        (
            rng.integers(0, 2, int(rng.integers(2, 12))).repeat(3).tolist(),
            [7] * int(rng.integers(1, 6)),
        )
        for _ in range(n)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_lru_finds_what_an_independent_model_of_it_finds(seed):
    calls = branching_calls(400, seed)
    reference = ReferenceLRU(120)
    expected = [reference.call(prompt, output) for prompt, output in calls]
    result, _ = run(one_call_sessions(calls), "lru", 120, page_size=1, timing=SEQUENTIAL)
    assert result.hits == expected
    assert result.evicted_tokens > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_second_run_gives_the_same_hits(policy):
    sessions = trace("mix24?sessions=40")
    first, _ = run(sessions, policy, 8000)
    again, _ = run(sessions, policy, 8000)
    assert first.hits == again.hits


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("policy", ["lru", "scout", "belady-leaf", "infinite"])
def test_after_a_run_every_slot_is_free_or_evictable(policy, page_size):
    _, built = run(trace("mix24?sessions=30"), policy, 8000, page_size)
    free, evictable = built.allocator.available_size(), built.cache.evictable_size()
    assert built.cache.protected_size() == 0
    assert free + evictable == built.capacity


def test_no_policy_beats_the_page_level_bound_nor_that_the_infinite_cache():
    sessions = trace("selector?sessions=60")
    rate = {policy: run(sessions, policy, 8000)[0].hit_rate for policy in POLICIES}
    for policy in POLICIES[:-3]:
        assert rate[policy] <= rate["belady"]
    assert rate["belady-leaf"] <= rate["belady"] <= rate["infinite"]


def test_with_room_for_all_every_policy_hits_like_the_infinite_cache():
    sessions = trace("debate?sessions=30")
    hits = {policy: run(sessions, policy, 400_000)[0].hits for policy in POLICIES}
    assert all(found == hits["infinite"] for found in hits.values())


def test_a_prompt_larger_than_the_cache_is_counted_and_the_rest_goes_on():
    small = ([1] * 40, [2] * 4)
    result, _ = run(one_call_sessions([small, ([3] * 900, [4]), small]), "lru", 512)
    assert result.hits == [0, -1, 32]
    assert (result.calls, result.failed_calls) == (3, 1)
    assert result.prompt_tokens == 80


def test_warm_up_calls_fill_the_cache_and_are_not_counted():
    sessions = one_call_sessions([([1] * 64, [2])] * 4)
    result, _ = run(sessions, "lru", 512, uncounted_calls=3)
    assert result.calls == 4
    assert (result.prompt_tokens, result.hit_tokens) == (64, 48)


def test_a_running_call_keeps_its_prompt_from_eviction():
    long_call = ([5] * 200, [6] * 100)
    others = [([index + 10] * 200, [1]) for index in range(3)]
    back_to_back = Timing(sessions_per_second=1e6)
    result, _ = run(one_call_sessions([long_call, *others]), "lru", 560, timing=back_to_back)
    assert result.hits[0] == 0
    assert -1 in result.hits[1:]


def test_hidden_ids_reach_no_policy():
    sessions = trace("selector?sessions=2")
    _, built = run(sessions, "scout", 8000, ids=False)
    job = next(schedule(sessions, Timing(), 0)).job
    req = built.make_request(job)
    assert req.session_id is None
    assert req.sampling_params.custom_params is None
