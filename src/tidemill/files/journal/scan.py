"""Reads a segment from its file alone: every record verified, every damage found.

This is how the index is made again. It goes from record to record by their own lengths; past a
record whose length cannot be read it goes on where the spine says the next one starts, never where
some bytes happen to look like one. Such bytes count for one thing only: as a hint that what lies
before them had been promised, see `promised_behind`.

A reader beside the owner leaves bodies unread that are known to be written: who reads the rows
verifies them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

import xxhash

from tidemill.batch.header import HEADER_BYTES, FrameHeader, unpack_header
from tidemill.errors import Corrupt, UnknownFormat
from tidemill.files.disk.filesystem import File
from tidemill.files.format.frame_table import Entry
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import (
    ALIGNMENT,
    ENVELOPE_BYTES,
    MAGIC,
    Envelope,
    Kind,
    check_small,
    make_place,
    split_place,
    unpack_envelope,
)
from tidemill.files.journal.spine import SpineEntry

_CHUNK_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES_MIN = 64 * 1024
_SKIPPED_TO_BYTES = 4 * 1024  # what is read behind a body that was not
_digest = xxhash.xxh3_64_intdigest


class Found(NamedTuple):
    """A record that is whole."""

    envelope: Envelope
    payload: bytes  # empty for a frame
    header: FrameHeader | None  # of a frame
    frame: memoryview | None = None  # header and body of a frame, if they were asked for


class Damage(NamedTuple):
    """A record, or a stretch of unreadable ones, that is not."""

    place: int
    length: int  # bytes, as far as they are known
    rows: int  # items in it, as far as they are known
    reason: str


Finding: TypeAlias = Found | Damage


class _Window:
    """Reads ahead, more each time, so that many small records cost few reads and a few cost
    little; but not behind a body that was skipped, for the next may be as long.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._data = b""
        self._start = 0
        self._ahead = _CHUNK_BYTES_MIN

    def read(self, length: int, offset: int) -> memoryview:
        at = offset - self._start
        if at < 0 or at + length > len(self._data):
            if at > len(self._data):
                self._ahead = _SKIPPED_TO_BYTES
            self._data = self._file.pread(max(length, self._ahead), offset)
            self._ahead = min(4 * self._ahead, _CHUNK_BYTES)
            self._start, at = offset, 0
        return memoryview(self._data)[at : at + length]


def scan(
    file: File,
    number: int,
    spine: list[SpineEntry],
    origin: Origin | None = None,
    *,
    start: int = 0,
    written_to: int = 0,
    frames: bool = False,
) -> Iterator[Finding]:
    """All records of segment `number` from offset `start` on, in order, with the damage between
    them; those of an adopted one as they would stand here. Bodies of frames before `written_to`
    are not read. `frames`: also the bytes of frames.
    """
    written_as = number if origin is None else origin.number
    window = _Window(file)
    starts = sorted({split_place(entry.place)[1]: entry for entry in spine if entry.length}.items())
    offsets = [start for start, _ in starts]
    offset = start
    while True:
        place, written = make_place(number, offset), make_place(written_as, offset)
        try:
            found = _read_record(window, written, offset, written_to=written_to, frames=frames)
            if found is None:
                if offset in offsets:
                    raise Corrupt("zeroes stand where the record should")
                return
            yield found if origin is None else _adopted(found, place, origin)
            offset += found.envelope.total_bytes
        except Corrupt as damage:
            length, rows = _extent(window, written, offset, starts, offsets)
            yield Damage(place, length, rows, damage.reason)
            if not length:
                return
            offset += length


def _adopted(found: Found, place: int, origin: Origin) -> Found:
    """The bytes of a frame stay what they are, and so does the check of its header."""
    header = None if found.header is None else origin.header(found.header)
    envelope = origin.envelope(found.envelope, place)
    return found._replace(envelope=envelope, header=header)


def _read_record(
    window: _Window, place: int, offset: int, *, written_to: int, frames: bool
) -> Found | None:
    head = window.read(ENVELOPE_BYTES, offset)
    if not head:
        return None
    envelope = unpack_envelope(head, place)
    if envelope is None:
        return None
    if envelope.kind is Kind.FRAME and offset + envelope.total_bytes <= written_to and not frames:
        header = unpack_header(window.read(HEADER_BYTES, offset + ENVELOPE_BYTES))
        check_frame_header(envelope, header)
        return Found(envelope, b"", header)
    payload = window.read(envelope.length, offset + ENVELOPE_BYTES)
    if len(payload) < envelope.length:
        raise Corrupt("the record is cut off")
    if envelope.kind is not Kind.FRAME:
        check_small(envelope, payload)
        return Found(envelope, bytes(payload), None)
    header = unpack_header(payload)
    check_frame_header(envelope, header)
    if _digest(payload[HEADER_BYTES:]) != header.body_check:
        raise Corrupt("the body of the frame does not match its checksum")
    return Found(envelope, b"", header, payload if frames else None)


def promised_behind(file: File, number: int, offset: int) -> int:
    """The highest `synced` that a record from `offset` on bears, wherever it stands, or 0.

    Past a record of unreadable length this tells damage from a torn tail, should the spine be gone
    as well: somebody was promised what lies before a place that a later record calls synced. Only
    an envelope with the right check and its own place counts.
    """
    highest = 0
    while chunk := file.pread(_CHUNK_BYTES, offset):
        at = -1
        while (at := chunk.find(MAGIC, at + 1)) >= 0:
            if at % ALIGNMENT == 0:
                head = chunk[at : at + ENVELOPE_BYTES]
                try:
                    envelope = unpack_envelope(head, make_place(number, offset + at))
                except (Corrupt, UnknownFormat):
                    continue
                if envelope is not None:
                    highest = max(highest, envelope.synced)
        offset += len(chunk)
    return highest


def check_frame_header(envelope: Envelope, header: FrameHeader) -> None:
    """Whether envelope and frame header agree with each other."""
    if (
        header.check != envelope.payload_check
        or header.rows != envelope.rows
        or header.body_bytes + HEADER_BYTES != envelope.length
    ):
        raise Corrupt("the frame does not belong to the envelope in front of it")


def _extent(
    window: _Window,
    place: int,
    offset: int,
    starts: list[tuple[int, SpineEntry]],
    offsets: list[int],
) -> tuple[int, int]:
    """(bytes, items) of the damaged record at `offset`; 0 bytes if nothing vouches for what
    follows.
    """
    try:
        envelope = unpack_envelope(window.read(ENVELOPE_BYTES, offset), place)
    except Corrupt:
        envelope = None
    if envelope is not None:
        return envelope.total_bytes, envelope.rows
    at = bisect_right(offsets, offset) - 1
    if at >= 0 and offsets[at] == offset:
        return starts[at][1].length, starts[at][1].rows
    if at + 1 < len(offsets):
        return offsets[at + 1] - offset, 0
    return 0, 0


def entry_of(found: Found, bucket_of: Callable[[int], int]) -> Entry:
    """The index entry of a frame."""
    envelope, header = found.envelope, found.header
    if header is None:
        raise Corrupt("only a frame has an index entry")
    segment, offset = split_place(envelope.place)
    # A carried frame keeps the greatest seq of its rows where others keep the producer's number.
    seq_max = header.producer_number if header.carried else header.first_seq + header.rows - 1
    return Entry(
        segment,
        bucket_of(header.key_min),
        header.key_min,
        header.key_max,
        header.first_seq,
        seq_max,
        header.check,
        offset,
        envelope.length,
        header.rows,
        envelope.audience,
    )


def opening_state(
    file: File,
    number: int,
    origin: Origin | None = None,
    *,
    spine: Callable[[], list[SpineEntry]] = list,
) -> Found | None:
    """The state that opens a segment, from whichever of its two copies is whole; None until the
    segment has begun. `spine` is asked if no record can be read.
    """
    for entries in (list, spine):
        for found in islice(scan(file, number, entries(), origin), 2):
            if isinstance(found, Found) and found.envelope.kind is Kind.STATE:
                return found
    return None
