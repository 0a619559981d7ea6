"""All frameworks at once against one server, as a shared production server sees them.

    python -m evals.clients.together --url http://127.0.0.1:30000 --sessions 4 --out build/clients

Each framework runs in a process of its own with the same options and leaves its trace and its
summary in ``--out``. Further options are those of each client (``python -m evals.clients.autogen
--help``), but for ``--record`` and ``--json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("autogen", "langgraph", "openai_agents", "smolagents")


def run_all(
    out: Path, frameworks: Sequence[str], options: Sequence[str], python: str = sys.executable
) -> dict[str, dict[str, Any]]:
    """Run the clients side by side; the summary of each.

    Raises RuntimeError with a client's complaint if one fails; the others are stopped.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    started = []
    try:
        for name in frameworks:
            command = [python, "-m", f"evals.clients.{name}", *options]
            command += ["--record", str(out / f"{name}.jsonl.zst")]
            command += ["--json", str(out / f"{name}.json")]
            with _log(out, name).open("wb") as log:
                started.append((name, _start(command, log, path)))
        failed = [name for name, process in started if process.wait()]
    finally:
        for _, process in started:
            process.kill()
    if failed:
        said = _log(out, failed[0]).read_text(errors="replace")
        raise RuntimeError(f"{failed[0]} failed:\n{said[-2000:]}")
    return {name: json.loads((out / f"{name}.json").read_text()) for name in frameworks}


def _start(command: Sequence[str], log: BinaryIO, path: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdout=log, stderr=log, env=env)


def _log(out: Path, name: str) -> Path:
    return out / f"{name}.log"


def combine(summaries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The numbers of all clients as one."""
    ttft = [call["ttft_ms"] for summary in summaries.values() for call in summary["each"]]
    keys = ("sessions", "finished", "calls", "tools_run", "errors")
    total = {key: sum(summary[key] for summary in summaries.values()) for key in keys}
    prompt, computed = (
        sum(summary[key] for summary in summaries.values())
        for key in ("prompt_tokens", "recomputed_tokens")
    )
    return {
        **total,
        "seconds": max(summary["seconds"] for summary in summaries.values()),
        "prompt_tokens": prompt,
        "recomputed_tokens": computed,
        "hit_rate": round(1 - computed / prompt, 4),
        "ttft_mean_ms": round(fmean(ttft), 1),
    }


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.clients.together")
    cli.add_argument("--out", type=Path, default=Path("build/clients"))
    cli.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="default: %(default)s")
    args, options = cli.parse_known_args(argv)
    try:
        summaries = run_all(args.out, args.frameworks.split(","), options)
    except RuntimeError as error:
        print(f"evals.clients.together: {error}", file=sys.stderr)
        return 1
    total = combine(summaries)
    (args.out / "together.json").write_text(json.dumps(total, indent=2) + "\n")
    for name in summaries:
        print(_log(args.out, name).read_text(), end="")
    print(json.dumps(total))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
