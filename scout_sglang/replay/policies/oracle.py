"""What bounds may know: which pages every future call will use."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scout_sglang.replay.pages import cached_pages
from scout_sglang.replay.timing import Event

Ids = NDArray[np.int64]

NEVER = np.iinfo(np.int64).max


class Oracle:
    """Pages of every call as small integers, and the next call that can hit a page.

    ``paths[number]``: ids of the pages of prompt and cached output, shape (pages,);
    ``prompt_pages`` and ``usable_pages``: how many of them the prompt fills, and how many of
    those a lookup may return (SGLang always computes the last prompt token).
    """

    def __init__(self, events: Iterable[Event], page_size: int):
        hashes, self.prompt_pages, self.usable_pages = [], [], []
        for event in events:
            if not event.starts:
                continue
            hashes.append(cached_pages(event.job, page_size))
            prompt_len = len(event.job.prompt)
            self.prompt_pages.append(prompt_len // page_size)
            self.usable_pages.append((prompt_len - 1) // page_size)
        distinct, ids = np.unique(np.concatenate(hashes), return_inverse=True)
        ends = np.cumsum([len(path) for path in hashes])
        self.paths: list[Ids] = np.split(ids.astype(np.int64), ends[:-1])
        self.n_pages = len(distinct)
        self._stride = len(hashes) + 1
        self._uses = np.sort(
            np.concatenate(
                [
                    path[:usable] * self._stride + number
                    for number, (path, usable) in enumerate(
                        zip(self.paths, self.usable_pages, strict=True)
                    )
                ]
            )
        )

    def next_use(self, pages: Ids, now: int) -> Ids:
        """For each page the number of the first call after ``now`` that uses it, or NEVER."""
        places = np.searchsorted(self._uses, pages * self._stride + now, side="right")
        found = self._uses[np.minimum(places, len(self._uses) - 1)]
        is_page = (places < len(self._uses)) & (found // self._stride == pages)
        return np.where(is_page, found % self._stride, NEVER)
