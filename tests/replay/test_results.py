from evals.results import rows


def run(policy, rate, valid=True, seed=0):
    return {"policy": policy, "capacity": 8000, "seed": seed, "hit_rate": rate, "valid": valid}


def report(*results):
    trace = {"name": "folder/my.jsonl.zst", "live_sessions": 5.64, "anchor_share": 0.48}
    return {"trace": trace, "results": list(results)}


def test_a_row_shows_means_over_seeds_gains_and_the_share_of_the_gap():
    seeds = [(0.30, 0.40, 0.50), (0.20, 0.30, 0.40)]
    runs = [
        run(policy, rate, seed=seed)
        for seed, rates in enumerate(seeds)
        for policy, rate in zip(("lru", "scout", "belady"), rates, strict=True)
    ]
    [row] = rows(report(*runs))
    head = ["my", "8,000", "2", "5.6", "48 %"]
    assert row == [*head, "25.0", "–", "–", "35.0 (+10.0)", "45.0 (+20.0)", "–", "50 %"]


def test_an_invalid_row_is_bracketed():
    [row] = rows(report(run("lru", 0.3), run("scout", 0.4, valid=False)))
    assert row[1] == "(8,000)"
