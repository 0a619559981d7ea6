"""A request as SGLang's cache sees one."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from sglang.srt.managers.schedule_batch import ReqKvInfo

from scout_sglang.replay.trace import Tokens
from scout_sglang.tokens import token_array


class LabRequest:
    """The fields of SGLang's ``Req`` that matching, admission and check-pointing read.

    A real ``Req`` drags sampling, detokenising and multimodal state along; this one carries what
    ``match_kv_cache``, ``UnifiedRadixCache`` and the plugin's hooks use, under the same names.
    """

    session = None
    priority = None
    kv_hints = None
    lora_id = None
    kv_rotation_base = None
    skip_radix_cache_insert = False
    mamba_branching_seqlen = None

    def __init__(
        self,
        rid: str,
        prompt: Tokens,
        extra_key: str | None = None,
        cache_salt: str | None = None,
    ):
        self.rid = rid
        self.origin_input_ids = token_array(prompt)
        self.output_ids = array("q")
        self.full_untruncated_fill_ids = self.origin_input_ids
        self.session_id: str | None = None
        self.extra_key = extra_key
        self.cache_salt = cache_salt
        self.routing_key: str | None = None
        self.sampling_params: Any = SimpleNamespace(custom_params=None)
        self.kv = ReqKvInfo()
        self.cached_tokens = 0
        self.cached_tokens_host = 0
        self.lock: Any = None
        self.last_node: Any = None
        self.prefix_len = 0
        self.extend_end = 0
        self.finished_reason: str | None = None

    def __repr__(self) -> str:
        """Alike on all ranks: SGLang's consensus checker compares what calls were given."""
        return f"LabRequest(rid={self.rid!r})"

    def finished(self) -> bool:
        return self.finished_reason is not None

    def finish(self, output: Tokens) -> None:
        """The request has generated ``output``; its fill ids now end with it."""
        self.output_ids = token_array(output)
        self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids
        self.finished_reason = "length"

    def _compute_max_prefix_len(self, input_len: int) -> int:
        # SGLang always computes at least the last prompt token, for its logits.
        return max(input_len - 1, 0)
