"""What to bring back into the cache while nothing runs: the start of one anchor, or nothing.

CacheScout's rule (arXiv 2608.14624, Eq. 10-11) picks the most likely next agent if who follows
whom is predictable enough. Ours adds what that leaves open: a warm-up has to save more than it
costs, must not push out anything worth more, and an agent whose warm-ups went unused has to wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from radix_policy.call import Namespace, Tokens
from radix_policy.config import IdentityConfig
from radix_policy.prefix_store import Prefix
from radix_policy.tags import SHARED, Tag

Whose = tuple[int, int, bool]
"""(tenant, agent, whether in a session of its own): anchors and histories wait apart."""
Worth = Callable[[Tag | None], float]

PROBED = 16
"""Agents whose residency is looked up for one plan."""
FORGIVEN = 2
"""Unused warm-ups in a row that have no consequence: chances are chances."""
BACK_OFF = 8
"""Dispatches that an agent waits after one more; doubled with each further one."""
_MOST_DOUBLINGS = 10
_REMEMBERED = 4096


def whose(prefix: Prefix) -> Whose:
    """Who has to wait if the prefix is brought back in vain."""
    return prefix.tenant, prefix.agent, prefix.session != SHARED


class Wanted(NamedTuple):
    """A prefix that may be worth bringing back.

    ``value``: the chance in [0, 1] that its last token is used before the cache turns over.
    ``kept``: the operator's keep-list names it.
    """

    prefix: Prefix
    namespace: Namespace
    value: float
    kept: bool = False

    @property
    def name(self) -> tuple[int, int, int]:
        """For a total order."""
        return self.prefix.tenant, self.prefix.agent, self.prefix.session


class WarmupPlan(NamedTuple):
    """Prefill a prefix from token ``start`` to token ``stop``; what is before is there.

    ``value``: what it is worth, more than anything that has to go for it.
    """

    prefix: Prefix
    namespace: Namespace
    start: int
    stop: int
    value: float

    @property
    def whose(self) -> Whose:
        """Who has to wait if it goes unused."""
        return whose(self.prefix)


class Room(Protocol):
    """The engine's memory as the planner sees it. Asking leaves no trace: no access, no lock."""

    @property
    def whole(self) -> bool:
        """Whether a leaf goes whole, however little is needed."""

    def resident(self, namespace: Namespace, tokens: Tokens) -> int:
        """How many of the first ``tokens`` are cached."""

    def free(self) -> int:
        """Tokens that fit without evicting anything."""

    def victims(self, worth: Worth) -> Iterator[tuple[float, int]]:
        """(value, tokens) of what would be evicted, in that order; ``worth`` values a tag."""


class WarmupPlanner:
    """Chooses among wanted prefixes. ``longest``: tokens of one prompt that the engine takes."""

    def __init__(self, config: IdentityConfig, page_size: int, longest: int) -> None:
        self.limit(config)
        self.page_size = page_size
        self.longest = longest
        self._misses: OrderedDict[Whose, tuple[int, int]] = OrderedDict()

    def limit(self, config: IdentityConfig) -> None:
        """Plan by what this configuration says that a token costs."""
        self._costs = (config.warmup_cost, config.warmup_history_cost)

    def plan(
        self, wanted: Iterable[Wanted], room: Room, clock: int, worth: Worth | None
    ) -> WarmupPlan | None:
        """The prefix with the greatest expected saving, value x missing tokens; kept ones first.

        Of one that does not fit beside what is worth as much, only the start is planned.
        ``worth`` values what has to go for it; without it only free memory is used. Ties go to
        the lowest tenant, agent and session. O(wanted log wanted), at most PROBED look-ups.
        """
        able = [w for w in wanted if w.value > self._cost(w) and not self.waits(w, clock)]
        able.sort(key=lambda w: (not w.kept, -w.value * len(w.prefix.tokens), w.name))
        lacking = []
        for w in able[:PROBED]:
            have = self._aligned(room.resident(w.namespace, w.prefix.tokens))
            end = self._aligned(min(len(w.prefix.tokens), self.longest))
            if have < end:
                lacking.append((not w.kept, -w.value * (end - have), w.name, have, end, w))
        if not lacking:
            return None
        most = max(end - have for *_, have, end, _ in lacking)
        space = _Space(room, most, worth)
        for *_, have, end, w in sorted(lacking, key=lambda entry: entry[:3]):
            fits = space.below(w.value - self._cost(w), end - have)
            stop = self._aligned(min(end, have + fits))
            if stop > have:
                return WarmupPlan(w.prefix, w.namespace, have, stop, w.value)
        return None

    def settled(self, who: Whose, used: bool, clock: int) -> None:
        """All that was prefilled for one of them has been used, or has gone unused."""
        misses, _ = self._misses.pop(who, (0, 0))
        if used:
            return
        wait = BACK_OFF << min(misses - FORGIVEN, _MOST_DOUBLINGS) if misses >= FORGIVEN else 0
        self._misses[who] = (misses + 1, clock + wait)
        if len(self._misses) > _REMEMBERED:
            self._misses.popitem(last=False)

    def waits(self, wanted: Wanted, clock: int) -> bool:
        """Whether the agent's last warm-ups were in vain and its time is not up."""
        _, until = self._misses.get(whose(wanted.prefix), (0, 0))
        return clock < until and not wanted.kept

    @property
    def waiting(self) -> int:
        """Agents with a warm-up in vain that has not been made good."""
        return len(self._misses)

    def _cost(self, wanted: Wanted) -> float:
        return self._costs[wanted.prefix.session != SHARED]

    def _aligned(self, tokens: int) -> int:
        return tokens // self.page_size * self.page_size


class _Space:
    """How much can be brought in below a given value, up to ``most`` tokens."""

    def __init__(self, room: Room, most: int, worth: Worth | None) -> None:
        self.free = room.free()
        self.whole = room.whole
        self.steps: list[tuple[float, int]] = []
        held, highest = self.free, 0.0
        if held >= most or worth is None:
            return
        for value, tokens in room.victims(worth):
            # Eviction may take what comes later in this order before it takes this.
            highest = max(highest, value)
            held += tokens
            self.steps.append((highest, held))
            if held >= most:
                return

    def below(self, value: float, most: int) -> int:
        """Tokens that fit beside what is worth ``value`` or more, as far as ``most`` are needed.

        Where leaves go whole, one goes only if all of its room is needed: or else two prefixes
        could push each other out for ever.
        """
        room = self.free
        for highest, held in self.steps:
            if highest >= value or (self.whole and held > most):
                break
            room = held
        return room


class PieceSize:
    """Tokens of a piece: as many as take about ``seconds``, since a call may have to wait for one.

    Whole pages, at most ``most`` tokens. Starts small, at most doubles or halves from one piece to
    the next.
    """

    START = 32
    LEAST = 16
    """Below this a piece takes no less time: what does not depend on its size prevails."""

    def __init__(self, page_size: int, most: int, seconds: float) -> None:
        self._page = page_size
        self._size = float(self.START)
        self.limit(most, seconds)

    def limit(self, most: int, seconds: float) -> None:
        """Other bounds from the next piece on."""
        self._most, self._seconds = most, seconds
        self._size = min(self._size, float(most))

    @property
    def tokens(self) -> int:
        """The next piece's."""
        return max(self._page, int(self._size) // self._page * self._page)

    def took(self, seconds: float) -> None:
        """The last piece, of full size, took so long."""
        factor = self._seconds / max(seconds, 1e-6)
        size = max(self.LEAST, self._size * min(2.0, max(0.5, factor)))
        self._size = min(float(self._most), size)


class Budget:
    """How much idle time and how many tokens warm-ups may take, on a clock that is handed in.

    ``share``: of idle seconds. ``per_minute``: tokens. Both can be saved up, for BURST idle
    seconds and for a minute.
    """

    BURST = 10.0

    def __init__(self, share: float, per_minute: float) -> None:
        self.share = share
        self.per_minute = per_minute
        self._seconds = self.BURST * share
        self._tokens = per_minute
        self._now: float | None = None

    def limit(self, share: float, per_minute: float) -> None:
        """Other limits from now on; what was saved up beyond them is lost."""
        self.share, self.per_minute = share, per_minute
        self._seconds = min(self._seconds, self.BURST * share)
        self._tokens = min(self._tokens, per_minute)

    def pass_time(self, now: float, idle: bool) -> None:
        """It is ``now`` (seconds, only ever growing), and has been idle or not since last told."""
        passed = 0.0 if self._now is None else max(0.0, now - self._now)
        self._now = now
        self._tokens = min(self.per_minute, self._tokens + passed * self.per_minute / 60)
        if idle:
            self._seconds = min(self.BURST * self.share, self._seconds + passed * self.share)

    def allows(self, tokens: int) -> bool:
        """Whether a piece of so many tokens may be sent."""
        return self._seconds > 0 and self._tokens >= tokens

    def spend(self, tokens: int, seconds: float) -> None:
        """A piece was sent and took so long."""
        self._tokens -= tokens
        self._seconds -= seconds
