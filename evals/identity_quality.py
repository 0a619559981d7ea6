"""How well agents and sessions are inferred from token ids alone, without any id.

    python -m evals.identity_quality [FOLDER] [--live 8 32] [--seeds 2] [--detail]

Replays recorded multi-agent runs (``*.jsonl.zst``) and synthetic mixes through
``radix_policy.identity`` with several sessions interleaved, and compares with the truth. Of the
calls that are not their session's first: *right*, in the same session as the call before; *wrong*,
in another's; *missed*, cut off from it. *joined*: sessions whose first call was put into another.
V: V-measure of inferred against true agents over the last three quarters of the calls.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evals.mixes import MIXES
from evals.recorded import RecordedCall, load
from radix_policy.call import Call
from radix_policy.config import IdentityConfig
from radix_policy.identity import Identity

Session = list[RecordedCall]


class Quality(NamedTuple):
    right: float
    wrong: float
    missed: float
    joined: float
    v: float
    agents: int
    agents_true: int


def interleave(sessions: list[Session], live: int, seed: int) -> Iterator[tuple[int, RecordedCall]]:
    """Calls of ``live`` sessions at a time in random order; an ended session makes room."""
    rng = random.Random(seed)
    waiting = list(enumerate(sessions))[::-1]
    active: list[tuple[int, Iterator[RecordedCall]]] = []
    while waiting or active:
        while waiting and len(active) < live:
            number, calls = waiting.pop()
            active.append((number, iter(calls)))
        slot = rng.randrange(len(active))
        number, remaining = active[slot]
        call = next(remaining, None)
        if call is None:
            del active[slot]
        else:
            yield number, call


class Observer:
    """Puts calls through ``radix_policy.identity`` and compares with the truth.

    ``pairs``: how often each true agent got each inferred one; ``sessions``: likewise for sessions,
    by what they were taken for when the call arrived.
    """

    def __init__(self, labels: bool = False, config: IdentityConfig | None = None) -> None:
        self.pairs: Counter[tuple[str, int]] = Counter()
        self.sessions: Counter[tuple[int, int]] = Counter()
        self._identity = Identity(config or IdentityConfig())
        self._labels = labels
        self._last: dict[int, int] = {}
        self._owner: dict[int, int] = {}
        self._running: dict[int, tuple[int, int, RecordedCall]] = {}
        self._outcome: Counter[str] = Counter()

    def arrive(self, true: int, call: RecordedCall, now: int, *, agent_counts: bool = True) -> None:
        """Session ``true`` makes its next call; dispatch number ``now``."""
        label = str(true) if self._labels else None
        who = self._identity.identify(Call(call.prompt, session=label), now)
        if who.new_session:
            self._owner[who.session] = true
        if true not in self._last:
            self._outcome["first"] += 1
            self._outcome["joined"] += self._owner[who.session] != true
        elif who.session == self._identity.root(self._last[true]):
            self._outcome["right"] += 1
        elif self._owner[who.session] == true:
            self._outcome["missed"] += 1
        else:
            self._outcome["wrong"] += 1
        self._last[true] = who.session
        self._running[true] = (who.session, who.agent, call)
        self.sessions[true, who.session] += 1
        if agent_counts:
            self.pairs[call.agent, who.agent] += 1

    def finish(self, true: int, now: int) -> None:
        """The call of session ``true`` ends."""
        session, agent, call = self._running.pop(true)
        whole = np.concatenate([call.prompt, call.output])
        self._identity.finish(session, agent, whole, len(call.prompt), now)

    def quality(self) -> Quality:
        """The figures so far."""
        outcome = self._outcome
        later = max(1, outcome["right"] + outcome["wrong"] + outcome["missed"])
        return Quality(
            outcome["right"] / later,
            outcome["wrong"] / later,
            outcome["missed"] / later,
            outcome["joined"] / max(1, outcome["first"]),
            v_measure(self.pairs),
            len({a for _, a in self.pairs}),
            len({a for a, _ in self.pairs}),
        )


def measure(
    sessions: list[Session],
    live: int,
    seed: int = 0,
    labels: bool = False,
    config: IdentityConfig | None = None,
) -> tuple[Quality, Counter[tuple[str, int]]]:
    """Quality over one replay, and how often each true agent got each inferred one.

    A call ends when its session makes the next one or up to three dispatches later, so that calls
    of others come between.
    """
    observer = Observer(labels, config)
    rng = random.Random(seed + 1)
    total = sum(len(s) for s in sessions)
    due: dict[int, int] = {}
    for now, (true, call) in enumerate(interleave(sessions, live, seed), 1):
        for other in [s for s, end in due.items() if end <= now or s == true]:
            observer.finish(other, now)
            del due[other]
        observer.arrive(true, call, now, agent_counts=now > total // 4)
        due[true] = now + 1 + rng.randrange(3)
    return observer.quality(), observer.pairs


def v_measure(pairs: Counter[tuple[str, int]]) -> float:
    """Harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg, 2007)."""
    true: Counter[str] = Counter()
    found: Counter[int] = Counter()
    for (a, b), n in pairs.items():
        true[a] += n
        found[b] += n
    total = sum(pairs.values())

    def entropy(counts: Counter) -> float:
        return -sum(n / total * log(n / total) for n in counts.values())

    joint = -sum(n / total * log(n / total) for n in pairs.values())
    h_true, h_found = entropy(true), entropy(found)
    homogeneity = 1.0 if h_true == 0 else 1 - (joint - h_found) / h_true
    completeness = 1.0 if h_found == 0 else 1 - (joint - h_true) / h_found
    if homogeneity + completeness == 0:
        return 0.0
    return 2 * homogeneity * completeness / (homogeneity + completeness)


def _recorded(path: Path, seed: int) -> list[Session]:
    sessions = load(path)
    random.Random(seed).shuffle(sessions)
    return sessions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default="../shared/traces", type=Path)
    parser.add_argument("--live", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="only sets whose name contains this")
    parser.add_argument("--labels", action="store_true", help="send session ids")
    parser.add_argument("--detail", action="store_true", help="print true against inferred agents")
    args = parser.parse_args()
    print(f"{'set':<20}{'live':>5}{'right':>8}{'wrong':>8}{'missed':>8}{'joined':>8}"
          f"{'V':>7}{'agents':>8}{'true':>6}")  # fmt: skip
    sets: dict[str, Callable[[int], list[Session]]] = {
        path.name.removesuffix(".jsonl.zst"): partial(_recorded, path)
        for path in sorted(args.folder.glob("*.jsonl.zst"))
    }
    for name, make in (sets | MIXES).items():
        if args.only not in name:
            continue
        for live in args.live:
            runs = [measure(make(s), live, s, args.labels) for s in range(args.seeds)]
            mean = [sum(column) / len(runs) for column in zip(*(q for q, _ in runs), strict=True)]
            q = Quality(*mean)
            print(f"{name:<20}{live:>5}{q.right:>8.1%}{q.wrong:>8.1%}{q.missed:>8.1%}"
                  f"{q.joined:>8.1%}{q.v:>7.3f}{q.agents:>8.0f}{q.agents_true:>6.0f}")  # fmt: skip
            if args.detail:
                for (true, found), n in sorted(runs[0][1].items(), key=lambda x: -x[1])[:60]:
                    print(f"    {true:>6} -> {found:<6}{n:>6}")


if __name__ == "__main__":
    main()
