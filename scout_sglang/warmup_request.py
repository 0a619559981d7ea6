"""A warm-up as a request of its own, and the hooks that keep it out of everybody's sight.

Every rank knows one by its class, which no client can send: what comes from a client is decoded
as SGLang's own types. It asks for no output token: SGLang then only prefills, and keeps the KV.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.observability.req_time_stats import APIServerReqTimeStats
from sglang.srt.sampling.sampling_params import SamplingParams

from radix_policy.call import Namespace
from radix_policy.prefix_store import Prefix
from scout_sglang.faults import guarded
from scout_sglang.tokens import token_array

RID = "scout-warmup-"


class WarmupReq(TokenizedGenerateReqInput, kw_only=True):  # type: ignore[call-arg]
    """A piece on its way to all ranks.

    ``piece``: the ``radix_policy.prefix_store.Prefix`` that it is, without the tokens.
    """

    piece: tuple[int, ...] = ()


def request(prefix: Prefix, namespace: Namespace, number: int) -> WarmupReq:
    """The request that prefills ``prefix``."""
    extra_key, salt, lora_id = (*namespace, None, None, None)[:3]
    if lora_id is not None and extra_key is not None:
        extra_key = extra_key.removesuffix(lora_id)  # SGLang appends it again
    sampling = SamplingParams(max_new_tokens=0, temperature=0.0, ignore_eos=True)
    sampling.normalize(None)
    made = WarmupReq(
        rid=f"{RID}{number}",
        input_text="",
        input_ids=token_array(prefix.tokens),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=sampling,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
        lora_id=lora_id,
        extra_key=extra_key or None,
        cache_salt=salt,
        no_logs=True,
        time_stats=APIServerReqTimeStats(),
        piece=prefix[:-1],
    )
    made.wrap_pickle_fields()
    return made


def piece_of(req: Any) -> tuple[int, ...] | None:
    """What a request in the scheduler warms up, None if it is a client's."""
    return getattr(req, "scout_piece", None)


def on_create(
    create: Callable[..., Any], scheduler: Any, recv_req: Any, *args: Any, **kwargs: Any
) -> Any:
    """AROUND Scheduler._create_generation_req: a warm-up is marked, and is no client's metric."""
    if not isinstance(recv_req, WarmupReq):
        return create(scheduler, recv_req, *args, **kwargs)
    kwargs["metrics_collector"] = None
    req = create(scheduler, recv_req, *args, **kwargs)
    req.scout_piece = recv_req.piece
    return req


@guarded("warmup", fallback=lambda reqs: reqs)
def _of_clients(reqs: Any) -> Any:
    return reqs if all(piece_of(r) is None for r in reqs) else [
        r for r in reqs if piece_of(r) is None
    ]  # fmt: skip


def on_stream(
    stream: Callable[..., Any], streamer: Any, reqs: Any, *args: Any, **kwargs: Any
) -> Any:
    """AROUND SchedulerOutputStreamer.stream_output: nobody waits for a warm-up's output."""
    seen = _of_clients(reqs)
    if seen or not reqs:
        return stream(streamer, seen, *args, **kwargs)
    return None


def on_abort_output(send: Callable[..., Any], scheduler: Any, abort_req: Any, req: Any) -> Any:
    """AROUND Scheduler.send_abort_output: nor for its abort."""
    return None if piece_of(req) is not None else send(scheduler, abort_req, req)


def on_prefill_stats(
    report: Callable[..., Any], reporter: Any, batch: Any, *args: Any, **kwargs: Any
) -> Any:
    """AROUND SchedulerMetricsReporter.report_prefill_stats: hit rate and queue are the clients'."""
    if batch is not None and batch.reqs and not _of_clients(batch.reqs):
        return None
    return report(reporter, batch, *args, **kwargs)
