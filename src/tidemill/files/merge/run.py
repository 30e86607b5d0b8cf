"""A run: rows in memory, sorted by (key, seq), and how far they have been used. Pure.

A run is either a frame as it was read, whose seqs follow from its first, or the outcome of merging
several, whose seqs and times are columns of their own. Keys and seqs are only looked at where
something overlaps: whole frames pass through unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.batch import (
    Batch,
    Pairs,
    int64_array,
    int64_values,
    join_body,
    put_together,
    stable_order,
)
from tidemill.files.disk.memory import row_memory

Numbers: TypeAlias = NDArray[np.int64]

_SMALL_ROWS = 8192


class Run:
    """Sorted rows from `position` on."""

    __slots__ = (
        "_first",
        "_keys",
        "_last",
        "_nbytes",
        "_pairs",
        "_payload",
        "_seqs",
        "body",
        "first_seq",
        "position",
        "rows",
        "seq_max",
        "time_us",
    )

    def __init__(
        self,
        body: pa.RecordBatch,
        first_seq: int | None,
        time_us: int | None,
        seq_max: int,
        keys: Numbers | None = None,
        seqs: Numbers | None = None,
        first: tuple[int, int] | None = None,  # (key, seq) of the first row, if known
        last: tuple[int, int] | None = None,
    ) -> None:
        self.body = body
        self.first_seq = first_seq  # None: the body has columns of seqs and times
        self.time_us = time_us
        self.seq_max = seq_max
        self.rows: int = body.num_rows
        self.position = 0
        self._keys = keys
        self._seqs = seqs
        self._first = first
        self._last = last
        self._pairs: Pairs | None = None  # what batches of some of the rows share
        self._payload: pa.RecordBatch | None = None
        self._nbytes: int | None = None

    def __len__(self) -> int:
        """How many rows are left."""
        return self.rows - self.position

    @property
    def keys(self) -> Numbers:
        if self._keys is None:
            self._keys = int64_values(self.body.column(0))
        return self._keys

    @property
    def seqs(self) -> Numbers:
        if self._seqs is None:
            if self.first_seq is None:
                self._seqs = int64_values(self.body.column(1))
            else:
                self._seqs = np.arange(self.first_seq, self.first_seq + self.rows, dtype=np.int64)
        return self._seqs

    @property
    def payload(self) -> pa.RecordBatch:
        """The payload's columns of all rows."""
        if self._payload is None:
            self._payload = Batch(self.body, self.first_seq, self.time_us).payload
        return self._payload

    def times_of(self, start: int, stop: int) -> Numbers:
        """The times of rows [start, stop), in µs."""
        if self.time_us is not None:
            return np.full(stop - start, self.time_us, np.int64)
        return int64_values(self.body.column(2))[start:stop]

    @property
    def head(self) -> tuple[int, int]:
        """(key, seq) of the next row."""
        if self._first is not None and not self.position:
            return self._first
        return self.row(self.position)

    @property
    def last(self) -> tuple[int, int]:
        """(key, seq) of the last row."""
        if self._last is None:
            self._last = self.row(self.rows - 1)
        return self._last

    def row(self, index: int) -> tuple[int, int]:
        """(key, seq) of any row."""
        if self._last is not None and index == self.rows - 1:
            return self._last
        seq = self.first_seq + index if self.first_seq is not None else self.seqs.item(index)
        return self.keys.item(index), seq

    def sample(self, stride: int) -> tuple[Numbers, Numbers]:
        """(keys, seqs) of every `stride`-th row that is left."""
        start = self.position + stride - 1
        keys = self.keys[start::stride]
        if self.first_seq is None:
            return keys, self.seqs[start::stride]
        first = self.first_seq + start
        return keys, np.arange(first, first + stride * len(keys), stride, dtype=np.int64)

    def until(self, key: int, seq: int) -> int:
        """The index behind the last row that is at most (key, seq), or `position` if that is behind
        it.
        """
        keys = self.keys
        stop = int(keys.searchsorted(key, "right"))
        if seq < self.seq_max and stop and keys[stop - 1] == key:
            start = int(keys.searchsorted(key, "left"))
            if self.first_seq is not None:
                stop = start + min(max(seq - (self.first_seq + start) + 1, 0), stop - start)
            else:
                stop = start + int(self.seqs[start:stop].searchsorted(seq, "right"))
        return max(stop, self.position)

    def until_each(self, limits: Sequence[tuple[int, int]], keys: Numbers) -> list[int]:
        """What `until` says of each of these rows, which ascend; `keys` are theirs."""
        found = self.keys.searchsorted(keys, "right")
        # Where no row has the key of a limit, its seq does not matter.
        is_tied = self.keys[found - 1] == keys
        stops: list[int] = np.maximum(found, self.position).tolist()
        for at in np.flatnonzero(is_tied).tolist():
            stops[at] = self.until(*limits[at])
        return stops

    def part(self, start: int, stop: int) -> Run:
        """Rows [start, stop), sharing memory."""
        return Run(
            self.body.slice(start, stop - start),
            None if self.first_seq is None else self.first_seq + start,
            self.time_us,
            seq_max=self.seq_max,
            keys=self.keys[start:stop],
            seqs=None if self._seqs is None else self._seqs[start:stop],
        )

    def projected(self, names: list[str]) -> Run:
        """The same rows with these columns of the payload alone."""
        first = 1 if self.first_seq is not None else 3
        run = Run(
            self.body.select([*self.body.schema.names[:first], *names]),
            self.first_seq,
            self.time_us,
            seq_max=self.seq_max,
            keys=self._keys,
            seqs=self._seqs,
            last=self._last,
        )
        run.position = self.position
        return run

    def filtered(self, mask: NDArray[np.bool_]) -> Run:
        """The rows where the mask is true, with seqs and times of their own."""
        kept = int64_array(np.flatnonzero(mask))
        body = self.batch(0, self.rows).carried().take(kept)
        return Run(body, None, None, seq_max=self.seq_max)

    def batch(self, start: int, stop: int) -> Batch:
        """Rows [start, stop) as the user gets them."""
        if start == 0 and stop == self.rows:
            return Batch(self.body, self.first_seq, self.time_us)
        first = None if self.first_seq is None else self.first_seq + start
        if self._pairs is None:
            self._pairs = Pairs(self.body, 3 if first is None else 1)
        return Batch(self.body, first, self.time_us, part=(start, stop), pairs=self._pairs)

    @property
    def nbytes(self) -> int:
        if self._nbytes is None:
            self._nbytes = int(self.body.get_total_buffer_size())
        return self._nbytes


def merged(parts: Sequence[tuple[Run, int, int]], rows: int | None = None) -> tuple[Run, Numbers]:
    """(the given rows as one run, sorted by (key, seq), or the first of them, if it is said how
    many; where each came from, counted through the parts).
    """
    import pyarrow.compute as pc  # noqa: PLC0415 (slow to import, and not always needed)

    found = _put_together(parts)
    order = sort_order(found.keys, found.seqs)[:rows]
    body = pc.take(found.body, int64_array(order), boundscheck=False, memory_pool=row_memory())
    return Run(body, None, None, seq_max=found.seq_max), order


def gathered(parts: Sequence[tuple[Run, int, int]]) -> Run:
    """A copy of the given rows as they come, one part behind the other; not sorted."""
    # Arrow would refer to the memory of a single part instead.
    return _put_together(parts) if len(parts) > 1 else merged(parts)[0]


def parts_until(runs: Iterable[Run], limit: tuple[int, int]) -> list[tuple[Run, int, int]]:
    """The rows of each run up to `limit`, a (key, seq); the runs move behind them."""
    parts = []
    for run in runs:
        start, run.position = run.position, run.until(*limit)
        if run.position > start:
            parts.append((run, start, run.position))
    return parts


def _put_together(parts: Sequence[tuple[Run, int, int]]) -> Run:
    """The rows of all parts, one part behind the other, with seqs and times of their own."""
    seq_max = max([run.seq_max for run, _, _ in parts])
    firsts = [run.first_seq for run, _, _ in parts]
    if None in firsts and firsts.count(None) < len(firsts):
        keys = np.concatenate([run.keys[start:stop] for run, start, stop in parts])
        seqs = np.concatenate([run.seqs[start:stop] for run, start, stop in parts])
        times = np.concatenate([run.times_of(start, stop) for run, start, stop in parts])
        payload = _concat([run.payload.slice(start, stop - start) for run, start, stop in parts])
        body = join_body(keys, payload, seqs=seqs, times=times)
        return Run(body, None, None, seq_max=seq_max, keys=keys, seqs=seqs)
    # Bodies of one kind are put together whole: there may be thousands, of a few rows each.
    body = _concat([run.body.slice(start, stop - start) for run, start, stop in parts])
    if None in firsts:
        return Run(body, None, None, seq_max=seq_max)
    seqs, times = _numbers(parts, firsts)
    payload = Batch(body, firsts[0], parts[0][0].time_us).payload
    body = join_body(body.column(0), payload, seqs=seqs, times=times)
    return Run(body, None, None, seq_max=seq_max, seqs=seqs)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return put_together(batches, row_memory())


def _numbers(
    parts: Sequence[tuple[Run, int, int]], firsts: list[int | None]
) -> tuple[Numbers, Numbers]:
    """(seqs, times) of rows of frames as they were read: two numbers of each frame say it all."""
    starts = np.array([start for _, start, _ in parts], np.int64)
    lengths = np.array([stop - start for _, start, stop in parts], np.int64)
    ends = np.cumsum(lengths)
    bases = np.array(firsts, np.int64) + starts - (ends - lengths)
    seqs = np.repeat(bases, lengths) + np.arange(ends[-1], dtype=np.int64)
    times = np.repeat(np.array([run.time_us for run, _, _ in parts], np.int64), lengths)
    return seqs, times


def sort_order(keys: Numbers, seqs: Numbers) -> Numbers:
    """The permutation that sorts by key, then by seq."""
    # A few runs one behind the other are what NumPy's own stable sort is best at; many are not.
    is_small = len(keys) < _SMALL_ROWS
    order = np.argsort(keys, kind="stable") if is_small else stable_order(keys)
    ordered = keys[order]
    ties = np.flatnonzero(ordered[1:] == ordered[:-1])
    # Parts mostly come in the order of their seqs, and then a stable sort has settled the ties.
    if len(ties) and np.any(seqs[order[ties + 1]] < seqs[order[ties]]):
        is_tied = np.zeros(len(keys), np.bool_)
        is_tied[ties] = is_tied[ties + 1] = True
        places = np.flatnonzero(is_tied)
        rows = order[places]
        order[places] = rows[np.lexsort((seqs[rows], keys[rows]))]
    return order
