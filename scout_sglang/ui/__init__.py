"""The live page of ``GET /scout/ui``: one self-contained document, put together from this folder.

It loads nothing but ``../scout`` relative to its own address, so it works offline and behind any
path prefix, and its content security policy forbids the rest.
"""

from __future__ import annotations

import functools
from pathlib import Path

SCRIPTS = ("tools.js", "graph.js", "map.js", "chart.js", "panels.js", "app.js")
_HERE = Path(__file__).parent


@functools.cache
def page() -> str:
    """The whole document. The scripts share one scope, in this order."""
    style = (_HERE / "style.css").read_text(encoding="utf-8")
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    document = (_HERE / "page.html").read_text(encoding="utf-8")
    return document.replace("/* style.css */", style).replace("/* scripts */", script)
