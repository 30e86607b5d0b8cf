"""Counts anew what every fork has left, from the frames and the cuts alone."""

from __future__ import annotations

import threading

import numpy as np

from tidemill.batch import SchemaVersions
from tidemill.files.format.frame_table import ENTRY, Entry, FrameList
from tidemill.files.index.index import Index
from tidemill.files.journal.segment import Segment
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.state.state import State


class Census:
    """The forks of a journal, and what they need of its frames."""

    def __init__(
        self, segments: dict[int, Segment], state: State, versions: SchemaVersions
    ) -> None:
        self._segments = segments
        self._index = Index(segments, state)
        reader = FrameReader(segments, versions, own_from=2**63)
        self._cursors = [
            Cursor(
                fork,
                state=state,
                index=self._index,
                reader=reader,
                guard=threading.RLock(),
                buckets_open_max=0,
                payload_schema=lambda: versions.newest,
            )
            for fork in state.forks.values()
        ]

    def needs(self, entry: Entry) -> bool:
        """Whether some fork may have items of a frame left."""
        row = np.array([tuple(entry[1:])], ENTRY)
        frames = FrameList(row, np.array([entry.segment], np.int64))
        return any(len(cursor.live_frames(frames)) for cursor in self._cursors)

    def count(self) -> dict[int, int]:
        """Fork → items it has left. Only frames that a cut splits are read; `Corrupt` if one is
        damaged.
        """
        left = {cursor.fork.id: 0 for cursor in self._cursors}
        for number in sorted(self._segments):
            frames = self._index.frames_of_segment(number)
            for cursor in self._cursors:
                cuts = cursor.fork.cuts
                for entry in cursor.live_frames(frames):
                    if cuts.touches(entry.place, entry.keys, entry.seqs):
                        left[cursor.fork.id] += len(cursor.read_live(entry))
                    else:
                        left[cursor.fork.id] += entry.rows
        return left
