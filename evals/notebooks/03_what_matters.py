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
# # What matters
#
# scout has parts and constants. Which of them carry the gain, and how carefully must the constants
# be chosen? Each variant below replays the same schedules as the default and differs from it in one
# thing. CacheScout (arXiv 2608.14624) publishes its gain of +10 to +18 points without an ablation
# and without its constants, so there is nothing of the paper's to put beside single rows.

# %%
from statistics import fmean

from matplotlib import pyplot as plt

from evals.notebook import gains, pick, rate, recorded, replays, start, table
from radix_policy.config import ScoutConfig

start()
SESSIONS = pick(10, 40, 400)
MOST_RECORDED = pick(4, 20, None)
SEEDS = pick("0", "0", "0,1,2")
PANEL = {
    name: (f"synthetic:{name}?sessions={SESSIONS}", capacity, None)
    for name, capacity in pick(
        [("selector", 8000)],
        [("selector", 6500), ("mix24", 12000), ("chat", 12000)],
        [("selector", 6500), ("debate", 6500), ("mix24", 8000), ("chat", 12000)],
    )
}
PANEL |= {
    name: (recorded()[name], capacity, MOST_RECORDED)
    for name, capacity in pick(
        [], [("virtual_lab", 60000)], [("virtual_lab", 60000), ("taubench_airline", 40000)]
    )
    if name in recorded()
}


def replay_cell(name, policies, **options):
    """One workload of the panel."""
    source, capacity, most = PANEL[name]
    return replays(source, policies, capacity=capacity, max_sessions=most, seed=SEEDS, **options)


def scout_gains(policy="scout", **options):
    """Points over lru by workload of the panel, means over seeds."""
    return {
        name: rate(replay_cell(name, [policy], **options), policy) - rate(base[name], "lru")
        for name in PANEL
    }


# %% [markdown]
# ## The room there is

# %%
base = {name: replay_cell(name, ["lru", "belady"]) for name in PANEL}
room = {name: fmean(gains(base[name], "belady")) for name in PANEL}
default = scout_gains()
rows = [
    (
        name,
        f"{PANEL[name][1]:,}",
        f"{rate(base[name], 'lru'):.1f}",
        f"{rate(base[name], 'belady'):.1f}",
        f"{default[name]:+.1f}",
    )
    for name in PANEL
]
print(table(("workload", "tokens", "lru %", "bound %", "scout over lru"), rows))

# %% [markdown]
# ## One part less
#
# * *no prediction*: the same formula, every agent as likely next as it is frequent;
# * *no guard*: nothing leads back to LRU when LRU does better;
# * *whole leaves*: a leaf goes as a whole, as in stock SGLang, instead of the tail that is needed;
# * *no ids*: the client names neither session nor agent, all is inferred from token ids;
# * *ends told*: the client marks a session's last call.
#
# For comparison the paper's rule: *cachescout* per session and as literally published, and *anchors
# protected*, which is cachescout without prediction.

# %%
PARTS = {
    "no prediction": lambda: scout_gains("no-prediction"),
    "no guard": lambda: scout_gains(config={"scout": {"guard": False}}),
    "whole leaves": lambda: scout_gains(config={"scout": {"trim": False}}),
    "no ids": lambda: scout_gains(no_ids=True),
    "ends told": lambda: scout_gains(end_labels=True),
    "cachescout": lambda: scout_gains("cachescout"),
    "cachescout, literal": lambda: scout_gains(
        "cachescout", config={"cachescout": {"variant": "literal"}}
    ),
    "anchors protected": lambda: scout_gains("anchor-protect"),
}
parts = {"scout": default, **{name: run() for name, run in PARTS.items()}}


def mean_closed(found):
    """Mean share of the gap from lru to the bound, over the panel."""
    return 100 * fmean(found[name] / room[name] for name in found)


rows = [
    (name, *[f"{found[cell]:+.1f}" for cell in PANEL], f"{mean_closed(found):.0f} %")
    for name, found in parts.items()
]
print("points over lru, and the mean share of the gap to the bound")
print(table(("variant", *PANEL, "gap closed"), rows))

figure, axes = plt.subplots(figsize=(7, 3.6))
names = list(parts)
axes.barh(
    names, [mean_closed(parts[name]) for name in names], color=["C3", *["C0"] * (len(names) - 1)]
)
axes.axvline(0, color="0.4", linewidth=1)
axes.invert_yaxis()
axes.set_xlabel("share of the gap from lru to the bound (%), mean over the panel")
figure.tight_layout()

# %% [markdown]
# ## Every constant four-fold, either way
#
# Points of hit rate that change, against the default; one mark for each workload of the panel.
# Where a constant's range ends earlier, the range's end is taken.

# %%
CONSTANTS = pick(
    ["prior_weight"],
    [
        "prior_weight",
        "turn_prior",
        "reuse_prior",
        "gap_shrink",
        "rank_weight",
        "idle_factor",
        "refresh",
    ],
    [
        *("prior_weight", "turn_prior", "reuse_prior", "gap_shrink", "rank_weight"),
        *("idle_min", "idle_factor", "forget_factor", "refresh", "guard_rate"),
    ],
)
knobs = {f.name: f for f in ScoutConfig.__dataclass_fields__.values()}


def moved(name, factor):
    """The constant times ``factor``, within its range and of its kind."""
    knob = knobs[name]
    value = min(max(knob.default * factor, knob.metadata["low"]), knob.metadata["high"])
    return round(value) if isinstance(knob.default, int) else value


changes = {}
for name in CONSTANTS:
    for factor in (0.25, 4.0):
        found = scout_gains(config={"scout": {name: moved(name, factor)}})
        changes[name, factor] = [found[cell] - default[cell] for cell in PANEL]

rows = [
    (name, f"{knobs[name].default:g}", f"{moved(name, factor):g}", *[f"{d:+.2f}" for d in changed])
    for (name, factor), changed in changes.items()
]
print(table(("constant", "default", "moved to", *PANEL), rows))
print(f"\nlargest change either way: {max(abs(d) for c in changes.values() for d in c):.2f} points")

figure, axes = plt.subplots(figsize=(7, 0.8 + 0.4 * len(CONSTANTS)))
axes.axvline(0, color="0.4", linewidth=1)
for factor, colour, shift in ((0.25, "C0", -0.12), (4.0, "C1", 0.12)):
    for row, name in enumerate(CONSTANTS):
        axes.plot(
            changes[name, factor],
            [row + shift] * len(PANEL),
            "o",
            color=colour,
            label=(f"times {factor:g}" if row == 0 else None),
        )
axes.set_yticks(range(len(CONSTANTS)), CONSTANTS)
axes.invert_yaxis()
axes.set_xlabel("points of hit rate against the default")
axes.legend(fontsize=8)
figure.tight_layout()
