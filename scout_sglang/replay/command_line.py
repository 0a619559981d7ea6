"""The options of ``python -m scout_sglang.replay``, and its manual (``--help``)."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from scout_sglang.replay import planner, synthetic
from scout_sglang.replay.formats.detect import FORMATS
from scout_sglang.replay.policies import BUILDERS
from scout_sglang.replay.timing import Timing

DEFAULT_POLICIES = "lru,slru,cachescout,scout,belady,infinite"
DEFAULT_CAPACITIES = "10%,25%,50%"
TIMING_OPTIONS = {
    "sessions_per_second": "mean rate of new sessions",
    "llm_gap": "mean seconds of a hand-over between agents",
    "tool_gap": "mean seconds of a tool run",
    "human_gap": "mean seconds until a person answers",
    "call_base": "seconds that a call takes before its first output token",
    "call_per_token": "seconds per output token",
}

SYNOPSIS = """
  python -m scout_sglang.replay TRACE... [options]
  python -m scout_sglang.replay TRACE --plan [options]
  python -m scout_sglang.replay TRACE --convert OUT [--anonymise]"""

DESCRIPTION = f"""\
Would scout help my traffic? Replays recorded or generated calls through SGLang's own cache classes,
without a model and without a GPU, under every policy asked for, and prints what each would have
found cached, with one sentence to act on.

TRACE is a file, plain, gzip or zstd, recognised by its content:
    chat        Chat Completions requests, one JSON object a line, the answer under "response"
    sglang      SGLang's request log: start the server with --log-requests --log-requests-level 3
                --log-requests-format json --log-requests-target DIR
    mooncake    Mooncake's hash_ids: sizes and identity of blocks, no agents
    tokens      a token trace, as --convert writes it
or synthetic:NAME for generated traffic, NAME one of
{textwrap.fill(", ".join(synthetic.PRESETS), 100, initial_indent="    ", subsequent_indent="    ")};
synthetic:mix24?sessions=500&seed=3 changes length and seed.
"""

EPILOG = """\
EXIT STATUS
  0  every trace was replayed
  2  the command line is wrong, or a trace cannot be read; one line on stderr says what and where

EXAMPLES
  python -m scout_sglang.replay /var/log/sglang/*.log --capacity 200000 --page-size 1
  python -m scout_sglang.replay requests.jsonl --tokenizer /models/Qwen3-8B --json out.json
  python -m scout_sglang.replay synthetic:mix24 --policies lru,scout,belady --seed 0,1,2
  python -m scout_sglang.replay requests.jsonl --plan --plot plan.png
  python -m scout_sglang.replay requests.jsonl --convert shared.jsonl.gz --anonymise

The report that --json writes, the timing model, and what each policy is: README.md beside this
module. A capacity is the server's "max_total_num_tokens", which its log names at start.
"""


def parser() -> argparse.ArgumentParser:
    """The command line; ``--help`` is the whole manual."""
    cli = argparse.ArgumentParser(
        prog="python -m scout_sglang.replay",
        usage=SYNOPSIS,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cli.add_argument("traces", nargs="+", metavar="TRACE", help="a file, or synthetic:NAME")
    _what(cli.add_argument_group("what is compared"))
    _traffic(cli.add_argument_group("how the trace is read"))
    _time(cli.add_argument_group("time"))
    _output(cli.add_argument_group("what comes out"))
    return cli


def _what(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    percents = DEFAULT_CAPACITIES.replace("%", "%%")
    add(
        "--policies",
        metavar="NAMES",
        help=f"by comma, of {', '.join(BUILDERS)} (default: {DEFAULT_POLICIES}; with --plan "
        f"{planner.DEFAULT_POLICIES})",
    )
    add(
        "--capacity",
        metavar="SIZES",
        help="cache sizes by comma, in tokens or percent of the slots that would hold the whole "
        f"trace (default: {percents}; some traces have sizes of their own)",
    )
    add(
        "--page-size",
        type=_positive,
        default=16,
        metavar="TOKENS",
        help="SGLang's --page-size (default: %(default)s)",
    )
    add("--seed", default="0", metavar="SEEDS", help="one or more, by comma (default: 0)")
    add(
        "--config",
        action="append",
        default=[],
        metavar="POLICY=JSON",
        help="a policy's --radix-eviction-policy-config; once for each policy",
    )
    add("--plan", action="store_true", help="how much memory lru would need to reach each policy")
    add("--no-ids", action="store_true", help="hide sessions and agents: all is inferred")
    add("--end-labels", action="store_true", help="tell the policy of each session's last call")
    add(
        "--idle-share",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="of the calls that idle time follows, for warm-ups (default: 0)",
    )
    add(
        "--warmup",
        choices=("on", "off"),
        default="on",
        help="whether our policies use that idle time (default: %(default)s)",
    )


def _traffic(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--format", choices=sorted(FORMATS), help="instead of looking at the file")
    add(
        "--tokenizer",
        metavar="NAME",
        help="of the model, a Hugging Face name or folder, for chat; else word pieces stand in",
    )
    add("--lenient", action="store_true", help="skip and count malformed lines; else they end it")
    add("--max-sessions", type=_positive, metavar="N", help="only the trace's first sessions")
    add(
        "--max-prompt",
        type=_positive,
        metavar="TOKENS",
        help="a session ends before its first longer prompt",
    )


def _time(group: argparse._ArgumentGroup) -> None:
    group.description = (
        "A trace's own times are kept where it has them; the gaps are for the rest. Generated "
        "workloads bring other defaults of their own."
    )
    defaults = Timing()
    for name, meaning in TIMING_OPTIONS.items():
        group.add_argument(
            f"--{name.replace('_', '-')}",
            type=float,
            metavar="X",
            help=f"{meaning} (default: {getattr(defaults, name)})",
        )
    group.add_argument(
        "--max-running",
        type=_positive,
        default=128,
        metavar="N",
        help="most calls at once (default: %(default)s)",
    )
    group.add_argument(
        "--uncounted",
        type=_share,
        default=0.15,
        metavar="SHARE",
        help="of the calls, the first ones, which fill the cache (default: %(default)s)",
    )


def _output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--json", type=Path, metavar="FILE", help="write all results here")
    add("--plot", type=Path, metavar="FILE", help="draw the hit (--plan: miss) rate over capacity")
    add("--convert", type=Path, metavar="OUT", help="write a token trace and replay nothing")
    add(
        "--anonymise",
        action="store_true",
        help="with --convert: permute token ids, number all names",
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share from 0 to 1")
    return value
