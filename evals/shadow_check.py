"""``python -m evals.shadow_check``: does the saving that shadow mode foretells come true?

The demo's calls go to a real server four times, word for word the same ones: under ``lru``; in
shadow mode, which serves as lru and foretells; and switched on, without and with the warm-up of
anchors in idle moments. What is foretold is what ``GET /scout`` says under ``shadow`` of these
calls; what came true is how many prompt tokens fewer were computed than in shadow mode, by the
server's own ``usage``. All options of ``evals.demo`` but ``--policies`` are understood. At the
default size ten minutes on two idle cores.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from evals import demo
from evals.app.client import Run, drive
from evals.app.footprint import as_paths, working_set
from evals.app.team import load_team
from evals.app.workload import Message, build_workload
from evals.server import Server

SERVED = {
    "lru": None,
    "shadow": {"mode": "shadow"},
    "on": {"warmup": False},
    "on, warm-up": {},
}
"""What is served: the configuration of *scout*, None for SGLang's own lru."""


class Served(NamedTuple):
    """The calls under one setting; ``state``: a rank's part of ``GET /scout``, None under lru."""

    run: Run
    state: dict[str, Any] | None

    @property
    def prompt(self) -> int:
        return sum(reply.prompt_tokens for reply in self.run.replies)

    @property
    def recomputed(self) -> int:
        return self.prompt - sum(reply.cached_tokens for reply in self.run.replies)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(words):
        print(__doc__)
    options = demo.parse(words)
    served = serve_all(options)
    result = summary(served)
    print(json.dumps(result, indent=1))
    (options.out / "shadow_check.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


def serve_all(options: Any) -> dict[str, Served]:
    """The same calls under every setting of :data:`SERVED`."""
    workload = build_workload(
        load_team(),
        seed=options.seed,
        routing=options.routing,
        sessions=options.sessions,
        sessions_live=options.sessions_live,
    )
    prompts = demo.dry_prompts(workload, demo.Tokenizer(options.model_path), options.max_tokens)
    needed = working_set(as_paths(prompts), [call.session for call in workload.calls])
    capacity = demo.cache_size(prompts, needed, options)
    served: dict[str, Served] = {}
    replay: list[list[Message]] | None = None
    for name, config in SERVED.items():
        args = demo.server_args("lru" if config is None else "scout", capacity, options)
        if config:
            args += ["--radix-eviction-policy-config", json.dumps(config)]
        log_path = options.out / "logs" / f"shadow-check-{name.replace(', ', '-')}.log"
        with Server(args, log_path=log_path, port=options.port) as server:
            # The calls of the start are no part of the estimate.
            before = None if config is None else state_of(server.url)
            server.flush_cache()
            run = asyncio.run(drive(server.url, workload, demo.settings(options), replay=replay))
            state = None if config is None else since(before, state_of(server.url))
        served[name] = Served(run, state)
        replay = run.requests if replay is None else replay
        print(f"{name}: {served[name].recomputed:,} tokens computed", file=sys.stderr, flush=True)
    return served


def state_of(url: str) -> dict[str, Any]:
    """The first rank's part of ``GET /scout``."""
    with urllib.request.urlopen(url + "/scout", timeout=60) as answer:
        return json.load(answer)["ranks"][0]


def since(before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, Any]:
    """``after`` with the shadow's counts less those of ``before``."""
    shadow = after["shadow"]
    if shadow is None or before is None or before["shadow"] is None:
        return after
    grown = {
        name: value - before["shadow"][name]
        for name, value in shadow.items()
        if name == "calls" or name.endswith("_tokens")
    }
    return {**after, "shadow": {**shadow, **grown}}


def summary(served: dict[str, Served]) -> dict[str, Any]:
    """Tokens computed under each setting, the saving foretold, and how far it was off."""
    shadow = served["shadow"]
    assert shadow.state is not None and shadow.state["shadow"] is not None
    foretold = shadow.state["shadow"]["saved_tokens"]
    result: dict[str, Any] = {
        "calls": len(shadow.run.replies),
        "prompt_tokens": shadow.prompt,
        "recomputed_tokens": {name: one.recomputed for name, one in served.items()},
        "sample": shadow.state["shadow"]["sample"],
        "foretold_saving": foretold,
        "foretold_share": round(foretold / shadow.recomputed, 4),
    }
    for name in ("on", "on, warm-up"):
        saved = shadow.recomputed - served[name].recomputed
        result[name] = {
            "saving": saved,
            "share": round(saved / shadow.recomputed, 4),
            "foretold_over_saving": round(foretold / saved, 4) if saved else None,
        }
    warm = served["on, warm-up"].state
    if warm is not None and warm["warmup"] is not None:
        result["warmup"] = {
            name: warm["warmup"][name]
            for name in ("tokens_prefilled", "tokens_used", "tokens_wasted")
        }
    return result


if __name__ == "__main__":
    raise SystemExit(main())
