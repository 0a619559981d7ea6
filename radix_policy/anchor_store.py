"""The anchors themselves: token ids as they were observed, for warm-ups to prefill again.

Kept by (tenant, agent), so that a warm-up can only ever run in the namespace that the ids came
from. Rendering a template anew would not give the same ids.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from radix_policy.call import Tokens


class AnchorStore:
    """At most ``most`` tokens of anchors; the agent not seen for longest gives way.

    ``tokens``: held now. ``version``: grows whenever an anchor comes, changes or goes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tokens = 0
        self.version = 0
        self._anchors: OrderedDict[tuple[int, int], Tokens] = OrderedDict()

    def __len__(self) -> int:
        return len(self._anchors)

    def __iter__(self) -> Iterator[tuple[int, int, Tokens]]:
        """(tenant, agent, token ids), the longest unseen first."""
        for (tenant, agent), tokens in self._anchors.items():
            yield tenant, agent, tokens

    def get(self, tenant: int, agent: int) -> Tokens | None:
        """The anchor's token ids, shape (n,), not to be written to; None if it is not kept."""
        return self._anchors.get((tenant, agent))

    def put(self, tenant: int, agent: int, tokens: Tokens) -> None:
        """The agent's anchor as just observed. O(n)."""
        key = tenant, agent
        known = self._anchors.get(key)
        if known is not None and np.array_equal(known, tokens):
            self._anchors.move_to_end(key)
            return
        self._drop(key)
        if not 0 < len(tokens) <= self.most:
            return
        self._anchors[key] = np.array(tokens, dtype=np.int32)
        self.tokens += len(tokens)
        self.version += 1
        while self.tokens > self.most:
            self._drop(next(iter(self._anchors)))

    def forget_tenant(self, tenant: int) -> None:
        """The namespace is forgotten, and its prompts with it."""
        for key in [key for key in self._anchors if key[0] == tenant]:
            self._drop(key)

    def bytes(self) -> int:
        """Memory held."""
        return 4 * self.tokens + 200 * len(self._anchors)

    def _drop(self, key: tuple[int, int]) -> None:
        gone = self._anchors.pop(key, None)
        if gone is not None:
            self.tokens -= len(gone)
            self.version += 1
