"""The tools that the agents call: they run for real, read only what lies here, and keep no file."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

OFFICE = Path(__file__).parent / "office"
MOST_LINES = 6

_OPERATORS: Mapping[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}

TOOLS_OF = {
    "planner": ("list_pages",),
    "researcher": ("search_files", "read_page"),
    "analyst": ("calculate",),
    "checker": ("calculate", "search_files"),
    "archivist": ("search_notes", "save_note"),
    "writer": ("save_note",),
}
"""Which agent may call which methods of :class:`Toolbox`."""


class Toolbox:
    """The tools of one session. ``used`` counts the calls that ran, by name.

    A tool answers a mistaken argument with a sentence, as a model could act on it.
    """

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self._pages = {path.name: path.read_text() for path in sorted(OFFICE.glob("library/*.md"))}
        self._notes: dict[str, str] = {}

    def of(self, role: str) -> list[Callable[..., str]]:
        """The tools of an agent, as functions with types and docstrings."""
        return [getattr(self, name) for name in TOOLS_OF[role]]

    def list_pages(self) -> str:
        """List the pages of the library and how many lines each of them has."""
        self.used["list_pages"] += 1
        return "\n".join(f"{n}: {len(t.splitlines())} lines" for n, t in self._pages.items())

    def search_files(self, words: str) -> str:
        """Search all pages of the library for lines that hold some words.

        Args:
            words: what to look for, in any case, as it would stand in a line.
        """
        self.used["search_files"] += 1
        found = [
            f"{name}:{number}: {line}"
            for name, text in self._pages.items()
            for number, line in enumerate(text.splitlines(), 1)
            if words.lower() in line.lower()
        ]
        return "\n".join(found[:MOST_LINES]) or f"No line of the library holds {words!r}."

    def read_page(self, page: str, first: int) -> str:
        """Read some lines of a page of the library.

        Args:
            page: file name of the page, such as tickets.md.
            first: number of the first line to read, counted from 1.
        """
        self.used["read_page"] += 1
        if page not in self._pages:
            return f"There is no page {page!r}; there are {', '.join(self._pages)}."
        return "\n".join(self._pages[page].splitlines()[max(first, 1) - 1 :][:MOST_LINES])

    def calculate(self, expression: str) -> str:
        """Calculate an expression of numbers, + - * / and parentheses.

        Args:
            expression: what to calculate, for example 2*18.40+11.60.
        """
        self.used["calculate"] += 1
        try:
            value = _value(ast.parse(expression, mode="eval").body)
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            return f"Cannot calculate {expression!r}: {error}"
        return f"{expression} = {round(value, 4):g}"

    def search_notes(self, words: str) -> str:
        """Search the notes of the office and return the one that fits best.

        Args:
            words: what the note should be about.
        """
        self.used["search_notes"] += 1
        wanted = set(words.lower().split())
        scores = {
            title: len(wanted & set(f"{title} {text}".lower().split()))
            for title, text in self._notes.items()
        }
        best = max(scores, key=lambda title: (scores[title], title), default="")
        if not scores.get(best):
            return f"No note is about {words!r}."
        return f"{best}: {self._notes[best]}"

    def save_note(self, title: str, text: str) -> str:
        """Save a note of the office; a note of the same title is replaced.

        Args:
            title: what a colleague would search for.
            text: the note, at most six lines.
        """
        self.used["save_note"] += 1
        replaced = title in self._notes
        self._notes[title] = text
        return f"{'Replaced' if replaced else 'Saved'} note {title!r}, {len(self._notes)} in all."


def _value(node: ast.expr) -> float:
    # A bool is an int to isinstance, and no number to a calculator.
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.operand))
    raise ValueError("only numbers, + - * / and parentheses are known")
