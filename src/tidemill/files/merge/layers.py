"""Rows that one pass over many frames brought into memory, by ranges of keys. Pure.

Where frames overlap beyond memory, each has to be read to find the least rows of all. So that this
is done rarely, a pass takes as many rows as memory allows; so that each is sorted but once, and
with few others, it keeps them as layers, of which a merge makes one window after another.

    frames, each of all keys        layers: pieces of some frames each, unsorted
    ▁▂▃▄▅▆▇█  ▁▂▃▄▅▆▇█  …    ──▶    ▁▁▁▁▁▁ | ▂▂▂▂▂▂ | ▃▃▃▃▃▃    and the rest is read again later

Rows that are pushed meanwhile join the layers they belong to, while there is memory for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np

from tidemill.files.merge.run import Run, gathered


class Layers:
    """Pieces of rows between limits, each a (key, seq) that the rows of its layer are not beyond.

    Invariant: every row in a layer is beyond the limit of the one before.
    """

    def __init__(self) -> None:
        self._layers: deque[tuple[tuple[int, int], list[Run]]] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def first_limit(self) -> tuple[int, int]:
        return self._layers[0][0]

    def begin(self, limits: Sequence[tuple[int, int]]) -> None:
        """Start anew, with empty layers up to these limits."""
        self._layers = deque((limit, []) for limit in limits)
        self.bytes = 0

    def take_from(self, runs: Sequence[Run], *, layers_max: int | None = None) -> None:
        """Copy the rows of sorted runs to the layers, or the first of them; the runs move behind
        what was copied.
        """
        layers = list(islice(self._layers, layers_max))
        limits = [limit for limit, _ in layers]
        keys = np.array([key for key, _ in limits], np.int64)
        bounds = [[run.position, *run.until_each(limits, keys)] for run in runs]
        for number, (_, pieces) in enumerate(layers):
            parts = [
                (run, bound[number], bound[number + 1])
                for run, bound in zip(runs, bounds, strict=True)
                if bound[number] < bound[number + 1]
            ]
            if parts:
                piece = gathered(parts)
                pieces.append(piece)
                self.bytes += piece.nbytes
        for run, bound in zip(runs, bounds, strict=True):
            run.position = bound[-1]

    def pop(self) -> list[Run]:
        """The pieces of the first layer, which is no more."""
        _, pieces = self._layers.popleft()
        self.bytes -= sum(piece.nbytes for piece in pieces)
        return pieces
