"""How large a cache the workload needs, and what the best cache could do with it.

Prompts are looked at as paths in a trie of single tokens (page size 1), which is what a radix
cache shares. Nothing here runs a model.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Prompt = Sequence[int]


def as_paths(prompts: Sequence[Prompt]) -> list[list[int]]:
    """Name every distinct prefix by a number: prompts[k][:i+1] has the number paths[k][i]."""
    names: dict[tuple[int, int], int] = {}
    paths = []
    for prompt in prompts:
        parent, path = -1, []
        for token in prompt:
            parent = names.setdefault((parent, token), len(names))
            path.append(parent)
        paths.append(path)
    return paths


def working_set(paths: Sequence[Sequence[int]], sessions: Sequence[int]) -> int:
    """Peak over time of the tokens that live sessions could still reuse.

    At a call, that is every prefix which calls of several sessions have in common (the agents'
    system prompts), once it has been sent, plus all that the live sessions sent themselves. A
    session is live from its first to its last call.

    Args:
        paths: one path per call, as from :func:`as_paths`.
        sessions: the session of each call, same length.
    """
    shared = _shared(paths, sessions)
    last = {session: step for step, session in enumerate(sessions)}
    common: set[int] = set()
    own: dict[int, set[int]] = {}
    peak = 0
    for step, (path, session) in enumerate(zip(paths, sessions, strict=True)):
        common |= shared.intersection(path)
        own.setdefault(session, set()).update(set(path) - shared)
        peak = max(peak, len(common) + sum(map(len, own.values())))
        if last[session] == step:
            del own[session]
    return peak


def _shared(paths: Sequence[Sequence[int]], sessions: Sequence[int]) -> set[int]:
    owner: dict[int, int] = {}
    shared = set()
    for path, session in zip(paths, sessions, strict=True):
        for name in path:
            if owner.setdefault(name, session) != session:
                shared.add(name)
    return shared


def infinite_hits(paths: Sequence[Sequence[int]]) -> int:
    """Prompt tokens that a cache without limit would not compute again."""
    return sum(map(len, paths)) - len({name for path in paths for name in path})


def belady_hits(paths: Sequence[Sequence[int]], capacity: int) -> int:
    """Prompt tokens saved by a cache that knows the future and evicts single tokens.

    Evicts what is used again last (Bélády's rule). A prefix is used at least as soon as what
    follows it, so eviction trims tails by itself. An upper bound for every policy.
    """
    later = _next_uses(paths)
    held: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    hits = 0
    for step, path in enumerate(paths):
        hits += sum(name in held for name in path)
        for name, use in zip(path, later[step], strict=True):
            held[name] = use
            heapq.heappush(farthest, (-use, -name))
        while len(held) > capacity:
            use, name = heapq.heappop(farthest)
            if held.get(-name) == -use:
                del held[-name]
    return hits


def _next_uses(paths: Sequence[Sequence[int]]) -> list[list[int]]:
    upcoming: dict[int, int] = {}
    later: list[list[int]] = []
    for step in range(len(paths) - 1, -1, -1):
        later.append([upcoming.get(name, len(paths)) for name in paths[step]])
        upcoming.update(dict.fromkeys(paths[step], step))
    return later[::-1]
