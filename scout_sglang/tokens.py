"""Token ids between the policy's arrays and SGLang's."""

from __future__ import annotations

from array import array

import numpy as np

from radix_policy.call import Tokens

_FEW = 256
"""Tokens up to which numpy's calls cost more than they save."""


def token_array(tokens: Tokens) -> array:
    """The ids as the 64-bit array that SGLang keys its tree with."""
    ids = array("q")
    ids.frombytes(np.asarray(tokens, dtype=np.int64).tobytes())
    return ids


def packed(ids: array, start: int, end: int) -> bytes:
    """The ids from ``start`` to ``end`` of such an array, in four bytes each."""
    if end - start <= _FEW:
        return array("i", ids[start:end]).tobytes()
    return np.frombuffer(ids, dtype=np.int64)[start:end].astype(np.int32).tobytes()
