import pytest

from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import Timing, schedule
from scout_sglang.replay.trace import Session, TraceCall, TraceError


def sessions_with_times(*starts):
    tokens = [[1, 2], [3]]
    return [
        Session(f"s{i}", tokens, [TraceCall("a", (0,), 1, "start", time=start)])
        for i, start in enumerate(starts)
    ]


def test_one_seed_gives_one_schedule_and_another_seed_another():
    def times(seed):
        return [event.time for event in schedule(trace("mix24?sessions=20"), Timing(), seed)]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_events_run_in_order_of_time_and_every_call_ends():
    events = list(schedule(trace("chat?sessions=20"), Timing(), 0))
    assert [event.time for event in events] == sorted(event.time for event in events)
    started = [event.job.number for event in events if event.starts]
    ended = [event.job.number for event in events if not event.starts]
    assert started == sorted(started)
    assert set(started) == set(ended)


def test_the_calls_of_a_session_do_not_overlap():
    running = set()
    for event in schedule(trace("selector?sessions=20"), Timing(), 0):
        if event.starts:
            assert event.job.session_index not in running
            running.add(event.job.session_index)
        else:
            running.remove(event.job.session_index)


def test_recorded_times_replace_the_model():
    events = [e for e in schedule(sessions_with_times(100.0, 103.5), Timing(), 0) if e.starts]
    assert [event.time for event in events] == [0.0, 3.5]


def test_recorded_times_that_run_backwards_are_refused_by_session():
    with pytest.raises(TraceError, match="'s1' starts at 99"):
        list(schedule(sessions_with_times(100.0, 99.0), Timing(), 0))


def test_a_session_ends_before_its_first_prompt_that_is_too_long():
    lengths = [
        len(event.job.prompt)
        for event in schedule(trace("mix24?sessions=20"), Timing(max_prompt=700), 0)
        if event.starts
    ]
    assert lengths
    assert max(lengths) <= 700


def test_agents_that_stand_for_people_take_a_persons_time():
    slow = Timing(human_agents=("app0.agent0",), human_gap=1e6)
    assert max(e.time for e in schedule(trace("pipeline?sessions=5"), slow, 0)) > 1e5
