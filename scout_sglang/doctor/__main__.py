"""The command: ``python -m scout_sglang.doctor``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from scout_sglang.doctor.causes import CAUSES
from scout_sglang.replay.trace import TraceError

SYNOPSIS = """
  python -m scout_sglang.doctor [--json] [SGLANG FLAGS...]
  python -m scout_sglang.doctor --prefixes LOG [--tokenizer NAME] [--lenient] [--json]
  python -m scout_sglang.doctor --url URL [--api-key KEY] [--json]"""

DESCRIPTION = f"""\
Finds out whether scout-sglang can work here, and why prompts miss the cache.

INSTALLATION AND FLAGS
  Without --prefixes and --url: checks Python, the version of SGLang, the plugin's registration,
  every hook, the tree core and the device. With the flags of a server, as they would follow
  `python -m scout_sglang.launch`, also every flag that the policy cannot work with, every
  untested one, the policy's configuration, and the family of a model that lies in a local
  folder. Each check is one line: ok, warning or FAILED, and a failed one says the way out.
  Nothing is started and no weights are read.

PREFIXES
  --prefixes LOG reads Chat Completions requests (one JSON object a line) or SGLang's own request
  log (--log-requests --log-requests-level 3 --log-requests-format json), plain, gzip or zstd. For
  each agent it says which of these broke its prefixes, at which token, the text there, and how
  many tokens were computed again because of it, most expensive first:
{chr(10).join(f"    {cause.name:15} {cause.title}" for cause in CAUSES)}
  A cause is charged with all that follows it and could have been reused, so two causes in one
  prompt are both charged with what lies behind the later one. A clean log yields no output.
  The log holds prompts in full, and the report quotes a few words of them.

A RUNNING SERVER
  --url URL asks it (GET /scout) for each agent's hit rate and for the token where its prompts
  first differ, and marks the agents to look at. The server holds no text: for the causes a log
  is needed.
"""

EPILOG = """\
EXIT STATUS
  0  all is well: no check failed, no cause was found
  1  a check failed, or prefixes break
  2  the command line is wrong, or the log or the server cannot be read

ENVIRONMENT
  SCOUT_API_KEY  the server's key for --url, which other users of the machine cannot read there

EXAMPLES
  python -m scout_sglang.doctor --model-path /models/Qwen3-8B --tp-size 2
  python -m scout_sglang.doctor --prefixes requests.jsonl.gz --tokenizer /models/Qwen3-8B
  python -m scout_sglang.doctor --url http://localhost:30000 --json

SEE ALSO
  python -m scout_sglang.launch --help   start a server
  python -m scout_sglang.replay --help   would it help my traffic?
  docs/doctor.md                         each cause with its way out
"""


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m scout_sglang.doctor",
        usage=SYNOPSIS,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    cli.add_argument("--json", action="store_true", help="one JSON object instead of text")
    cli.add_argument("--prefixes", type=Path, metavar="LOG", help="say why its prefixes break")
    cli.add_argument("--url", help="ask a running server, e.g. http://localhost:30000")
    log = cli.add_argument_group("with --prefixes")
    log.add_argument(
        "--tokenizer", metavar="NAME", help="Hugging Face name or folder; else word pieces stand in"
    )
    log.add_argument("--lenient", action="store_true", help="skip and count malformed lines")
    live = cli.add_argument_group("with --url")
    live.add_argument("--api-key", metavar="KEY", help="of the server; else SCOUT_API_KEY is used")
    return cli


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    cli = parser()
    args, rest = cli.parse_known_args(words)
    if args.prefixes is None and args.url is None:
        # The options of the other modes may be SGLang's: they go on as they were given.
        return install([word for word in words if word != "--json"], args.json)
    if args.prefixes is not None and args.url is not None:
        cli.error("--prefixes and --url: give one of them")
    if rest:
        cli.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        if args.url is not None:
            return live(args.url, args.api_key or os.environ.get("SCOUT_API_KEY"), args.json)
        return prefixes(args.prefixes, args.tokenizer, args.lenient, args.json)
    except BrokenPipeError:  # the reader, e.g. head, has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 1
    except (RuntimeError, ValueError, OSError) as error:
        print(f"doctor: error: {error}", file=sys.stderr)
        return 2


def install(flags: list[str], as_json: bool) -> int:
    """Check the installation and, if there are any, the flags of a server."""
    from scout_sglang.doctor import installation, report

    checks = installation.check_all(flags)
    failed = any(check.level == installation.FAILED for check in checks)
    if as_json:
        _print_json({"ok": not failed, "checks": [check.as_json() for check in checks]})
    else:
        _print(report.check_lines(checks))
    return int(failed)


def prefixes(path: Path, tokenizer: str | None, lenient: bool, as_json: bool) -> int:
    """Say why the prefixes in a log break.

    Raises:
        TraceError: the log cannot be read.
    """
    from scout_sglang.doctor import logs, report
    from scout_sglang.doctor.prefixes import diagnose
    from scout_sglang.replay.formats.fields import Options
    from scout_sglang.replay.formats.rendering import renderer

    options = Options(lenient=lenient, tokenizer=tokenizer)
    render = renderer(tokenizer)
    reports = diagnose(
        logs.read_prompts(path, options), lambda text: logs.count_tokens(render, text)
    )
    if not reports:
        raise TraceError(f"{path}: no calls in it")
    broken = [found for found in reports if found.findings]
    if as_json:
        agents = [found.as_json() for found in reports]
        _print_json({"log": str(path), "skipped": len(options.skipped), "agents": agents})
    else:
        _print(report.prefix_lines(reports))
        calls = sum(found.calls for found in reports)
        verdict = f"{len(broken)} of {len(reports)} agents" if broken else "no"
        print(
            f"{path}: {calls:,} calls of {len(reports)} agents; {verdict} with broken prefixes"
            + (f"; {len(options.skipped)} lines skipped" if options.skipped else ""),
            file=sys.stderr,
        )
    return int(bool(broken))


def live(url: str, api_key: str | None, as_json: bool) -> int:
    """Show what a running server says of its agents' prefixes.

    Raises:
        LiveError: it cannot be asked.
    """
    from scout_sglang.doctor import report
    from scout_sglang.doctor.live import agents, fetch

    found = agents(fetch(url, api_key))
    if as_json:
        listed = [{**agent._asdict(), "suspect": agent.suspect} for agent in found]
        _print_json({"url": url, "agents": listed})
    else:
        _print(report.live_lines(found))
    return int(any(agent.suspect for agent in found))


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


if __name__ == "__main__":
    raise SystemExit(main())
