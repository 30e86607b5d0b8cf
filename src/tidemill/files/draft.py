"""A group of operations before it is written: where each record lies, and its bytes."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.files.filesystem import Buffer
from tidemill.files.record import ENVELOPE_BYTES, PADDING, Kind, pack_envelope, padded


class Draft:
    """Collects the records of a group, from the end of the journal on.

    It also hands out what is given at commit: the next number, and the time.
    """

    __slots__ = ("_epoch", "_synced", "next_seq", "parts", "place", "records", "time_us")

    def __init__(self, place: int, *, synced: int, epoch: int, next_seq: int, time_us: int) -> None:
        self.place = place
        self.next_seq = next_seq
        self.time_us = time_us
        self.parts: list[Buffer] = []
        self.records: list[tuple[int, int, int]] = []  # (place, bytes, rows) of each
        self._synced = synced
        self._epoch = epoch

    def add(
        self,
        kind: Kind,
        payload: Sequence[Buffer],
        length: int,
        check: int,
        *,
        commit: bool,
        rows: int = 0,
        audience: int = 0,
    ) -> int:
        """Lay out one record; returns its place."""
        place = self.place
        parts = self.parts
        parts.append(
            pack_envelope(
                kind, commit, length, rows, place, self._synced, self._epoch, check, audience
            )
        )
        parts.extend(payload)
        total = padded(ENVELOPE_BYTES + length)
        padding = total - ENVELOPE_BYTES - length
        if padding:
            parts.append(PADDING[padding])
        self.records.append((place, total, rows))
        self.place = place + total
        return place
