"""A short sample in the format of Mooncake's public conversation trace.

Nothing is downloaded: conversations are drawn so that the sample has what the trace's authors
report of theirs: prompts of 12,000 tokens on average with a long tail, answers of a few hundred, a
block that all share, and prompts that begin with the whole conversation so far. Source of these
figures: "Mooncake: Trading more storage for less computation", FAST 2025, Table 2. No agents, no
sessions: a chat service as the lab's Mooncake reader sees it.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BLOCK = 512
MOST_BLOCKS = 60


def write_sample(
    path: Path,
    requests: int = 600,
    per_second: float = 1.0,
    seed: int = 0,
    *,
    most_blocks: int = MOST_BLOCKS,
    most_output: int | None = None,
) -> Path:
    """Write ``requests`` requests, ``per_second`` of them on average, in order of time.

    No prompt is longer than ``most_blocks`` blocks, no answer than ``most_output`` tokens.
    """
    limits = _Limits(most_blocks * BLOCK, most_output or most_blocks * BLOCK)
    with path.open("w", encoding="utf-8") as file:
        for line in itertools.islice(_lines(per_second, seed, limits), requests):
            file.write(json.dumps(line) + "\n")
    return path


class _Limits(NamedTuple):
    """In tokens."""

    prompt: int
    output: int


def _lines(per_second: float, seed: int, limits: _Limits) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    numbers = itertools.count(1)
    started = itertools.count()
    underway: list[tuple[float, int, _Conversation]] = []
    arrival = 0.0
    while True:
        while not underway or arrival <= underway[0][0]:
            arrival += rng.exponential(_Conversation.MEAN_TURNS / per_second)
            heapq.heappush(underway, (arrival, next(started), _Conversation(rng, numbers, limits)))
        now, order, conversation = heapq.heappop(underway)
        yield {"timestamp": int(1000 * now), **conversation.turn()}
        if conversation.goes_on():
            pause = 20.0 + rng.lognormal(3.5, 0.8)
            heapq.heappush(underway, (now + pause, order, conversation))


class _Conversation:
    """Its whole blocks keep their numbers; the last one, cut short, is new with every turn."""

    MEAN_TURNS = 2.5

    def __init__(self, rng: np.random.Generator, numbers: Iterator[int], limits: _Limits):
        self.rng, self.numbers, self.limits = rng, numbers, limits
        self.blocks, self.size = [0], BLOCK
        self.answer = 0

    def turn(self) -> dict[str, Any]:
        asked = int(self.rng.lognormal(8.2, 1.2)) if self.size == BLOCK else 40 + self.answer
        self.size = min(self.size + max(1, asked), self.limits.prompt)
        while len(self.blocks) < self.size // BLOCK:
            self.blocks.append(next(self.numbers))
        tail = [next(self.numbers)] if self.size % BLOCK else []
        self.answer = min(1 + int(self.rng.lognormal(5.5, 0.8)), self.limits.output)
        return {
            "input_length": self.size,
            "output_length": self.answer,
            "hash_ids": [*self.blocks, *tail],
        }

    def goes_on(self) -> bool:
        room = self.size + self.answer < self.limits.prompt
        return room and self.rng.random() < 1 - 1 / self.MEAN_TURNS
