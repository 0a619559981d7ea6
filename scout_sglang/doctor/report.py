"""What the doctor prints for people. Log text is shown with its control characters spelled out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scout_sglang.doctor.installation import FAILED, OK, WARNING, Check
from scout_sglang.doctor.live import LiveAgent
from scout_sglang.doctor.prefixes import AgentReport, Finding

SIGNS = {OK: "ok     ", WARNING: "warning", FAILED: "FAILED "}

RECORD = """\
The server keeps no text, so it cannot say why. Record some minutes of requests with
  --log-requests --log-requests-level 3 --log-requests-format json --log-requests-target DIR
and give the file to --prefixes: it shows the text around each break and the likely cause."""


def check_lines(checks: Sequence[Check]) -> Iterator[str]:
    """One line a check, and a verdict."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{SIGNS[check.level]}  {check.name:{width}}  {check.text}"
    failed = sum(check.level == FAILED for check in checks)
    warned = sum(check.level == WARNING for check in checks)
    yield ""
    if failed:
        yield f"{failed} of {len(checks)} checks failed; each says the way out."
    else:
        yield "No check failed" + (f"; {warned} to know about." if warned else ".")


def prefix_lines(reports: Sequence[AgentReport]) -> Iterator[str]:
    """Agents with broken prefixes and their causes, most expensive first."""
    for report in reports:
        if not report.findings:
            continue
        share = report.recomputed_tokens / report.prompt_tokens
        yield (
            f"{printable(report.agent)}: {report.recomputed_tokens:,} of {report.prompt_tokens:,} "
            f"prompt tokens ({share:.0%}) recomputed because prefixes break, {report.calls} calls"
        )
        for finding in report.findings:
            yield from _finding_lines(finding)
        yield ""


def _finding_lines(finding: Finding) -> Iterator[str]:
    example = finding.example
    yield (
        f"  {finding.tokens:,} tokens in {finding.calls} calls: {finding.cause.title}, "
        f"first at token {example.position:,}"
    )
    role, earlier_role = printable(example.role), printable(example.earlier_role)
    place = role if role == earlier_role else f"{role} (earlier: {earlier_role})"
    yield f"      where    {place}, line {example.line} against line {example.earlier_line}"
    yield f"      before   {quoted(example.before)}"
    yield f"      now      {quoted(example.now)}"
    yield f"      earlier  {quoted(example.earlier)}"
    yield f"      way out  {finding.cause.way_out}"


def live_lines(agents: Sequence[LiveAgent]) -> Iterator[str]:
    """A table of agents, a mark at those whose prefixes seem to break, and what to do next."""
    if not agents:
        yield "The server has seen no calls yet."
        return
    ranks = len({agent.rank for agent in agents}) > 1
    head = f"{'agent':32} {'calls':>8} {'prompt':>12} {'recomputed':>12} {'hit':>6} {'fixed':>7}"
    yield ("rank " if ranks else "") + head + "  parts at"
    for agent in agents:
        hit = "-" if agent.hit_rate is None else f"{agent.hit_rate:.2f}"
        fixed, parts = (
            "-" if value is None else f"{value:,}"
            for value in (agent.anchor_tokens, agent.first_divergence)
        )
        line = (
            f"{printable(agent.agent)[:32]:32} {agent.calls:>8,} {agent.prompt_tokens:>12,} "
            f"{agent.recomputed_tokens:>12,} {hit:>6} {fixed:>7}  {parts}"
        )
        yield (f"{agent.rank:4} " if ranks else "") + line + ("  <- early" if agent.suspect else "")
    yield ""
    yield "fixed: tokens of the agent's anchor. parts at: token where its prompts first differ."
    yield RECORD


def quoted(text: str) -> str:
    """One line in quotation marks; line ends and control characters are spelled out."""
    return f'"{printable(text)}"'


def printable(text: str) -> str:
    """The text with everything a terminal might act on written as an escape."""
    spelled = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "".join(
        spelled.get(sign) or (sign if sign.isprintable() else f"\\u{ord(sign):04x}")
        for sign in text
    )
