"""`python -m evals.demo`: six agents on a real server, once per eviction policy.

What runs: a planner, researcher, coder, tester, reviewer and writer who look after a ferry booking
service (`evals/app`). Several user tasks are live at once. An orchestrator routes each task from
agent to agent; the model is asked for short answers, since its prefill is what eviction costs.

What is equal: the calls, their order and every message. The first policy runs against the model
and its answers go into the histories; the requests it sent are then replayed, word for word, for
every other policy. Tool results come from text files and are drawn with the seed. A call leaves
when the one before it has left, at most `--in-flight` at once: the load follows the speed of the
server, the order does not.

How large the cache is: half of the working set by default. The working set is the peak, over the
calls, of the tokens that live sessions could still reuse: the system prompts seen so far, plus
everything the sessions live at that moment have sent, each shared prefix counted once. It is
computed with the model's tokenizer before the first server starts, with stand-ins of
`--max-tokens` tokens for the answers.

What is counted: every call, also the first ones on the empty cache. Prompt and cached tokens come
from the server's `usage`, times from the client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evals.app import report
from evals.app.client import RequestFailedError, Run, Settings, drive
from evals.app.footprint import as_paths, belady_hits, infinite_hits, working_set
from evals.app.routing import ROUTINGS
from evals.app.team import ROLES, load_team
from evals.app.workload import Message, Workload, build_workload
from evals.server import Server, ServerStartError

POLICIES = ("lru", "slru", "tlru", "cachescout", "scout")
# tlru does not start without its two numbers. Between two visits of an agent a session grows by a
# few hundred tokens; up to `threshold` new tokens are quick enough not to matter.
CONFIGS = {"tlru": {"threshold": 512, "next_prompt_estimate": 256}}


class Tokenizer:
    """Renders chat messages to token ids as the server does, with the model's own template."""

    def __init__(self, model_path: str) -> None:
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(model_folder(model_path))

    def encode(self, text: str) -> list[int]:
        """Token ids of a plain text."""
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def render(self, messages: list[Message]) -> list[int]:
        """Token ids of a prompt that asks the assistant to go on."""
        return self.encode(
            self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        )


def model_folder(model_path: str) -> str:
    """Where the model's files are; converts the embedded one if that was not done yet."""
    if model_path != "embedded":
        return model_path
    from scout_sglang.embedded import embedded_model_path

    return embedded_model_path()


def dry_prompts(workload: Workload, tokenizer: Tokenizer, max_tokens: int) -> list[list[int]]:
    """All prompts with stand-ins of about `max_tokens` tokens for the model's answers."""
    answer = " ".join(["answer"] * max_tokens)
    return [
        tokenizer.render(workload.messages(call, [answer] * call.turn)) for call in workload.calls
    ]


def cache_size(prompts: list[list[int]], needed: int, options: argparse.Namespace) -> int:
    """Tokens of cache: a share of the working set, but never less than the running calls need."""
    if options.max_total_tokens:
        return options.max_total_tokens
    longest = max(map(len, prompts)) + options.max_tokens + 1
    return max(round(options.share * needed), longest * options.in_flight)


def server_args(policy: str, max_total_tokens: int, options: argparse.Namespace) -> list[str]:
    """Arguments of the launcher for one policy."""
    return [
        *("--model-path", options.model_path),
        *("--radix-eviction-policy", policy),
        *("--max-total-tokens", str(max_total_tokens)),
        *("--enable-cache-report", "--sleep-on-idle"),
        *policy_config(policy),
        *shlex.split(options.server_args),
    ]


def policy_config(policy: str) -> list[str]:
    """The configuration of a policy that cannot do without one."""
    if policy not in CONFIGS:
        return []
    return ["--radix-eviction-policy-config", json.dumps(CONFIGS[policy])]


def run_policy(
    policy: str,
    workload: Workload,
    max_total_tokens: int,
    options: argparse.Namespace,
    *,
    replay: list[list[Message]] | None,
    progress: Progress,
) -> Run:
    """Start a server under `policy`, drive the workload, stop the server, save the replies."""
    bar = progress.add_task(f"{policy}: server starts", total=len(workload.calls))
    tokens = {"prompt": 0, "cached": 0}

    def show(reply: Any) -> None:
        tokens["prompt"] += reply.prompt_tokens
        tokens["cached"] += reply.cached_tokens
        rate = tokens["cached"] / tokens["prompt"]
        progress.update(bar, advance=1, description=f"{policy}: hit rate {rate:.2f}")

    log_path = options.out / "logs" / f"server-{policy}.log"
    args = server_args(policy, max_total_tokens, options)
    with Server(args, log_path=log_path, port=options.port) as server:
        server.flush_cache()
        progress.update(bar, description=f"{policy}: first calls")
        progress.reset(bar, description=f"{policy}: first calls")
        run = asyncio.run(
            drive(server.url, workload, settings(options), replay=replay, on_reply=show)
        )
        progress.stop_task(bar)
    run.save(options.out / f"responses-{policy}.jsonl")
    return run


def settings(options: argparse.Namespace) -> Settings:
    """The part of the options that decides how calls are sent."""
    return Settings(
        max_tokens=options.max_tokens,
        ids=options.ids,
        end_labels=options.end_labels,
        in_flight=options.in_flight,
        logprobs=options.logprobs,
    )


def describe(workload: Workload, run: Run, tokenizer: Tokenizer, capacity: int) -> dict[str, Any]:
    """Facts about the requests themselves: their bounds and how much of them is system prompt."""
    paths = as_paths([tokenizer.render(messages) for messages in run.requests])
    total = sum(map(len, paths))
    anchors = {role: len(tokenizer.encode(workload.team.prompts[role])) for role in ROLES}

    def bound(hits: int) -> dict[str, Any]:
        return {"hit_rate": round(hits / total, 4), "recomputed_tokens": total - hits}

    return {
        "calls": len(workload.calls),
        "system_prompt_tokens": anchors,
        "system_prompt_share": round(
            sum(anchors[workload.role(call)] for call in workload.calls) / total, 4
        ),
        "bounds": {
            "infinite_cache": bound(infinite_hits(paths)),
            "belady": bound(belady_hits(paths, capacity)),
        },
    }


def workload_of(options: argparse.Namespace) -> Workload:
    """The calls that the options ask for."""
    return build_workload(
        load_team(),
        seed=options.seed,
        routing=options.routing,
        sessions=options.sessions,
        sessions_live=options.sessions_live,
    )


def compare(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run all policies; returns what goes into demo.json."""
    workload = workload_of(options)
    tokenizer = Tokenizer(options.model_path)
    prompts = dry_prompts(workload, tokenizer, options.max_tokens)
    needed = working_set(as_paths(prompts), [call.session for call in workload.calls])
    capacity = cache_size(prompts, needed, options)
    console.print(
        f"{options.sessions} sessions, {len(prompts)} calls, {sum(map(len, prompts)):,} prompt "
        f"tokens ({options.routing}, seed {options.seed}). Working set {needed:,} tokens, "
        f"cache {capacity:,} ({capacity / needed:.0%})."
    )
    runs: dict[str, Run] = {}
    with progress_bars(console) as progress:
        for policy in options.policies:
            first = next(iter(runs.values()), None)
            runs[policy] = run_policy(
                policy,
                workload,
                capacity,
                options,
                replay=first.requests if first else None,
                progress=progress,
            )
    first = next(iter(runs.values()))
    (options.out / "requests.jsonl").write_text(
        "".join(json.dumps({"messages": messages}) + "\n" for messages in first.requests)
    )
    return {
        "policies": {policy: report.summarise(run) for policy, run in runs.items()},
        "seed": options.seed,
        "ids": options.ids,
        "end_labels": options.end_labels,
        "routing": options.routing,
        "sessions": options.sessions,
        "sessions_live": options.sessions_live,
        "in_flight": options.in_flight,
        "max_tokens": options.max_tokens,
        "model": options.model_path,
        "working_set_tokens": needed,
        "max_total_tokens": capacity,
        **describe(workload, first, tokenizer, capacity),
        # Texts may differ where two tokens are within numerical noise of each other.
        "replies_unlike_the_first_policy": {
            policy: sum(a.text != b.text for a, b in zip(first.replies, run.replies, strict=True))
            for policy, run in runs.items()
        },
    }


def progress_bars(console: Console) -> Progress:
    """One line per policy with its hit rate so far."""
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("build/demo"), help="folder for results (%(default)s)")
    add(
        "--policies",
        type=policy_list,
        default="lru,scout",
        help=f"comma-separated, or 'all' for {','.join(POLICIES)} (%(default)s)",
    )
    add("--routing", choices=list(ROUTINGS), default="pipeline", help="default: %(default)s")
    add("--seed", type=int, default=1, help="of tasks, routes, tool results, order (%(default)s)")
    add("--sessions", type=positive, default=18, help="user tasks in all (%(default)s)")
    add("--sessions-live", type=positive, default=6, help="tasks open at a time (%(default)s)")
    add("--in-flight", type=positive, default=2, help="calls sent at a time (%(default)s)")
    add("--max-tokens", type=positive, default=4, help="output tokens a call (%(default)s)")
    add(
        "--share", type=float, default=0.5, help="cache as a share of the working set (%(default)s)"
    )
    add("--max-total-tokens", type=positive, help="cache size in tokens, in place of --share")
    add("--no-ids", dest="ids", action="store_false", help="send no session_id: all is inferred")
    add("--end-labels", action="store_true", help="mark the last call of each session for scout")
    add("--logprobs", type=int, default=0, metavar="N", help="keep the N best tokens of each step")
    add("--model-path", default="embedded", help="model to serve (%(default)s)")
    add("--server-args", default="", help="for the server, as in --server-args='--dtype float32'")
    add("--port", type=int, default=0, help="port of the server (default: a free one)")
    return parser.parse_args(argv)


def policy_list(text: str) -> list[str]:
    """The policies named on the command line, in order; 'all' stands for all of them."""
    names = list(POLICIES) if text == "all" else text.split(",")
    if len(set(names)) < len(names) or "" in names:
        raise argparse.ArgumentTypeError(f"{text!r} names a policy twice or none at all")
    return names


def positive(text: str) -> int:
    """An integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code: 0, 1 for a failed server or request, 130 for Ctrl-C."""
    options = parse(argv)
    # An end from outside takes the same way out as Ctrl-C, so that no server stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(highlight=False)
    console = Console(highlight=False, width=max(console.width, 108))
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        result = compare(options, console)
    except (ServerStartError, RequestFailedError, ValueError) as error:
        print(f"evals.demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("evals.demo: stopped, and the server with it", file=sys.stderr)
        return 130
    (options.out / "demo.json").write_text(json.dumps(result, indent=2) + "\n")
    report.plot(result, options.out / "demo.png")
    console.print(report.table(result["policies"]))
    console.print(f"Written: {options.out}/demo.json and demo.png")
    console.print(report.verdict(result["policies"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
