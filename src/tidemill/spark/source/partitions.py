"""What a task is given to read: small, plain, and of the same rows whenever it runs."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from tidemill.files.readers.kept_snapshot import FramePart, KeptSnapshot


class RowRange(InputPartition):
    """Rows from `start` up to `end`, the latter not included."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


class FramesOfSnapshot(InputPartition):
    """Frames of a queue's snapshot."""

    def __init__(self, kept: KeptSnapshot, part: FramePart) -> None:
        super().__init__(None)
        self.kept = kept
        self.part = part

    def __repr__(self) -> str:
        return f"FramesOfSnapshot({self.part.rows} rows)"
