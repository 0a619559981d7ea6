"""Pages of a token sequence as numbers that stand for the whole prefix up to their end."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np

from radix_policy.hashing import Hashes, prefix_hashes, rolling
from scout_sglang.replay.timing import Job
from scout_sglang.replay.trace import Namespace, Tokens


def page_hashes(tokens: Tokens, page_size: int, namespace: Namespace = (None, None)) -> Hashes:
    """One number for each full page, shape (n // page_size,): equal for equal prefixes only.

    Collisions are as likely as among random 64-bit numbers.
    """
    ends = np.arange(page_size, len(tokens) + 1, page_size, dtype=np.int64)
    return prefix_hashes(rolling(tokens), ends) ^ _namespace_number(namespace)


def cached_pages(job: Job, page_size: int) -> Hashes:
    """The pages that a call leaves behind: prompt and output, whose last token is not computed."""
    output = job.output
    kept = np.concatenate([job.prompt, output[: max(len(output) - 1, 0)]])
    return page_hashes(kept, page_size, job.call.namespace)


@lru_cache(maxsize=1024)
def _namespace_number(namespace: Namespace) -> np.uint64:
    if namespace == (None, None):
        return np.uint64(0)
    digest = blake2b(repr(namespace).encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
