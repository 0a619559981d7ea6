from evals.results import table


def run(policy, rate, valid=True, seed=0):
    return {"policy": policy, "capacity": 8000, "seed": seed, "hit_rate": rate, "valid": valid}


def test_a_line_shows_means_over_seeds_gains_and_the_share_of_the_gap():
    seeds = [(0.30, 0.32, 0.40, 0.50), (0.20, 0.24, 0.32, 0.40)]
    runs = [
        run(policy, rate, seed=seed)
        for seed, rates in enumerate(seeds)
        for policy, rate in zip(("lru", "slru", "scout", "belady"), rates, strict=True)
    ]
    [line] = table("my", runs)
    assert line[:6] == ["my", "8,000", "2", "25.0", "–", "28.0 (+3.0)"]
    assert line[10] == "**36.0** (+11.0)<br>+10.0 to +12.0"
    assert line[-3:] == ["45.0 (+20.0)", "–", "55 %"]


def test_a_rival_of_fewer_seeds_is_paired_with_lru_by_seed():
    runs = [run("lru", 0.3), run("lru", 0.5, seed=1), run("slru", 0.6, seed=1)]
    [line] = table("my", runs)
    assert line[5] == "**60.0** (+10.0)"


def test_an_invalid_row_is_bracketed():
    [line] = table("my", [run("lru", 0.3), run("scout", 0.4, valid=False)])
    assert line[1] == "(8,000)"


def test_a_table_of_rivals_has_its_own_columns_and_no_gap():
    runs = [run("lru", 0.3), run("lhd", 0.4), run("belady-leaf", 0.6)]
    [line] = table("my", runs, ("lru", "lhd", "belady-leaf"))
    assert line == ["my", "8,000", "1", "30.0", "**40.0** (+10.0)", "60.0 (+30.0)"]
