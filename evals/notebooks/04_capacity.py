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
# # Capacity: what is a better policy worth in memory?
#
# The planner (`python -m scout_sglang.replay TRACE --plan`) on a real trace: research meetings of a
# virtual laboratory, many agents in a fixed speaking order. Where no recorded sets are at hand, a
# generated mix of four applications stands in. The paper (CacheScout, arXiv 2608.14624) fixes one
# capacity and gives no figure of memory, so these numbers have no counterpart there.

# %%
from matplotlib import pyplot as plt

from evals.notebook import pick, recorded, replays, start, table
from scout_sglang.replay import planner

start()
SETS = recorded()
SOURCE = SETS.get("virtual_lab", f"synthetic:mix24?sessions={pick(12, 100, 400)}")
NAME = "virtual_lab" if "virtual_lab" in SETS else "generated mix of four applications"
POLICIES = pick(
    ["lru", "scout"],
    ["lru", "cachescout", "scout", "belady"],
    ["lru", "slru", "cachescout", "scout", "belady"],
)
planned = replays(
    SOURCE, POLICIES, plan=True, max_sessions=pick(8, 60, None), capacity=pick("50%", None, None)
)
curve, facts = planned.curve, planned.facts
print(
    f"{NAME}: {facts.sessions} sessions, {facts.calls:,} calls, {facts.agents} agents, prompts of "
    f"{facts.prompt_median:,} tokens (median); {facts.footprint:,} tokens would hold everything"
)

# %% [markdown]
# ## Miss ratio over memory
#
# The grey line is LRU freed page by page, at every capacity, from a single pass over the trace by
# stack distances. The marks are replays on SGLang's real cache. The dotted line is the working set:
# the tokens that hold, on average, exactly what will be used again.

# %%
figure, axes = plt.subplots(figsize=(7.5, 4.2))
planner.draw(axes, curve, planned.results)
axes.set_title(NAME)
figure.tight_layout()
print(planner.verdict(curve, planned.results))

# %% [markdown]
# ## The memory that LRU needs for what scout reaches
#
# Read off LRU's own replays: between two of them its hit rate is taken to rise with the logarithm
# of the capacity. *More than* marks hit rates that LRU reached at no capacity replayed. As memory
# for a model of 8 billion parameters with grouped-query attention (32 layers, 8 key-value heads of
# 128, 16 bit): 128 KiB for each token.

# %%
KIB_PER_TOKEN = 128
base = dict(planner.points_of(planned.results, "lru"))


def gib(tokens):
    return f"{tokens * KIB_PER_TOKEN / 2**20:.1f} GiB"


rows = []
for need in planner.needs(planned.results):
    if need.policy == "scout" and need.capacity in base:
        most = need.lru_needs or max(base)
        rows.append(
            (
                f"{need.capacity:,} ({gib(need.capacity)})",
                f"{100 * base[need.capacity]:.1f}",
                f"{100 * need.hit_rate:.1f}",
                f"{'' if need.lru_needs else 'more than '}{most:,} ({gib(most)})",
                f"{'' if need.lru_needs else '> '}{most / need.capacity:.2f}",
            )
        )
print(table(("scout's memory", "lru %", "scout %", "lru needs", "times"), rows))

# %%
figure, axes = plt.subplots(figsize=(6, 3.6))
for policy in POLICIES:
    pairs = [
        (n.capacity / 1000, n.lru_needs / 1000)
        for n in planner.needs(planned.results)
        if n.policy == policy and n.lru_needs
    ]
    if pairs:
        axes.plot(*zip(*pairs, strict=True), "o-", label=f"lru, to hit like {policy}")
sizes = [capacity / 1000 for capacity in sorted(base)]
axes.plot(sizes, sizes, "k--", label="the same memory")
axes.set_xlabel("memory of the policy (thousand tokens)")
axes.set_ylabel("memory that lru needs (thousand tokens)")
axes.legend(fontsize=8)
figure.tight_layout()

# %% [markdown]
# ## The working set
#
# How far one can go with memory at all: page-wise LRU at shares of what an infinite cache hits.

# %%
rows = [
    (f"{share:.0%} of {100 * curve.limit:.1f} %", f"{tokens:,}", gib(tokens))
    for share in planner.ENOUGH
    if (tokens := curve.capacity_for(share * curve.limit))
]
rows.append(("working set (mean)", f"{curve.working_set:,}", gib(curve.working_set)))
print(table(("page-wise lru reaches", "tokens", "memory"), rows))
