"""What a mistaken session link costs: replays without ids, a share of the links put wrong.

    python -m evals.corrupted_links [TRACE] [--capacity N,...] [--share 0.05] [--seeds 3]
                                    [--json FILE]

Sessions are inferred from token ids. Of the calls that were linked to a session, a random share
goes elsewhere: *wrong*, to another session that was seen lately, or *missed*, to a new one. A
mistake is made once, the calls that follow being linked as if it had not been; or it *spreads*:
what the call says is remembered under the session it was put into, and the calls that continue it
go there as well. Shown in points of hit rate against the same replay with no link touched.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from radix_policy import identity
from radix_policy.hashing import Hashes
from radix_policy.sessions import Link, SessionLinker
from scout_sglang.replay.__main__ import load
from scout_sglang.replay.describe import describe
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.presets import preset_for
from scout_sglang.replay.timing import Timing, schedule

KINDS = ("wrong", "missed", "wrong, spreads", "missed, spreads")
RECENT = 32


class CorruptedLinker(SessionLinker):
    """A linker of which a ``share`` of the links is put wrong, drawn from ``rng``.

    ``corrupted`` and ``linked`` count what was; ``kind`` is one of KINDS.
    """

    corrupted = 0
    linked = 0

    def __init__(
        self,
        max_sessions: int,
        forgotten: Callable[[int], None],
        share: float,
        kind: str,
        rng: random.Random,
    ) -> None:
        super().__init__(max_sessions, forgotten)
        self._share, self._kind, self._rng = share, kind, rng
        self._meant: dict[int, int] = {}

    def link(self, H: Hashes, shared: int, agent: int, now: int, key: str | None = None) -> Link:
        link = super().link(H, shared, agent, now, key)
        if link.new:
            return link
        self.linked += 1
        if self._rng.random() >= self._share:
            return link
        # The last to be seen come last; a wrong link is one to a session that is about.
        others = [s for s in list(self._sessions)[-RECENT:] if s != link.session]
        missed = self._kind.startswith("missed")
        if not missed and not others:
            return link
        self.corrupted += 1
        if not self._kind.endswith("spreads"):
            self._meant[int(H[-1])] = link.session
        session = self.create(now) if missed else self._rng.choice(others)
        return Link(session, missed, link.merged)

    def finish(self, H: Hashes, prompt: int, session: int) -> None:
        super().finish(H, prompt, self.root(self._meant.pop(int(H[prompt]), session)))


@contextmanager
def corrupted(share: float, kind: str, seed: int) -> Iterator[list[CorruptedLinker]]:
    """While it lasts every new namespace links sessions wrongly; gives the linkers made so far."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    rng, made = random.Random(seed), list[CorruptedLinker]()

    def make(max_sessions: int, forgotten: Callable[[int], None]) -> SessionLinker:
        made.append(CorruptedLinker(max_sessions, forgotten, share, kind, rng))
        return made[-1]

    original = identity.SessionLinker
    identity.SessionLinker = make  # type: ignore[assignment,misc]
    try:
        yield made
    finally:
        identity.SessionLinker = original  # type: ignore[misc]


class Bench:
    """Replays of one trace without ids."""

    def __init__(self, source: str, page_size: int = 16, warmup: float = 0.15) -> None:
        self.trace = load(source, None, Options())
        self.timing, self.capacities = preset_for(source) or (Timing(), ())
        self.page_size = page_size
        self.facts = describe(lambda: schedule(self.trace, self.timing, 0), page_size)
        self.warmup = int(warmup * self.facts.calls)

    def hit_rate(self, policy: str, capacity: int, seed: int) -> float:
        """Percent of prompt tokens found cached."""
        setting = Setting(
            policy=policy,
            capacity=capacity,
            page_size=self.page_size,
            max_tokens=self.facts.longest + self.page_size,
            footprint=self.facts.footprint,
            events=lambda: schedule(self.trace, self.timing, seed),
            ids=False,
        )
        result = Result(policy, capacity, self.page_size, seed)
        return 100 * replay(build(setting), setting.events(), result, self.warmup).hit_rate

    def corrupted_rate(
        self, capacity: int, seed: int, share: float, kind: str
    ) -> tuple[float, float]:
        """Percent of prompt tokens found cached, and the share of links that were put wrong."""
        with corrupted(share, kind, seed) as linkers:
            rate = self.hit_rate("scout", capacity, seed)
        linked = sum(linker.linked for linker in linkers)
        return rate, sum(linker.corrupted for linker in linkers) / max(linked, 1)


def run(bench: Bench, capacity: int, seed: int, share: float) -> list[dict[str, Any]]:
    """A row for each kind of mistake: hit rates in percent, the cost in points."""
    lru = bench.hit_rate("lru", capacity, seed)
    clean = bench.hit_rate("scout", capacity, seed)
    rows = []
    for kind in KINDS:
        rate, links = bench.corrupted_rate(capacity, seed, share, kind)
        where = {"capacity": capacity, "seed": seed, "kind": kind, "links": links}
        rows.append(where | {"lru": lru, "clean": clean, "scout": rate, "cost": clean - rate})
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    print(f"{'capacity':>9}  {'mistake':<16}{'links':>7}{'lru %':>8}{'clean %':>9}{'scout %':>9}"
          f"{'cost':>7}  by seed")  # fmt: skip
    for capacity, kind in dict.fromkeys((row["capacity"], row["kind"]) for row in rows):
        of = [row for row in rows if (row["capacity"], row["kind"]) == (capacity, kind)]
        links, lru, clean, scout, cost = (
            sum(row[name] for row in of) / len(of)
            for name in ("links", "lru", "clean", "scout", "cost")
        )
        costs = " ".join(f"{row['cost']:+.2f}" for row in of)
        print(f"{capacity:>9,}  {kind:<16}{links:>7.1%}{lru:>8.1f}{clean:>9.1f}{scout:>9.1f}"
              f"{cost:>+7.2f}  {costs}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", nargs="?", default="synthetic:mix24")
    parser.add_argument("--capacity", help="tokens, by comma; default: those of the trace's preset")
    parser.add_argument("--share", type=float, default=0.05, help="of the links put wrong")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    bench = Bench(args.trace)
    capacities = [int(c) for c in args.capacity.split(",")] if args.capacity else bench.capacities
    if not capacities:
        parser.error("--capacity: the trace has no preset, name the tokens")
    rows = [
        row
        for capacity in capacities
        for seed in range(args.seeds)
        for row in run(bench, capacity, seed, args.share)
    ]
    show(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
