"""What ``python -m scout_sglang.launch --help`` says before SGLang's own options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any

from radix_policy.config import CacheScoutConfig, IdentityConfig, ScoutConfig

WIDTH = 100

HEAD = """\
python -m scout_sglang.launch [SGLANG OPTIONS...] [--scout-expose-prompts]

Starts SGLang's server with a KV cache that knows agents. Takes every option of
python -m sglang.launch_server, shown at the end, and overrides none. What is left open is added,
with one printed line each:
  --radix-eviction-policy scout    unless a policy is named
  --device cpu and what it needs   on a machine without an accelerator

OPTIONS OF ITS OWN
  --model-path embedded            the small model that comes as a Python package, to try things
  --scout-expose-prompts           GET /scout shows how the agents' prompts begin
  -h, --help                       this text

POLICIES (--radix-eviction-policy)
  scout            the value of a prefix is the discounted chance that it is used again
  cachescout       the published rule (arXiv 2608.14624), for comparison
  anchor-protect, no-prediction
                   cachescout and scout without who follows whom, to see what that adds
  lru, slru, ...   SGLang's own, untouched

THE FIRST STEP ON A SERVER IN USE
  --enable-metrics --radix-eviction-policy-config '{"mode": "shadow"}' serves exactly as lru while
  scout learns, and GET /scout says what switching on would have saved; then
    curl -X POST localhost:30000/scout/config -d '{"mode": "on"}'

CONFIGURATION (--radix-eviction-policy-config '{"FIELD": VALUE, ...}')
  Every field has a default that was measured; none has to be set. A wrong field or value is refused
  at start. * can be changed while serving (POST /scout/config)."""

TAIL = """\
EXIT STATUS
  2  the command line, the configuration, the model or the installed SGLang is refused, before any
     model is loaded, with one sentence on stderr that says the way out; otherwise SGLang's own

ENVIRONMENT
  SGLANG_PLUGINS   if set, it must contain scout

FILES
  Where "state_path" names one: what was learned, read at start, written every "state_seconds" and
  when the server is told to end (SIGTERM, Ctrl-C). Data-parallel rank 1 appends .1, and so on.

EXAMPLES
  python -m scout_sglang.launch --model-path Qwen/Qwen3-8B
  python -m scout_sglang.launch --model-path embedded
  python -m scout_sglang.launch --model-path Qwen/Qwen3-8B --enable-metrics \\
      --radix-eviction-policy-config '{"state_path": "/var/lib/scout/state", "keep": ["planner"]}'

SEE ALSO
  python -m scout_sglang.doctor --help   can it work here? why do prompts miss the cache?
  python -m scout_sglang.replay --help   would it help my traffic?
  docs/operating.md                      routes, metrics, what to do when one is bad

SGLANG'S OPTIONS
"""


def text() -> str:
    """The manual, at most :data:`WIDTH` columns wide."""
    return "\n".join([HEAD, *_configuration(), "", TAIL])


def _configuration() -> Iterator[str]:
    from scout_sglang.control import SETTINGS

    settable = {setting.name for setting in SETTINGS}
    common = {knob.name for knob in fields(IdentityConfig)}
    yield "  under every policy of ours:"
    yield from _lines(IdentityConfig, set(), settable)
    yield "  under scout and no-prediction:"
    yield from _lines(ScoutConfig, common, settable)
    yield "  under cachescout and anchor-protect:"
    yield from _lines(CacheScoutConfig, common, settable)


def _lines(config: type[IdentityConfig], left_out: set[str], settable: set[str]) -> Iterator[str]:
    for knob in fields(config):
        if knob.name in left_out:
            continue
        star = "*" if knob.name in settable else " "
        yield f"  {star} {knob.name} ({_accepted(knob)})"
        yield from textwrap.wrap(
            knob.metadata["meaning"], WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8
        )


def _accepted(knob: Field[Any]) -> str:
    """Its default and what it takes, as JSON has it."""
    meta, default = knob.metadata, knob.default
    if "choices" in meta:
        return f"{default}; of {', '.join(meta['choices'])}"
    if "text" in meta:
        return "null; a text"
    if "texts" in meta:
        return "[]; a list of texts"
    if "low" not in meta:
        return f"{str(default).lower()}; true or false"
    return f"{default}; {meta['low']} to {meta['high']}"
