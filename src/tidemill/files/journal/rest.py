"""What lies behind the data of the active segment, and what is written there with it. Pure.

    records ▏ end mark ▏ old records ...   ▏ zeroes that were written ▏ only allocated
            end                            old_to                     zeroed           allocated

- The end mark is an envelope of zeroes, which is the end of data. It stands before old records,
  which a file that was used before still holds; where there are none, zeroes follow anyhow.
- Zeroes are written ahead of small operations that are synced, so that the next ones fall on blocks
  that were written before: their sync then waits for no change of the file's metadata.
"""

from __future__ import annotations

from tidemill.files.disk.filesystem import Buffer
from tidemill.files.format.record import ENVELOPE_BYTES
from tidemill.limits import LAST_ROOM_BYTES, RESERVE_SHARE, ZEROES_BYTES_MAX

END_MARK = bytes(ENVELOPE_BYTES)

_PAGE_BYTES = 4096
_ZEROES = memoryview(bytes(ZEROES_BYTES_MAX + _PAGE_BYTES))


def reserve_of(segment_bytes: int) -> int:
    """How much of a segment's room pushes leave: pops make room, and need some for that."""
    return max(segment_bytes // RESERVE_SHARE, 2 * LAST_ROOM_BYTES)


class Rest:
    """The rest of one file, from the end of its data on.

    >>> rest = Rest(end=128, allocated=65536, old_to=256)
    >>> [len(rest.behind(128, end, sync=True)) for end in (192, 256, 320)]
    [64, 0, 3776]
    """

    __slots__ = ("_began", "_zeroed", "allocated", "old_to")

    def __init__(self, end: int, allocated: int, old_to: int = 0) -> None:
        self.allocated = allocated  # bytes that are really there
        self._began = end  # where the first append was written
        self.old_to = old_to  # up to where there may be old records
        self._zeroed = max(end, old_to)  # up to where something was written, if only zeroes

    def behind(self, start: int, end: int, *, sync: bool) -> Buffer:
        """What to write behind records that are written from `start` to `end`."""
        if end < self.old_to:
            return END_MARK
        if sync and end > self._zeroed:
            return self._zeroes(start, end)
        return b""

    def _zeroes(self, start: int, end: int) -> Buffer:
        """No more than were written since the first append, so that what is pushed rarely is not
        written twice, and none behind what is large, where syncing takes longer for the bytes than
        for the metadata.
        """
        ahead = min(end - self._began, ZEROES_BYTES_MAX)
        if end - start > ahead // 2:
            ahead = 0
        self._zeroed = min((end + ahead + _PAGE_BYTES - 1) & -_PAGE_BYTES, self.allocated)
        return _ZEROES[: max(self._zeroed - end, 0)]
