"""A group of operations before it is written: where each record lies, and its bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from tidemill.batch.frame import EncodedBody
from tidemill.batch.header import HEADER_BYTES, pack_header
from tidemill.files.disk.filesystem import Buffer, File
from tidemill.files.format.frame_table import Entry
from tidemill.files.format.record import (
    ALIGNMENT,
    ENVELOPE_BYTES,
    PADDING,
    Kind,
    pack_envelope,
    padded,
    payload_digest,
)
from tidemill.limits import STAGED_PIECE_BYTES

_FRAME = int(Kind.FRAME)
_CHECK = struct.Struct("<Q")
_HEADS_BYTES = ENVELOPE_BYTES + HEADER_BYTES


@runtime_checkable
class LateBody(Protocol):
    """The bytes of a frame that are elsewhere until they are written."""

    def __len__(self) -> int: ...

    def load(self) -> pa.Buffer: ...


class PreparedFrame(NamedTuple):
    """Sorted rows of one bucket, encoded; only numbers and time are missing."""

    bucket: int
    body: EncodedBody
    key_min: int
    key_max: int
    fingerprint: int
    seqs: tuple[int, int] | None = None  # (least, greatest) of a carried frame, which has its own
    audience: int = 0

    @property
    def record_bytes(self) -> int:
        return padded(_HEADS_BYTES + self.body.body_bytes)


class Draft:
    """Collects the records of a group, from the end of the journal on.

    It also hands out what is given at commit: the next number, and the time.
    """

    __slots__ = (
        "_epoch",
        "_synced",
        "has_late_bodies",
        "next_seq",
        "parts",
        "place",
        "records",
        "time_us",
    )

    def __init__(self, place: int, synced: int, epoch: int, next_seq: int, time_us: int) -> None:
        self.place = place
        self.next_seq = next_seq
        self.time_us = time_us
        self.parts: list[Buffer] = []  # or late bodies
        self.has_late_bodies = False  # set by whoever adds some
        self.records: list[tuple[int, int, int]] = []  # (place, bytes, rows) of each
        self._synced = synced
        self._epoch = epoch

    def add(self, kind: Kind, payload: bytes, *, commit: bool) -> int:
        """Lay out a small record; returns its place."""
        place, length = self.place, len(payload)
        check = payload_digest(payload)
        envelope = pack_envelope(
            kind, commit, length, 0, place, self._synced, self._epoch, check, 0
        )
        total = (ENVELOPE_BYTES + length + ALIGNMENT - 1) & -ALIGNMENT
        self.parts.append(envelope + payload + PADDING[total - ENVELOPE_BYTES - length])
        self.records.append((place, total, 0))
        self.place = place + total
        return place

    def add_frame(self, frame: PreparedFrame, *, commit: bool) -> Entry:
        """Lay out a frame; returns what the index is to know of it."""
        bucket, body, key_min, key_max, fingerprint, seqs, audience = frame
        buffer, body_bytes, body_check, codec, rows = body
        if seqs is None:
            least = self.next_seq
            greatest = least + rows - 1
            self.next_seq += rows
            # A carried frame has no producer, and keeps the greatest of its seqs there.
            producer_number = 0
        else:
            least, greatest = seqs
            producer_number = greatest
        # By position, because every push passes through here.
        header = pack_header(
            rows,
            least,
            key_min,
            key_max,
            self.time_us,
            fingerprint,
            body_bytes,
            body_check,
            codec,
            seqs is not None,
            producer_number=producer_number,
        )
        (check,) = _CHECK.unpack_from(header, HEADER_BYTES - _CHECK.size)
        place = self.place
        length = HEADER_BYTES + body_bytes
        envelope = pack_envelope(
            _FRAME, commit, length, rows, place, self._synced, self._epoch, check, audience
        )
        total = (_HEADS_BYTES + body_bytes + ALIGNMENT - 1) & -ALIGNMENT
        self.parts += (envelope + header, buffer, PADDING[total - ENVELOPE_BYTES - length])
        self.records.append((place, total, rows))
        self.place = place + total
        return Entry(
            place >> 32,
            bucket,
            key_min,
            key_max,
            least,
            greatest,
            check,
            place & 0xFFFFFFFF,
            length,
            rows,
            audience,
        )


def write_late(file: File, draft: Draft, offset: int) -> None:
    """Write a draft piece by piece, so that no more than a piece of it is in memory."""
    piece: list[Buffer] = []
    size = 0
    for part in draft.parts:
        data = part.load() if isinstance(part, LateBody) else part
        piece.append(data)
        size += len(data)  # type: ignore[arg-type]
        if size >= STAGED_PIECE_BYTES:
            file.pwrite(piece, offset)
            file.write_out(size, offset)
            offset += size
            piece, size = [], 0
    if piece:
        file.pwrite(piece, offset)
