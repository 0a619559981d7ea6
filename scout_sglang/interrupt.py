"""Ctrl-C with a state file: what was learned is on disk before SGLang kills the ranks.

SIGTERM ends the ranks in order. SIGINT does not: SGLang's HTTP server stops and its ranks are
killed, and a terminal sends SIGINT to the ranks as well. So a rank that keeps a state file writes
it then, lives on, and is told to end as it is on SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from radix_policy.config import parse_config
from scout_sglang import plugin

PATIENCE_SECONDS = 15.0
_LEARNS = "radix_policy."


def keeps_state(server_args: Any) -> bool:
    """Whether a policy of ours serves, with a file for what it learns."""
    policy = plugin.active_policy()
    if policy is None:
        return False
    return parse_config(policy, server_args.radix_eviction_policy_config).state_path is not None


def survive(write: Callable[[], None], later: Callable[[], None]) -> None:
    """In a rank: SIGINT means to write, at once or, amid the policy's own work, at the next turn.

    Without effect outside of a process's main thread.
    """

    def on_interrupt(_: int, frame: FrameType | None) -> None:
        (later if learning(frame) else write)()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)


def learning(frame: FrameType | None) -> bool:
    """Whether this stack passes through the policy, which then may be half way to a new state."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_LEARNS):
            return True
        frame = frame.f_back
    return False


def end_ranks() -> None:
    """In the HTTP server's process, once that serves no more: end the ranks as SIGTERM does.

    Nothing happens if they are gone. Waits for them, ``PATIENCE_SECONDS`` at most.
    """
    from sglang.srt.entrypoints import http_server
    from sglang.srt.managers.io_struct import ShutdownReq, sock_send
    from sglang.srt.utils.cudacore_pyspy_dump_utils import collect_scheduler_processes

    state = http_server.get_global_state()
    manager = None if state is None else state.tokenizer_manager
    if manager is None or not collect_scheduler_processes():
        return
    import zmq

    print("scout: writing the state file", file=sys.stderr, flush=True)
    if manager._subprocess_watchdog is not None:
        manager._subprocess_watchdog.stop()
    # The event loop that this socket belonged to has ended.
    sock_send(zmq.Socket.shadow(manager.send_to_scheduler.underlying), ShutdownReq())
    deadline = time.monotonic() + PATIENCE_SECONDS
    while collect_scheduler_processes() and time.monotonic() < deadline:
        time.sleep(0.05)
