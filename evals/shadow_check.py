"""``python -m evals.shadow_check``: does the saving that shadow mode foretells come true?

The demo's calls go to a real server four times, word for word the same ones: in shadow mode, which
serves as lru and foretells; switched on, without and with the warm-up of prefixes in idle moments;
and under SGLang's own ``lru``. What is foretold is what ``GET /scout`` says under ``shadow`` of
these calls; what came true is how many prompt tokens fewer were computed than in shadow mode, by
the server's own ``usage``. All options of ``evals.demo`` but ``--policies`` are understood, and
``--out`` keeps what has been measured: the same command goes on where it ended. At the default
size seven minutes on two idle cores.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals import demo
from evals.app.client import Run, drive
from evals.app.footprint import as_paths, working_set
from evals.app.workload import Workload
from evals.server import Server

SERVED: dict[str, dict[str, Any] | None] = {
    "shadow": {"mode": "shadow"},
    "on": {"warmup": False},
    "on, warm-up": {},
    "lru": None,
}
"""What is served, in this order: the configuration of *scout*, None for SGLang's own lru."""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(words):
        print(__doc__)
    options = demo.parse(words)
    # An end from outside takes the same way out as Ctrl-C, so that no server stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = options.out / "shadow_check.json"
    kept = json.loads(out.read_text()) if out.exists() else {"runs": {}}
    workload, capacity = demo_workload(options)
    for name in SERVED:
        if name not in kept["runs"]:
            measured, requests = serve(name, workload, capacity, options, kept.get("requests"))
            kept["runs"][name] = measured
            kept.setdefault("requests", requests)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(kept) + "\n")
    print(json.dumps(summary(kept["runs"]), indent=1))
    return 0


def demo_workload(options: Namespace) -> tuple[Workload, int]:
    """The demo's workload, and the size of its cache in tokens."""
    workload = demo.workload_of(options)
    prompts = demo.dry_prompts(workload, demo.Tokenizer(options.model_path), options.max_tokens)
    needed = working_set(as_paths(prompts), [call.session for call in workload.calls])
    return workload, demo.cache_size(prompts, needed, options)


def serve(
    name: str, workload: Workload, capacity: int, options: Namespace, replay: Any
) -> tuple[dict[str, Any], list[Any]]:
    """The calls under one setting: what was counted, and the requests with the model's answers."""
    config = SERVED[name]
    args = demo.server_args("lru" if config is None else "scout", capacity, options)
    if config:
        args += ["--radix-eviction-policy-config", json.dumps(config)]
    log_path: Path = options.out / "logs" / f"shadow-check-{name.replace(', ', '-')}.log"
    with Server(args, log_path=log_path, port=options.port) as server:
        # The calls of the start are no part of the estimate.
        before = None if config is None else state_of(server.url)
        server.flush_cache()
        run = asyncio.run(drive(server.url, workload, demo.settings(options), replay=replay))
        measured: dict[str, Any] = counted(run)
        if before is not None:
            after = state_of(server.url)
            measured["warmup"] = after["warmup"]
            if after["shadow"] is not None:
                measured["foretold"] = foretold(before["shadow"], after["shadow"])
    print(f"{name}: {measured}", file=sys.stderr, flush=True)
    return measured, run.requests


def counted(run: Run) -> dict[str, Any]:
    """Tokens of the prompts, by the server's ``usage``."""
    prompt = sum(reply.prompt_tokens for reply in run.replies)
    cached = sum(reply.cached_tokens for reply in run.replies)
    return {"calls": len(run.replies), "prompt_tokens": prompt, "recomputed": prompt - cached}


def state_of(url: str) -> dict[str, Any]:
    """The first rank's part of ``GET /scout``."""
    with urllib.request.urlopen(url + "/scout", timeout=60) as answer:
        return json.load(answer)["ranks"][0]


def foretold(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What the shadow has counted between two looks at it."""
    names = ("calls", "prompt_tokens", "lru_hit_tokens", "saved_tokens")
    return {"sample": after["sample"], **{name: after[name] - before[name] for name in names}}


def summary(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Tokens computed under each setting, the saving foretold, and how far it was off."""
    base, promise = runs["shadow"]["recomputed"], runs["shadow"]["foretold"]
    result: dict[str, Any] = {
        "calls": runs["shadow"]["calls"],
        "prompt_tokens": runs["shadow"]["prompt_tokens"],
        "recomputed_tokens": {name: run["recomputed"] for name, run in runs.items()},
        "foretold": {**promise, "saved_share": round(promise["saved_tokens"] / base, 4)},
    }
    for name in ("on", "on, warm-up"):
        saved = base - runs[name]["recomputed"]
        result[name] = {
            "saved_tokens": saved,
            "saved_share": round(saved / base, 4),
            "foretold_over_saved": round(promise["saved_tokens"] / saved, 4) if saved else None,
        }
    warm = runs["on, warm-up"]["warmup"]
    names = ("tokens_prefilled", "tokens_used", "tokens_wasted")
    result["on, warm-up"] |= {name: warm[name] for name in names}
    return result


if __name__ == "__main__":
    raise SystemExit(main())
