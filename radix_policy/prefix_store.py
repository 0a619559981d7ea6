"""What calls begin with: token ids as they were observed, for warm-ups to prefill again.

Two kinds: the anchor of an agent, and the last prompt of an agent in a session, which its next call
there will most likely go on from. Each belongs to one tenant, so that a warm-up can only run in the
namespace that the ids came from. Rendering a template anew would not give the same ids.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from radix_policy.call import Tokens
from radix_policy.tags import SHARED


class Prefix(NamedTuple):
    """Token ids that calls of an agent begin with, shape (n,), not to be written to.

    ``session``: SHARED for an anchor. ``number``: the dispatch that had this prompt, 0 for an
    anchor. ``anchor``: how many of the tokens are the agent's anchor.
    """

    tenant: int
    agent: int
    session: int
    number: int
    anchor: int
    tokens: Tokens


Key = tuple[int, int, int]


class PrefixStore:
    """At most ``most`` tokens; what was not seen for longest gives way.

    ``tokens``: held now. ``version``: grows whenever a prefix comes, changes or goes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tokens = 0
        self.version = 0
        self._prefixes: OrderedDict[Key, Prefix] = OrderedDict()
        self._names: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def __iter__(self) -> Iterator[Prefix]:
        """The longest unseen first."""
        return iter(self._prefixes.values())

    def anchor(self, tenant: int, agent: int) -> Tokens | None:
        """The agent's anchor, None if it is not kept."""
        found = self._prefixes.get((tenant, agent, SHARED))
        return None if found is None else found.tokens

    def put_anchor(self, tenant: int, agent: int, tokens: Tokens, name: int | None = None) -> None:
        """The agent's anchor as just observed.

        O(n), but for a known one whose ``name``, a hash of the tokens, is given each time.
        """
        key = tenant, agent, SHARED
        known = self._prefixes.get(key)
        if known is not None:
            named = name is not None and self._names.get(key) == name
            if named or known.tokens.tobytes() == tokens.tobytes():
                self._prefixes.move_to_end(key)
                return
        self._put(Prefix(tenant, agent, SHARED, 0, len(tokens), tokens))
        if name is not None and key in self._prefixes:
            self._names[key] = name

    def put(self, prefix: Prefix) -> None:
        """The prompt of a session's call, in place of the agent's one before."""
        self._put(prefix)

    def forget_tenant(self, tenant: int) -> None:
        """The namespace is forgotten, and its prompts with it."""
        for key in [key for key in self._prefixes if key[0] == tenant]:
            self._drop(key)

    def bytes(self) -> int:
        """Memory held."""
        return 4 * self.tokens + 300 * len(self._prefixes)

    def _put(self, prefix: Prefix) -> None:
        key = prefix.tenant, prefix.agent, prefix.session
        self._drop(key)
        if not 0 < len(prefix.tokens) <= self.most:
            return
        self._prefixes[key] = prefix._replace(tokens=np.array(prefix.tokens, dtype=np.int32))
        self.tokens += len(prefix.tokens)
        self.version += 1
        while self.tokens > self.most:
            self._drop(next(iter(self._prefixes)))

    def _drop(self, key: Key) -> None:
        gone = self._prefixes.pop(key, None)
        self._names.pop(key, None)
        if gone is not None:
            self.tokens -= len(gone.tokens)
            self.version += 1
