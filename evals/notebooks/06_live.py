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
# # Servers under load
#
# Real servers, one for each policy and run, one at a time, under the same open-loop arrivals
# (`python -m evals.serve_bench`). Nothing is measured in this notebook: it draws the reports in
# `evals/serving/results`, each of which holds the command that made it. Two CPU cores and a random
# Llama of 28 million parameters: what counts are the ratios, since a policy changes how many prompt
# tokens are computed again and nothing else. Bars are 95 % bootstrap intervals over repeats and
# sessions, paired with lru.

# %%
from matplotlib import pyplot as plt

from evals.notebook import start, table
from evals.serving.page import COLUMNS, MODEL, PAPER_FACTOR, reports

start()
REPORTS = reports()
print(MODEL)
for name, found in REPORTS.items():
    print(f"\n{name}: {found['command']}")
    print(f"cache {found['setup']['max_total_tokens']:,} tokens", end="; ")
    print("session ids sent" if found["setup"]["ids"] else "no ids sent")


def draw_ratios(axes, workload, quantities=tuple(COLUMNS)):
    """Each policy's ratio to the first, quantity by quantity, at the lowest rate."""
    policies = workload["points"][0]["policies"]
    compared = [name for name, measured in policies.items() if "ratios" in measured]
    known = [policies[name]["ratios"] for name in compared]
    quantities = [q for q in quantities if all(q in ratios for ratios in known)]
    for place, name in enumerate(compared):
        found = [policies[name]["ratios"][quantity] for quantity in quantities]
        axes.errorbar(
            [q + 0.12 * (place - (len(compared) - 1) / 2) for q in range(len(quantities))],
            [r["ratio"] for r in found],
            yerr=[
                [r["ratio"] - r["low"] for r in found],
                [r["high"] - r["ratio"] for r in found],
            ],
            fmt="o",
            capsize=2,
            label=name,
        )
    axes.axhline(1, color="k", lw=0.8)
    axes.set_xticks(range(len(quantities)), [COLUMNS[q] for q in quantities], rotation=15)
    axes.set_ylabel("ratio to lru")
    axes.set_title(workload["workload"])
    axes.legend(fontsize=8, ncols=3)


def rows_of(workload):
    """What each policy did, in its own units."""
    return [
        (
            workload["workload"],
            f"{point['rate']:g}",
            name,
            len(m["repeats"]),
            f"{100 * m['hit_rate']:.1f}",
            f"{m['recomputed_tokens']:,.0f}",
            f"{m['ttft_ms']['mean']:,.0f}",
            f"{m['ttft_ms']['p95']:,.0f}",
            f"{m['turn_ms']['mean']:,.0f}",
            f"{m['session_seconds']['mean']:.1f}",
            f"{m['tokens_per_second']:,.0f}",
            f"{m['books'].get('warmup_tokens_prefilled', 0):,.0f}",
        )
        for point in workload["points"]
        for name, m in point["policies"].items()
    ]


HEADS = (
    *("workload", "a second", "policy", "repeats", "hit %", "recomputed", "TTFT ms", "p95"),
    *("turn ms", "session s", "tokens/s", "warm-up tokens"),
)

# %% [markdown]
# ## Six agents, six policies
#
# The application of `make demo`, well below saturation. *scout-cold* is scout without warm-up. A
# session lasts mostly as long as its tools and pauses do, and below saturation throughput follows
# the arrivals: neither can differ much.

# %%
for name in ("app", "app_no_ids"):
    if name in REPORTS:
        figure, axes = plt.subplots(figsize=(9, 3.8))
        for workload in REPORTS[name]["workloads"]:
            draw_ratios(axes, workload)
            print(table(HEADS, rows_of(workload)))
        figure.tight_layout()

# %% [markdown]
# ## SGLang's own benchmark tool
#
# `bench_serving` as it is: prompts under shared prefixes, chats of three turns, and a sample in the
# format of Mooncake's trace. No agents follow each other here, so there is nothing to gain from
# knowing who runs next; the question is whether anything is lost.

# %%
if "bench" in REPORTS:
    found = REPORTS["bench"]["workloads"]
    figure, panels = plt.subplots(1, len(found), figsize=(10, 3.6), sharey=True, squeeze=False)
    for axes, workload in zip(panels[0], found, strict=True):
        draw_ratios(axes, workload, ("recomputed_tokens", "ttft_ms", "tokens_per_second"))
    figure.tight_layout()
    print(table(HEADS, [row for workload in found for row in rows_of(workload)]))
else:
    print("not measured yet")

# %% [markdown]
# ## Up to saturation
#
# The same sessions arrive faster and faster. A run has as many sessions at every rate, so beyond
# saturation the queue grows only until the last one has come: mean TTFT there is a lower bound.

# %%
if "sweep" in REPORTS:
    [workload] = REPORTS["sweep"]["workloads"]
    figure, axes = plt.subplots(figsize=(7, 3.8))
    for name in workload["points"][0]["policies"]:
        curve = [(p["rate"], p["policies"][name]) for p in workload["points"]]
        axes.plot(
            [rate for rate, _ in curve],
            [m["ttft_ms"]["mean"] for _, m in curve],
            "o-",
            label=name,
        )
    for found in workload["sustainable"]:
        axes.axhline(found["budget_ms"], color="0.7", lw=0.8)
    axes.set(xlabel="sessions a second", ylabel="mean TTFT, ms", yscale="log")
    axes.legend()
    figure.tight_layout()
    print(table(HEADS, rows_of(workload)), "\n")
    rows = []
    for found in workload["sustainable"]:
        rates = ["–" if r is None else f"{r:.3f}" for r in found["rates"].values()]
        known = found["factors"].get("scout")
        factor = (
            f"{known['factor']:.2f} [{known['low']:.2f}, {known['high']:.2f}]" if known else "–"
        )
        rows.append([f"{found['budget_ms']:,.0f}", *rates, factor])
    policies = list(workload["sustainable"][0]["rates"])
    print(table(["budget, ms", *policies, "scout / lru"], rows))
    low, high = PAPER_FACTOR
    print(f"The paper (CacheScout, arXiv 2608.14624): {low:g} to {high:g} times.")
else:
    print("not measured yet")
