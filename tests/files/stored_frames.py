"""Frames in memory, with the entries that an index would have of them, for tests of the merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.batch import DEFAULT, join_body
from tidemill.files.format.frame_table import ENTRY, Entry, FrameList
from tidemill.files.merge.run import Run


class StoredFrames:
    """What was pushed, and a loader that counts how often a frame is read."""

    def __init__(
        self,
        schema: pa.Schema = DEFAULT,
        value_of: Callable[[int, int], Any] = lambda key, seq: f"{key}:{seq}".encode(),
    ) -> None:
        self._schema = schema
        self._value_of = value_of
        self._next_seq = 1
        self.entries: list[Entry] = []
        self.runs: list[Run] = []
        self.rows: list[tuple[int, int, Any]] = []
        self.loads = 0

    def push(self, keys: list[int]) -> Entry:
        """Keep a frame of rows with these keys; sorted, as a push does."""
        keys = sorted(keys)
        first = self._next_seq
        self._next_seq += len(keys)
        values = [self._value_of(key, first + at) for at, key in enumerate(keys)]
        if self._schema is DEFAULT:
            payload = pa.RecordBatch.from_arrays([pa.array(values)], schema=DEFAULT)
        else:
            payload = pa.RecordBatch.from_pylist(values, schema=self._schema)
        last = self._next_seq - 1
        self.runs.append(
            Run(join_body(np.array(keys, np.int64), payload), first, 1_000, seq_max=last)
        )
        number = len(self.entries)
        length = self.runs[-1].nbytes
        self.entries.append(
            Entry(1, 0, keys[0], keys[-1], first, last, 0, number, length, len(keys), 0)
        )
        self.rows += [(key, first + at, values[at]) for at, key in enumerate(keys)]
        return self.entries[-1]

    def all(self) -> FrameList:
        """All frames so far."""
        table = np.array([entry[1:] for entry in self.entries], ENTRY)
        return FrameList(table, np.ones(len(table), np.int64))

    def load(self, entries: list[Entry]) -> list[Run]:
        """The runs of these frames, as if they were read from disk."""
        self.loads += len(entries)
        return [self._fresh(self.runs[entry.offset]) for entry in entries]

    def _fresh(self, run: Run) -> Run:
        return Run(run.body, run.first_seq, run.time_us, seq_max=run.seq_max)
