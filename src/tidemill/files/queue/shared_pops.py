"""Pops of one end that wait at the same time are done as one: they share a choice, a take and a
sync.

Each gets the next items in the order the pops came. If the take fails, all of them fail, and none
has taken anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tidemill.files.commit.combining import Combining, Request
from tidemill.files.merge.cursor import Selection


class _Pop(Request):
    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.selection: Selection | None = None


class SharedPops(Combining[_Pop]):
    """The pops of one consuming end."""

    def __init__(
        self, take: Callable[[int], Selection], lock: AbstractContextManager[object]
    ) -> None:
        super().__init__(self._pop_all, lock)
        self._take = take

    def take(self, rows: int) -> Selection:
        """Consume the next items; what is returned names those of this pop alone."""
        pop = _Pop(rows)
        self.request([pop])
        if pop.selection is None:
            raise RuntimeError("a pop ended without an outcome")
        return pop.selection

    def _pop_all(self, pops: list[_Pop]) -> None:
        taken = self._take(sum([pop.rows for pop in pops]))
        start = 0
        for pop in pops:
            batch = taken.batch.slice(start, pop.rows) if len(pops) > 1 else taken.batch
            rows = len(batch)
            parts = taken.parts if rows else []
            pop.selection = taken._replace(batch=batch, rows=rows, parts=parts)
            start += rows
