"""Requests on their way into the policy: what is told of them, when, and to whom."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.managers.schedule_batch import FINISH_ABORT

from radix_policy.call import Call
from radix_policy.config import parse_config
from radix_policy.scout import Scout
from scout_sglang import dispatch
from scout_sglang.dispatch import Calls, call_of, on_queue, on_queue_abort, on_release
from tests.scout_sglang.lab import lab_request
from tests.server.plugins.scout_testing import make_breakable


def cache_with(calls: Calls | None) -> SimpleNamespace:
    return SimpleNamespace(tree_core=SimpleNamespace(scout_calls=calls))


def scheduler_with(calls: Calls | None) -> SimpleNamespace:
    return SimpleNamespace(tree_cache=cache_with(calls))


def request(rid: str = "r", length: int = 20, **fields):
    return lab_request(rid, range(length), **fields)


def fresh(policy: str = "scout") -> Calls:
    return Calls(Scout(parse_config(policy), capacity=1000))


class Original:
    """Stands where SGLang's own method would be called."""

    def __init__(self):
        self.calls = []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return "theirs"


# -- what the policy is told -------------------------------------------------------------


def test_ids_come_from_the_fields_of_the_request():
    req = request(session_id="s", routing_key="k", extra_key="e", cache_salt="c")
    call = call_of(req)
    assert call.tokens.tolist() == list(range(20)) and call.tokens.dtype == np.int32
    assert (call.session, call.routing_key, call.agent) == ("s", "k", None)
    assert call.namespace == ("e", "c", None)
    assert not call.end_of_session


def test_custom_parameters_are_explicit_and_win():
    req = request(session_id="s")
    label = {"agent": 7, "session": "mine", "end_of_session": True}
    req.sampling_params.custom_params = {"scout": label, "other": 1}
    call = call_of(req)
    assert (call.agent, call.session, call.end_of_session) == ("7", "mine", True)


def test_an_unknown_field_in_a_label_is_ignored_and_said_once(caplog):
    dispatch._complain_of_labels.cache_clear()
    for session in "ab":
        req = request()
        req.sampling_params.custom_params = {"scout": {"agnt": 7, "session": session}}
        assert (call_of(req).agent, call_of(req).session) == (None, session)
    [said] = [record.getMessage() for record in caplog.records]
    assert "accepted: agent, end_of_session, session" in said


def test_a_call_is_told_once_from_arrival_to_end_however_often_it_is_matched():
    calls = fresh()
    told = []
    for name in ("observe", "admit", "start", "finish", "abandon"):
        real = getattr(calls.scout, name)
        setattr(calls.scout, name, lambda *a, n=name, f=real: (told.append(n), f(*a))[1])
    for _ in range(2):  # a retracted request queues and is matched again
        on_queue(Original(), scheduler_with(calls), request())
        calls.admit("r")
    calls.start("r", 0)
    req = request()
    on_release(Original(), cache_with(calls), req)
    assert len(calls) == 1, "a request that gives its memory back to go on later has not ended"
    req.finish(np.arange(3, dtype=np.int32))
    on_release(Original(), cache_with(calls), req)
    assert told == ["observe", "admit", "start", "finish"]
    assert len(calls) == 0


@pytest.mark.parametrize("where", ["queue", "run"])
def test_an_aborted_call_is_abandoned(where):
    calls = fresh()
    ended = []
    calls.scout.abandon = ended.append
    req = request()
    on_queue(Original(), scheduler_with(calls), req)
    number = calls.get("r").dispatch.number
    if where == "queue":
        on_queue_abort(Original(), scheduler_with(calls), req)
    else:
        req.finished_reason = FINISH_ABORT()
        on_release(Original(), cache_with(calls), req)
    assert [call.number for call in ended] == [number]
    assert len(calls) == 0


def test_health_checks_are_not_calls():
    calls = fresh()
    on_queue(Original(), scheduler_with(calls), request("HEALTH_CHECK_1"))
    assert len(calls) == 0 and calls.scout.clock == 0


def test_an_unknown_request_is_passed_over():
    calls = fresh()
    assert calls.admit("unknown") is None
    assert calls.start("unknown", 3) is None
    calls.finish("unknown", np.arange(3, dtype=np.int32), 0)
    calls.abandon("unknown")


def test_the_table_is_bounded_should_ends_never_be_announced(monkeypatch):
    monkeypatch.setattr(dispatch, "MOST_CALLS", 3)
    calls = fresh()
    for number in range(5):
        on_queue(Original(), scheduler_with(calls), request(f"r{number}"))
    assert [calls.get(f"r{n}") is not None for n in range(5)] == [False, False, True, True, True]


# -- the hooks ---------------------------------------------------------------------------


def through_all_hooks(calls: Calls | None) -> list[Original]:
    queue, abort, release = Original(), Original(), Original()
    req = request()
    assert on_queue(queue, scheduler_with(calls), req, True, position=3) == "theirs"
    assert on_queue_abort(abort, scheduler_with(calls), req) == "theirs"
    req.finish(np.arange(3, dtype=np.int32))
    assert on_release(release, cache_with(calls), req, checkpointed=True) == "theirs"
    return [queue, abort, release]


@pytest.mark.parametrize("broken", ["none", "policy", "cache"])
def test_each_hook_calls_sglangs_own_method_exactly_once(broken, monkeypatch, counted):
    if broken == "policy":
        for point in ("Scout.observe", "Scout.finish", "Scout.abandon"):
            make_breakable(f"radix_policy.scout:{point}", lambda: "everything", monkeypatch.setattr)
    originals = through_all_hooks(None if broken == "cache" else fresh())
    assert [len(original.calls) for original in originals] == [1, 1, 1]
    assert originals[0].calls[0][0][2:] == (True,)
    assert originals[0].calls[0][1] == {"position": 3}
    assert originals[2].calls[0][1] == {"checkpointed": True}
    assert counted == ({"arrive": 1} if broken == "policy" else {})


def test_a_call_whose_end_cannot_be_learned_is_no_longer_under_way(monkeypatch, counted):
    calls = fresh()
    req = request()
    on_queue(Original(), scheduler_with(calls), req)
    make_breakable("radix_policy.scout:Scout.finish", lambda: "everything", monkeypatch.setattr)
    req.finish(np.arange(3, dtype=np.int32))
    on_release(Original(), cache_with(calls), req)
    assert len(calls) == 0
    assert counted == {"finish": 1}


def test_sglangs_own_errors_are_not_swallowed():
    def broken(*_):
        raise RuntimeError("theirs")

    with pytest.raises(RuntimeError, match="theirs"):
        on_queue(broken, scheduler_with(fresh()), request())


# -- namespaces --------------------------------------------------------------------------

turns = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans(), st.integers(0, 30)),
    min_size=1,
    max_size=12,
)


class Tenant:
    """One namespace's calls on a scout, and all that can be seen of what it learned."""

    def __init__(self, scout: Scout, salt: str, labelled: bool) -> None:
        self.scout, self.salt, self.labelled = scout, salt, labelled
        self.histories: dict[int, list[int]] = {}
        self.seen: list[object] = []

    def turn(self, agent: int, session: int, finishes: bool, length: int) -> None:
        history = self.histories.get(session, [])
        fresh_tokens = range(1000 * (session + 1) + len(history), 10_000)[:length]
        prompt = np.array(
            [*range(100 * agent, 100 * agent + 64), *history, *fresh_tokens], dtype=np.int32
        )
        label = {"agent": f"a{agent}", "session": f"s{session}"} if self.labelled else {}
        dispatch = self.scout.observe(Call(prompt, (None, self.salt, None), **label))
        self.scout.admit(dispatch)
        output = np.arange(20_000 + length, 20_005 + length, dtype=np.int32)
        if finishes:
            both = np.concatenate([prompt, output])
            self.scout.finish(dispatch, both, len(prompt), len(output))
        else:
            self.scout.abandon(dispatch)
        self.histories[session] = [*history, *fresh_tokens, *output.tolist()]
        self.seen.append((dispatch.session, dispatch.agent, dispatch.anchor))

    def learned(self) -> object:
        tenant = self.scout._tenants.get((None, self.salt, None))
        if tenant is None:
            return None
        counts = tenant.value.counts
        rows = len(tenant.value.rows)
        return (
            self.seen,
            tenant.identity.agent_report(),
            counts.follows[:rows, :rows].tolist(),
            counts.starts[:rows].tolist(),
            counts.ends[:rows].tolist(),
        )


@given(mine=turns, theirs=turns, labelled=st.booleans(), order=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_what_one_namespace_learns_is_the_same_whatever_another_does(mine, theirs, labelled, order):
    config = parse_config("scout", {"idle_min": 1000})  # the clock, which they share, ends none
    alone = Tenant(Scout(config, 1000), "mine", labelled)
    for turn in mine:
        alone.turn(*turn)
    scout = Scout(config, 1000)
    first, other = Tenant(scout, "mine", labelled), Tenant(scout, "theirs", labelled)
    queue = [(first, turn) for turn in mine]
    for turn in theirs:
        queue.insert(order.randint(0, len(queue)), (other, turn))
    mine_again, theirs_again = iter(mine), iter(theirs)
    for tenant, _ in queue:
        tenant.turn(*next(mine_again if tenant is first else theirs_again))
    assert first.learned() == alone.learned()


def test_equal_prompts_of_two_namespaces_predict_from_their_own_calls_alone():
    scout = Scout(parse_config("scout"), 1000)
    first, other = Tenant(scout, "one", True), Tenant(scout, "two", True)
    for session in range(6):
        for tenant, follower in ((first, 1), (other, 2)):
            tenant.turn(0, session, True, 5)
            tenant.turn(follower, session, True, 5)
    assert most_likely_after_agent_0(scout, "one") == "a1"
    assert most_likely_after_agent_0(scout, "two") == "a2"


def most_likely_after_agent_0(scout: Scout, salt: str) -> str | None:
    prompt = np.arange(64, dtype=np.int32)
    call = scout.observe(Call(prompt, (None, salt, None), agent="a0", session="new"))
    chances = scout.predict(call)
    likely = max(chances, key=lambda agent: chances[agent])
    reports = scout._tenants[None, salt, None].identity.agent_report()
    return {report.agent: report.label for report in reports}[likely]
