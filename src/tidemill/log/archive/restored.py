"""What came of restoring."""

from __future__ import annotations

from typing import NamedTuple


class Restored(NamedTuple):
    """What a call has put back: rows `first` up to `next`, the latter not included.

    >>> import tidemill as tm
    >>> tm.Restored(first=1, next=4, segments=1, bytes=900).rows
    3
    """

    first: int
    next: int
    segments: int  # that were read
    bytes: int  # of their files

    @property
    def rows(self) -> int:
        return self.next - self.first
