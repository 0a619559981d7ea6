"""Forms in which two parts may agree although their texts differ; each tells of one cause."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Set

from scout_sglang.doctor.causes import (
    DATE,
    ID,
    JSON_KEYS,
    LAST_ASSISTANT,
    TOOL_LIST,
    TOOL_ORDER,
    Cause,
)
from scout_sglang.doctor.prompts import TOOLS, Part, json_values
from scout_sglang.doctor.views import View

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_NTH = r"\d{1,2}(?:st|nd|rd|th)?"
_MOMENTS = (
    r"(?:19|20)\d{2}[-/.]\d{1,2}[-/.]\d{1,2}",
    r"\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})",
    # 20261130, 20261130T211500
    r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])[0-3]\d(?:[T_-]?[0-2]\d[0-5]\d(?:[0-5]\d)?)?",
    r"1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?",  # seconds or milliseconds since 1970
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?",
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b",
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b",
    rf"{_NTH}\s{_MONTH}(?:,?\s\d{{4}})?",
    rf"{_MONTH}\s{_NTH}(?!\d)(?:,?\s\d{{4}})?",
    rf"{_MONTH}\s\d{{4}}",
    r"(?:UTC|GMT)\b",
)
_MOMENT = f"(?:{'|'.join(_MOMENTS)})"
# "Monday, 30 November 2026 at 21:15:07.25+01:00" is one moment.
DATES = re.compile(
    rf"(?<![\w.]){_MOMENT}(?:(?:[,\s]{{1,2}}|,?\s?\(?(?:at|T)\s?){_MOMENT})*"
    r"(?:Z\b|\s?[+-]\d{2}:?\d{2}\b)?"
)
IDS = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    # letters and at least two digits, as in call_x7Kd93; hexadecimal; long numbers
    r"|(?<![A-Za-z0-9])(?=[A-Za-z]*\d[A-Za-z]*\d|[A-Za-z]*\d+[A-Za-z])(?=[A-Za-z0-9]*[A-Za-z])"
    r"[A-Za-z0-9]{6,}(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9])[0-9a-f]{16,}(?![A-Za-z0-9])"
    r"|(?<![\d.,])\d{4,}(?![.,]?\d)"
    # whatever follows "id:", "session #" and the like
    r"|(?i:\b(?:id|session|request|run|trace|conversation|ticket|seed|nonce)\s?[:=#]\s?#?)"
    r"[\"']?[\w-]*\d[\w-]*"
)


@functools.lru_cache(maxsize=8192)
def rewrite(part: Part, hidden: Set[Cause], common: Set[str] = frozenset()) -> View:
    """The part in the form that hides all of ``hidden``. O(n) of its text, kept for the next.

    Args:
        common: names of the tools that both prompts have, for ``TOOL_LIST``.
    """
    role = part.role
    if LAST_ASSISTANT in hidden and role in ("user", "assistant"):
        role = "speaker"
    view = View(role, part.text)
    if part.role == TOOLS and hidden & {TOOL_ORDER, TOOL_LIST, JSON_KEYS}:
        view = View(role, _tools(part, hidden, common))
    elif JSON_KEYS in hidden:
        view = view.rewritten(
            (start, end, json.dumps(value, sort_keys=True))
            for start, end, value in json_values(view.text)
        )
    for cause, pattern in ((DATE, DATES), (ID, IDS)):
        if cause in hidden:
            found = pattern.finditer(view.text)
            view = view.rewritten([(m.start(), m.end(), f"<{cause.name}>") for m in found])
    return view


def applicable(x: Part, y: Part) -> list[Cause]:
    """The causes that could have made ``x`` out of ``y``, the most specific first."""
    causes = [DATE, ID]
    if {x.role, y.role} == {"user", "assistant"}:
        return [LAST_ASSISTANT]
    if x.role == TOOLS and y.role == TOOLS:
        a, b = names(x), names(y)
        if set(a) != set(b):
            causes.append(TOOL_LIST)
        elif a != b:
            causes.append(TOOL_ORDER)
    return [*causes, JSON_KEYS]


def names(part: Part) -> list[str]:
    """Names of a part's tools, in order."""
    return [tool.name for tool in part.tools]


def _tools(part: Part, hidden: Set[Cause], common: Set[str]) -> str:
    shown = [tool for tool in part.tools if TOOL_LIST not in hidden or tool.name in common]
    if hidden & {TOOL_ORDER, TOOL_LIST}:
        shown.sort(key=lambda tool: tool.name)
    if JSON_KEYS in hidden:
        return "\n".join(json.dumps(json.loads(t.definition), sort_keys=True) for t in shown)
    return "\n".join(tool.definition for tool in shown)
