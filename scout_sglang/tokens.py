"""Token ids between the policy's arrays and SGLang's."""

from __future__ import annotations

from array import array

import numpy as np

from radix_policy.call import Tokens


def token_array(tokens: Tokens) -> array:
    """The ids as the 64-bit array that SGLang keys its tree with."""
    ids = array("q")
    ids.frombytes(np.asarray(tokens, dtype=np.int64).tobytes())
    return ids
