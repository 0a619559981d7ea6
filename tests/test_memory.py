from evals.memory import measure


def test_a_longer_trace_takes_no_more_memory():
    short = measure("lru", "chat", 40, 12_000)
    long = measure("lru", "chat", 200, 12_000)
    assert long.calls > 4 * short.calls
    assert long.after - long.before < 16 * 2**20
