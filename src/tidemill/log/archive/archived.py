"""What came of archiving."""

from __future__ import annotations

from typing import NamedTuple


class Archived(NamedTuple):
    """What a pass has archived: rows `first` up to `next`, the latter not included.

    >>> import tidemill as tm
    >>> tm.Archived(first=1, next=4, segments=1, bytes=900).rows
    3
    """

    first: int
    next: int
    segments: int
    bytes: int  # of the segments' files
    swept: int = 0  # objects that crashes had left, and that were removed

    @property
    def rows(self) -> int:
        return self.next - self.first
