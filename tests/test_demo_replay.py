from evals import demo, demo_replay
from evals.app.team import load_team
from evals.app.workload import build_workload
from tests.tiny_model import tiny_model_path


def test_calls_end_oldest_first_and_only_so_many_run():
    workload = build_workload(load_team(), seed=1, routing="random", sessions=3, sessions_live=2)
    prompts = [[number] for number in range(len(workload.calls))]
    running, ended, most = [], [], 0
    for event in demo_replay.calls(workload, prompts, [7], in_flight=2):
        if event.starts:
            running.append(event.job.number)
            assert event.job.is_last == workload.is_last(workload.calls[event.job.number])
        else:
            ended.append(event.job.number)
            running.remove(event.job.number)
        most = max(most, len(running))
    assert (most, running, ended) == (2, [], list(range(len(prompts))))


def test_scout_computes_less_again_than_lru_on_the_demos_own_calls():
    tokenizer = demo.Tokenizer(tiny_model_path())
    lru, scout = demo_replay.ratios("debate", 1, ["lru", "scout"], tokenizer, ids=True)
    assert lru == 1.0 > scout
