"""Pages of a token sequence as numbers that stand for the whole prefix up to their end."""

from __future__ import annotations

import numpy as np

from radix_policy.hashing import Hashes, prefix_hashes, rolling
from scout_sglang.replay.trace import Tokens


def page_hashes(tokens: Tokens, page_size: int) -> Hashes:
    """One number for each full page, shape (n // page_size,): equal for equal prefixes only.

    Collisions are as likely as among random 64-bit numbers.
    """
    ends = np.arange(page_size, len(tokens) + 1, page_size, dtype=np.int64)
    return prefix_hashes(rolling(tokens), ends)
