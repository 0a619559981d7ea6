# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What the policy costs
#
# Time on the scheduler's thread and memory, beside SGLang's own LRU in the same run: two caches of
# SGLang's real classes hold the same leaves, every operation is timed on both in turn
# (`python -m evals.bench_overhead`). The paper (CacheScout, arXiv 2608.14624, Fig. 15) reports less
# than 25 KB of state at 24 agents, 1 µs for a touch, 6 µs for a survival score and a hot path below
# 8 µs at the 99th percentile.

# %%
from matplotlib import pyplot as plt

from evals import bench_overhead, bench_state
from evals.notebook import pick, start, table

start()
bench_overhead.hook()
LEAVES = pick((100, 500), (100, 1_000, 10_000), (100, 1_000, 10_000, 50_000, 100_000))
TURNS = pick(10, 100, 200)
points = [bench_overhead.Point(leaves, 1024, 1) for leaves in LEAVES]
sizes = [bench_overhead.tree(point, TURNS, "auto") for point in points]
print(
    table(
        ["leaves", *bench_overhead.OPERATIONS],
        [[f"{s['leaves']:,}", *(f"{r:.2f}x" for r in s["ratio"].values())] for s in sizes],
    )
)

# %% [markdown]
# ## Evicting 1,024 tokens, by leaves in the tree
#
# LRU in SGLang's Rust core lists all leaves to free one; scout meets the buckets that come first.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True)
for panel, operation in zip(axes, ("evict", "call"), strict=True):
    for name, label in (("stock_us", "lru"), ("ours_us", "scout")):
        median = [s[name][operation]["median"] for s in sizes]
        tail = [s[name][operation]["p99"] for s in sizes]
        (line,) = panel.plot(LEAVES, median, marker="o", label=f"{label}, median")
        panel.plot(LEAVES, tail, linestyle=":", color=line.get_color(), label=f"{label}, p99")
    panel.set(xscale="log", yscale="log", xlabel="leaves in the tree")
axes[0].set(ylabel="µs of thread CPU time", title="evict 1,024 tokens")
axes[1].set(title="match, lock, evict, insert, unlock")
axes[0].legend(fontsize=8)
figure.tight_layout()

# %% [markdown]
# ## Arrival, by length of the prompt and by agents
#
# Finding agent and session and learning the step, 500 sessions alive. *Refresh* is the first look
# at a shared node's value in a dispatch. The paper is given agents and sessions and pays for
# neither of these: what compares with its hot path stands below.

# %%
PROMPTS, AGENTS = pick((256,), (1024, 8192), (1024, 8192, 32_768)), pick((6,), (24, 100), (24, 100))
arrivals = [
    bench_overhead.arrival(prompt, agents, TURNS, ids)
    for prompt in PROMPTS
    for agents in AGENTS
    for ids in (True, False)
]
rows = [
    [
        f"{a['prompt']:,}",
        a["agents"],
        "from the client" if a["ids"] else "inferred",
        *(f"{a[f'{what}_{q}']:.0f}" for what in ("arrival", "refresh") for q in ("median", "p99")),
    ]
    for a in arrivals
]
columns = ["prompt", "agents", "ids", "arrival, µs", "p99", "refresh, µs", "p99"]
print(table(columns, rows))

# %% [markdown]
# ## State, and what compares with the paper's hot path

# %%
SIZES = pick(
    [bench_state.Size(6, 10, 60)], [bench_state.Size(24, 100, 1_000)], list(bench_state.SIZES)
)
measured = [bench_state.measure(size, pick(10, 200, 1000)) for size in SIZES]
for result in measured:
    print(f"{result['agents']:,} agents, {result['sessions']:,} live sessions")
    print(table(["kept for", "bytes"], [[k, f"{v:,}"] for k, v in result["bytes"].items()]))
    hot = [(k, v) for k, v in result["us"].items() if k in ("learn", "look up")]
    rows = [[k, f"{v['median_us']:.1f}", f"{v['p99_us']:.1f}"] for k, v in hot]
    print(table(["hot path", "median, µs", "p99, µs"], rows), "\n")
print(
    f"the paper: less than {bench_state.PAPER_STATE:,} bytes at 24 agents (compare *counts*), "
    f"p99 below {bench_state.PAPER_P99_US:g} µs (compare *learn* and *look up*)"
)
