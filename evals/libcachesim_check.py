"""``python -m evals.libcachesim_check TRACE…``: the lab beside an independent cache simulator.

libCacheSim (the ``libcachesim`` package, extra ``check``) knows blocks, not prefixes: the trace is
flattened to one request for each page. Its LRU, S3-FIFO and Bélády stand beside the lab's LRU (on
SGLang's cache, and as stack distances) and Bélády. What each pair shares, and where it must part:

* **LRU.** A call's pages are requested from root to end, then back, so that tails are the oldest.
  That is page for page the LRU of :mod:`scout_sglang.replay.stack`: both hit the same, exactly, at
  every capacity that holds the longest call. SGLang's own LRU (the lab's ``lru``) agrees exactly
  where its leaves are single pages and calls do not overlap. Else it parts: (1) it evicts a leaf
  as a whole, where one page would do; (2) running calls hold their pages and use them once more
  when they end, which costs memory but keeps what their session needs next: with long calls it can
  gain points; (3) a call needs room for its output and a spare page before it starts; (4) a call
  that cannot be admitted is dropped and its prompt not counted, where a block cache stores what it
  can.
* **Bélády.** Pages are requested from root to end, each with its next use. The lab's ``belady``
  parts by (2) to (4).
* **S3-FIFO.** Pages are requested from end to root, once. It does not keep prefixes whole; only
  hits in front of a call's first miss count.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from scout_sglang.replay import presets
from scout_sglang.replay.__main__ import load, parse_capacities
from scout_sglang.replay.command_line import DEFAULT_CAPACITIES
from scout_sglang.replay.describe import TraceFacts, describe
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.policies.oracle import NEVER, Oracle
from scout_sglang.replay.stack import stack_curve
from scout_sglang.replay.timing import Event, Timing, schedule

_LONGEST_PATH = 2**24
"""More pages than a call has: makes room between the times of two calls."""

Events = Callable[[], Iterator[Event]]


class Blocks(NamedTuple):
    """A trace as page numbers, call by call in order of arrival."""

    oracle: Oracle
    prompt_tokens: list[int]
    page_size: int


def blocks_of(events: Events, page_size: int) -> Blocks:
    """The schedule's calls without their overlap: each is over before the next arrives."""
    tokens = [len(event.job.prompt) for event in events() if event.starts]
    return Blocks(Oracle(events(), page_size), tokens, page_size)


def block_hit_rate(algorithm: str, blocks: Blocks, capacity: int, warmup_calls: int = 0) -> float:
    """Share of prompt tokens that libCacheSim's algorithm finds in ``capacity`` token slots.

    ``algorithm``: lru, s3-fifo or belady. Raises ImportError without the package.
    """
    import libcachesim

    make, requests = {
        "lru": (libcachesim.LRU, _there_and_back),
        "s3-fifo": (libcachesim.S3FIFO, _back),
        "belady": (libcachesim.Belady, _there),
    }[algorithm]
    cache = make(capacity // blocks.page_size, hashpower=18)
    request = libcachesim.Request()
    request.obj_size = 1
    hit_pages = 0
    for number in range(len(blocks.prompt_tokens)):
        found = requests(cache, request, blocks, number)
        usable = blocks.oracle.usable_pages[number]
        if number >= warmup_calls:
            hit_pages += next((place for place in range(usable) if not found[place]), usable)
    return hit_pages * blocks.page_size / sum(blocks.prompt_tokens[warmup_calls:])


def _there(cache: Any, request: Any, blocks: Blocks, number: int) -> list[bool]:
    path = blocks.oracle.paths[number]
    coming = blocks.oracle.next_use(path, number)
    # Within its next call the end of a path is used later than the root.
    coming = np.where(coming == NEVER, NEVER, coming * _LONGEST_PATH + np.arange(len(path)))
    found: list[bool] = []
    for page, next_use in zip(path.tolist(), coming.tolist(), strict=True):
        request.obj_id, request.next_access_vtime = page, next_use
        found.append(cache.get(request))
    return found


def _back(cache: Any, request: Any, blocks: Blocks, number: int) -> list[bool]:
    found = []
    for page in reversed(blocks.oracle.paths[number].tolist()):
        request.obj_id = page
        found.append(cache.get(request))
    return found[::-1]


def _there_and_back(cache: Any, request: Any, blocks: Blocks, number: int) -> list[bool]:
    found = []
    for page in blocks.oracle.paths[number].tolist():
        request.obj_id = page
        found.append(cache.get(request))
    _back(cache, request, blocks, number)
    return found


def rows(source: str, capacity: str | None, page_size: int, seed: int) -> Iterator[list[str]]:
    """One row for each capacity: the hit rates in percent."""
    trace = load(source, None, Options())
    timing, sizes = presets.preset_for(source) or (Timing(), None)
    events = functools.partial(schedule, trace, timing, seed)
    facts = describe(events, page_size)
    warmup = int(0.15 * facts.calls)
    blocks = blocks_of(events, page_size)
    curve = stack_curve(events(), page_size, warmup)
    default = ",".join(map(str, sizes)) if sizes else DEFAULT_CAPACITIES
    lab = functools.partial(_lab, facts, events, page_size, seed, warmup)
    for tokens in parse_capacities(capacity or default, facts.footprint, page_size):
        rates = [
            lab("lru", tokens),
            curve.hit_rate(tokens),
            block_hit_rate("lru", blocks, tokens, warmup),
            block_hit_rate("s3-fifo", blocks, tokens, warmup),
            lab("belady", tokens),
            block_hit_rate("belady", blocks, tokens, warmup),
        ]
        yield [source.rsplit("/")[-1], f"{tokens:,}", *[f"{100 * rate:.2f}" for rate in rates]]


def _lab(
    facts: TraceFacts,
    events: Events,
    page_size: int,
    seed: int,
    warmup: int,
    policy: str,
    capacity: int,
) -> float:
    longest = facts.longest + page_size
    setting = Setting(policy, capacity, page_size, longest, facts.footprint, events)
    result = Result(policy, capacity, page_size, seed)
    return replay(build(setting), events(), result, warmup).hit_rate


def main() -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.libcachesim_check")
    cli.add_argument("traces", nargs="+", metavar="TRACE", help="a file, or synthetic:NAME")
    cli.add_argument("--capacity", help="tokens or percent of the trace's footprint, by comma")
    cli.add_argument("--page-size", type=int, default=16)
    cli.add_argument("--seed", type=int, default=0)
    args = cli.parse_args()
    print("| trace | capacity | lru | lru, stack | lru* | s3-fifo* | belady | belady* |")
    print("|" + "---|" * 8)
    for source in args.traces:
        for row in rows(source, args.capacity, args.page_size, args.seed):
            print("| " + " | ".join(row) + " |", flush=True)
    print("\n*: libCacheSim on the flattened trace. Share of prompt tokens found cached, percent.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
