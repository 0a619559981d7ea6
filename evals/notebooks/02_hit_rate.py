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
# # Hit rate: every policy, every workload
#
# Share of prompt tokens that the cache already holds, on SGLang's own cache classes, without a
# model (`scout_sglang/replay`). All policies see one schedule per seed; the first 15 % of calls are
# not counted. `belady` knows the future and frees page by page: no policy can do better.
# `infinite` never evicts. CacheScout (arXiv 2608.14624) reports **+10 to +18 points over LRU** on
# its own workloads, which are not public; its rule is `cachescout` here.

# %%
from statistics import fmean

from matplotlib import pyplot as plt

from evals.notebook import PAPER_GAIN, gains, pick, rate, recorded, replays, start, table, valid
from scout_sglang.replay.presets import preset_for

start()
POLICIES = pick(
    ["lru", "slru", "cachescout", "scout", "belady"],
    ["lru", "slru", "lfu-da", "lhd", "cachescout", "scout", "belady", "infinite"],
    [
        *("lru", "slru", "tlru", "lfu", "fifo", "lfu-da", "lhd", "ttl", "kvflow"),
        *("anchor-protect", "cachescout", "no-prediction", "scout"),
        *("belady-leaf", "belady", "infinite"),
    ],
)
SEEDS = pick("0", "0,1", "0,1,2")
SESSIONS = pick(12, 40, 400)
MOST_RECORDED = pick(6, 20, None)
NAMES = pick(
    ["selector"],
    ["pipeline", "debate", "selector", "random", "mix24", "chat"],
    ["pipeline", "debate", "selector", "random", "mix24", "mix102", "chat", "sweep", "drift"],
)
WORKLOADS = {name: f"synthetic:{name}?sessions={SESSIONS}" for name in NAMES}
SETS = recorded()
if pick(True, False, False):
    SETS = {name: path for name, path in SETS.items() if name == "virtual_lab"}

# %%
measured = {}
for name, source in {**WORKLOADS, **SETS}.items():
    capacities = preset_for(source)[1][: pick(1, None, None)]
    measured[name] = replays(
        source,
        POLICIES,
        seed=SEEDS,
        capacity=",".join(map(str, capacities)),
        max_sessions=MOST_RECORDED if name in SETS else None,
    )

cells = [
    (name, capacity)
    for name, m in measured.items()
    for capacity in dict.fromkeys(r.capacity for r in m.results)
    if valid(m, capacity)
]
skipped = sum(len({r.capacity for r in m.results}) for m in measured.values()) - len(cells)
print(f"{len(cells)} cells; {skipped} left out because more than 1 % of calls were not admitted")

# %% [markdown]
# ## Hit rate in percent

# %%
rows = [
    (name, f"{capacity:,}", *[f"{rate(measured[name], p, capacity):.1f}" for p in POLICIES])
    for name, capacity in cells
]
print(table(("workload", "tokens", *POLICIES), rows))

# %% [markdown]
# ## Points over LRU
#
# Each mark is the mean over seeds, the line runs from the worst to the best seed. The shaded band
# is what the paper reports. Left of zero is a loss.

# %%
shown = [p for p in POLICIES if p not in ("lru", "infinite")]
figure, axes = plt.subplots(figsize=(8, 1.2 + 0.5 * len(cells)))
axes.axvspan(*PAPER_GAIN, color="0.9", label="CacheScout, as published")
axes.axvline(0, color="0.4", linewidth=1)
for place, policy in enumerate(shown):
    found = [gains(measured[name], policy, capacity) for name, capacity in cells]
    means = [fmean(values) for values in found]
    heights = [row + (place / len(shown) - 0.5) * 0.7 for row in range(len(cells))]
    spread = [
        [mean - min(values) for mean, values in zip(means, found, strict=True)],
        [max(values) - mean for mean, values in zip(means, found, strict=True)],
    ]
    large = policy in ("scout", "belady")
    axes.errorbar(
        means,
        heights,
        xerr=spread,
        fmt="o",
        markersize=7 if large else 4,
        alpha=1 if large else 0.7,
        color={"scout": "C3", "cachescout": "C4", "belady": "black"}.get(policy),
        label=policy,
    )
axes.set_yticks(range(len(cells)), [f"{name} {capacity / 1000:.0f}k" for name, capacity in cells])
axes.invert_yaxis()
axes.set_xlabel("points of hit rate over lru")
axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
figure.tight_layout()

# %% [markdown]
# ## How much of what can be gained is gained
#
# The gap from LRU to the bound, and the share of it that each policy closes. Where the gap is
# small, LRU is nearly optimal and the share says little.


# %%
def closed(name, policy, capacity):
    room = fmean(gains(measured[name], "belady", capacity))
    return (
        f"{100 * fmean(gains(measured[name], policy, capacity)) / room:.0f} %" if room > 1 else "–"
    )


inner = [p for p in shown if p != "belady"]
rows = [
    (
        name,
        f"{capacity:,}",
        f"{fmean(gains(measured[name], 'belady', capacity)):.1f}",
        *[closed(name, p, capacity) for p in inner],
    )
    for name, capacity in cells
]
print(table(("workload", "tokens", "gap, points", *inner), rows))
scout = [fmean(gains(measured[name], "scout", capacity)) for name, capacity in cells]
reference = [fmean(gains(measured[name], "cachescout", capacity)) for name, capacity in cells]
print(
    f"\nscout over lru: {min(scout):+.1f} to {max(scout):+.1f} points; cachescout here: "
    f"{min(reference):+.1f} to {max(reference):+.1f}; the paper: +10 to +18"
)

# %% [markdown]
# ## Over capacity
#
# The same policies as memory grows. All meet the infinite cache in the end; what differs is how
# early.

# %%
SWEPT = pick(["selector"], ["mix24"], ["mix24", "virtual_lab"])
CAPACITIES = {
    "selector": "6000,9000",
    "mix24": pick("", "6000,9000,14000,21000,32000", "6000,8000,12000,16000,24000,32000,48000"),
    "virtual_lab": "30000,45000,60000,90000,140000,200000",
}
LINES = ["lru", "slru", "cachescout", "scout", "belady"]
swept = [name for name in SWEPT if name in measured]
figure, grid = plt.subplots(1, len(swept), figsize=(5.5 * len(swept), 3.8), squeeze=False)
for axes, name in zip(grid[0], swept, strict=True):
    source = {**WORKLOADS, **SETS}[name]
    m = replays(
        source,
        LINES,
        capacity=CAPACITIES[name],
        max_sessions=MOST_RECORDED if name in SETS else None,
    )
    sizes = [c for c in dict.fromkeys(r.capacity for r in m.results) if valid(m, c)]
    for policy in LINES:
        style = "k--" if policy == "belady" else "o-"
        axes.plot(
            [c / 1000 for c in sizes], [rate(m, policy, c) for c in sizes], style, label=policy
        )
    axes.set_title(name)
    axes.set_xlabel("cache capacity (thousand tokens)")
    axes.set_ylabel("prompt tokens found cached (%)")
    axes.legend(fontsize=8)
figure.tight_layout()
