"""A record of the journal: an envelope, a payload, and zeroes up to the next multiple of 64 bytes.

    offset  bytes  field
         0      4  magic "TMRC"
         4      1  version
         5      1  kind
         6      1  flags: bit 0 = commit
         8      4  bytes of the payload
        12      4  rows, of a frame
        16      8  place
        24      8  synced
        32      8  epoch of the owner that wrote it
        40      8  check of the payload
        48      4  audience, of a frame
        56      8  xxh3 of the 56 bytes before

- `place` is where the record was written, so that bytes that were moved, swapped or left over do
  not pass for it.
- `synced` is the place up to which the journal was known to be on disk when the record was
  written. It is how recovery tells a torn tail, which nobody was promised, from damage to what
  somebody was.
- The last record of an operation carries the commit flag. Invariant: an operation without it never
  happened.
- The payload's check covers the payload; for a frame it is the frame header's own check, which
  covers the body's.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import xxhash

from tidemill.errors import Corrupt, TooLarge, UnknownFormat
from tidemill.limits import FRAME_BODY_BYTES_MAX, INT64_MAX, STATE_BYTES_MAX

ENVELOPE_BYTES = 64
ALIGNMENT = 64
MAGIC = b"TMRC"
VERSION = 1
COMMIT = 1
OFFSET_MAX = 2**32 - 1  # within a segment
EPOCH_MAX = 2**62  # far beyond what opening a folder again and again leads to

PAYLOAD_BYTES_MAX = max(FRAME_BODY_BYTES_MAX + 4096, STATE_BYTES_MAX)

_FIELDS = struct.Struct("<4sBBBBIIQQQQII")
_CHECK = struct.Struct("<Q")
_ZERO = bytes(ENVELOPE_BYTES)
PADDING = [bytes(count) for count in range(ALIGNMENT)]
_digest = xxhash.xxh3_64_intdigest


class Kind(IntEnum):
    """What a record says."""

    STATE = 1  # what must outlive older segments; opens every segment
    FRAME = 2  # items of one bucket
    CUT = 3  # items a fork has consumed: a take, a delete or a clear
    FORK = 4
    REMOVE = 5
    RETIRE = 6  # segments whose surviving items this operation carried forward, or dropped
    QUARANTINE = 7  # a damaged record that was set aside
    MARK = 8  # the last send of a log's producer
    TRIM = 9  # where the rows of a log begin
    NOTE = 10  # a small fact about a log
    SKIP = 11  # numbers of a log whose rows are in its archive alone


_KINDS = frozenset(Kind)


class Envelope(NamedTuple):
    """The decoded head of a record."""

    kind: Kind
    commit: bool
    length: int  # bytes of the payload, without padding
    rows: int
    place: int
    synced: int
    epoch: int
    payload_check: int
    audience: int

    @property
    def total_bytes(self) -> int:
        return padded(ENVELOPE_BYTES + self.length)


def padded(length: int) -> int:
    """The length with the zeroes up to the next record."""
    return (length + ALIGNMENT - 1) & -ALIGNMENT


def make_place(segment: int, offset: int) -> int:
    """A position in the journal as one number that grows with time."""
    return segment << 32 | offset


def check_offset(offset: int) -> None:
    """Refuse an operation that would reach so far into its segment that no place says where."""
    if offset > OFFSET_MAX:
        raise TooLarge(
            f"one operation may take {OFFSET_MAX} bytes at most, this one needs {offset}"
        )


def split_place(place: int) -> tuple[int, int]:
    return place >> 32, place & 0xFFFFFFFF


def pack_envelope(
    kind: int,
    commit: bool,
    length: int,
    rows: int,
    place: int,
    synced: int,
    epoch: int,
    payload_check: int,
    audience: int,
) -> bytes:
    """The envelope of a record. By position, because every commit passes through here."""
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        kind,
        COMMIT if commit else 0,
        0,
        length,
        rows,
        place,
        synced,
        epoch,
        payload_check,
        audience,
        0,
    )
    return fields + _CHECK.pack(_digest(fields))


def payload_digest(payload: bytes | memoryview) -> int:
    """The check of any payload but a frame's."""
    return _digest(payload)


def unpack_envelope(data: bytes | memoryview, place: int) -> Envelope | None:
    """The envelope at `place`, or None where the zeroes begin that mean the end of data."""
    if len(data) < ENVELOPE_BYTES:
        raise Corrupt("the record is cut off")
    head = bytes(data[:ENVELOPE_BYTES])
    if head == _ZERO:
        return None
    fields = head[:-8]
    if _CHECK.unpack_from(head, 56)[0] != _digest(fields):
        raise Corrupt("the envelope of the record does not match its checksum")
    (
        magic,
        version,
        kind,
        flags,
        spare,
        length,
        rows,
        found,
        synced,
        epoch,
        payload_check,
        audience,
        reserved,
    ) = _FIELDS.unpack(fields)
    if magic != MAGIC:
        raise Corrupt("this is not a record")
    if version != VERSION:
        raise UnknownFormat(
            f"the record has format version {version}; this release knows {VERSION}"
        )
    if found != place:
        raise Corrupt(f"the record belongs at place {found:#x}, but lies at {place:#x}")
    if kind not in _KINDS or flags & ~COMMIT or spare or reserved:
        raise UnknownFormat(f"the record has kind {kind}, flags {flags}: a newer release wrote it")
    if synced > INT64_MAX or epoch > EPOCH_MAX:
        raise Corrupt(f"the record has epoch {epoch} and says that {synced:#x} was synced")
    if length > PAYLOAD_BYTES_MAX:
        raise Corrupt(
            f"the record claims {length} bytes, more than the {PAYLOAD_BYTES_MAX} allowed"
        )
    return Envelope(
        Kind(kind),
        bool(flags & COMMIT),
        length,
        rows,
        place,
        synced,
        epoch,
        payload_check,
        audience,
    )


def stated_place(data: bytes | memoryview) -> int:
    """The place that an envelope bears, whether it is whole or not."""
    return int(_FIELDS.unpack(bytes(data[: _FIELDS.size]))[7])


def check_small(envelope: Envelope, payload: bytes | memoryview) -> None:
    """Verify the payload of anything but a frame."""
    if _digest(payload) != envelope.payload_check:
        raise Corrupt(f"the payload of the {envelope.kind.name} record does not match its checksum")
