"""The fixed header in front of every frame.

    offset  bytes  field
         0      4  magic "TMFR"
         4      2  version
         6      1  codec of the body: 0 none, 1 lz4, 2 zstd
         7      1  flags: bit 0 = carried, the body holds seq and time columns of its own
         8      4  rows
        12      4  reserved, zero
        16      8  bytes of the body
        24      8  first seq; 0 where numbers are given at commit
        32     16  least key, greatest key
        48      8  time, µs since 1970 UTC
        56      8  fingerprint of the payload's schema
        64     16  producer, all zero for none
        80      8  the producer's number
        88      8  xxh3 of the body
        96     24  reserved, zero
       120      8  xxh3 of the 120 bytes before

All integers are little-endian. The body follows at once, so a frame that starts on 64 bytes has a
body that does too.

Invariant: nothing in a header is believed before its checksum, and no length in it before its
bound. Magic and checksum come before the version, because every later version keeps those two and
the size; so a good checksum with another version is a newer writer (`UnknownFormat`), and a bad
one is damage (`Corrupt`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from tidemill.errors import Bug, Corrupt, UnknownFormat
from tidemill.limits import FRAME_BODY_BYTES_MAX, FRAME_ROWS_MAX, INT64_MAX, TIME_US_MAX

HEADER_BYTES = 128
MAGIC = b"TMFR"
VERSION = 1

CODEC_NONE = 0
CODEC_LZ4 = 1
CODEC_ZSTD = 2

NO_PRODUCER = bytes(16)

_CHECKED = struct.Struct("<4sHBBIIQqqqqQ16sqQ24s")
_KNOWN = struct.Struct("<7xB40xqQ24xQ")
_CHECK = struct.Struct("<Q")
_CHECKED_BYTES = HEADER_BYTES - _CHECK.size
_FLAG_CARRIED = 1
_RESERVED = bytes(24)

Buffer = bytes | bytearray | memoryview


# A named tuple, because building a frozen dataclass of this size costs more than all the checks.
class FrameHeader(NamedTuple):
    """What is known of a frame without reading its body.

    >>> header = unpack_header(pack_header(rows=2, first_seq=1, key_min=0, key_max=9, time_us=5,
    ...                                    fingerprint=0, body_bytes=0, body_check=0))
    >>> header.rows, header.key_max, header.carried
    (2, 9, False)
    """

    rows: int
    first_seq: int
    key_min: int
    key_max: int
    time_us: int
    fingerprint: int
    body_bytes: int
    body_check: int
    codec: int
    carried: bool
    producer: bytes
    producer_number: int
    check: int


def pack_header(
    rows: int,
    first_seq: int,
    key_min: int,
    key_max: int,
    time_us: int,
    fingerprint: int,
    body_bytes: int,
    body_check: int,
    codec: int = CODEC_NONE,
    carried: bool = False,
    producer: bytes = NO_PRODUCER,
    producer_number: int = 0,
) -> bytes:
    """The 128 bytes of a header. The caller vouches for the values: they come from our own encoder.

    >>> data = pack_header(rows=1, first_seq=7, key_min=3, key_max=3, time_us=0, fingerprint=0,
    ...                    body_bytes=0, body_check=0)
    >>> len(data), unpack_header(data).first_seq
    (128, 7)
    """
    try:
        head = _CHECKED.pack(
            MAGIC,
            VERSION,
            codec,
            _FLAG_CARRIED if carried else 0,
            rows,
            0,
            body_bytes,
            first_seq,
            key_min,
            key_max,
            time_us,
            fingerprint,
            producer,
            producer_number,
            body_check,
            _RESERVED,
        )
    except struct.error as cause:
        raise Bug(f"a frame header with a value out of range: {cause}") from cause
    return head + _CHECK.pack(xxh3_64_intdigest(head))


def unpack_known(data: Buffer, check: int) -> tuple[bool, int, int, int]:
    """(carried, time, fingerprint, check of the body) of a header that is known by its check.

    Whoever wrote the header and kept its check needs no more than this to know it again.

    >>> data = pack_header(rows=1, first_seq=7, key_min=3, key_max=3, time_us=5, fingerprint=9,
    ...                    body_bytes=0, body_check=11)
    >>> unpack_known(data, unpack_header(data).check)
    (False, 5, 9, 11)
    """
    if len(data) < HEADER_BYTES or xxh3_64_intdigest(data[:_CHECKED_BYTES]) != check:
        raise Corrupt("the header of the frame is not the one that was written here")
    flags, time_us, fingerprint, body_check = _KNOWN.unpack_from(data)
    return bool(flags), time_us, fingerprint, body_check


def unpack_header(data: Buffer, offset: int = 0) -> FrameHeader:
    """Read and verify the header that starts at `offset` of `data`.

    >>> unpack_header(bytes(128))
    Traceback (most recent call last):
    tidemill.errors.Corrupt: no frame starts here: the magic is wrong
    """
    if offset < 0 or len(data) - offset < HEADER_BYTES:
        raise Corrupt(
            f"a frame header has {HEADER_BYTES} bytes, only {len(data) - offset} are left"
        )
    (
        magic,
        version,
        codec,
        flags,
        rows,
        reserved_int,
        body_bytes,
        first_seq,
        key_min,
        key_max,
        time_us,
        fingerprint,
        producer,
        producer_number,
        body_check,
        reserved,
    ) = _CHECKED.unpack_from(data, offset)
    if magic != MAGIC:
        raise Corrupt("no frame starts here: the magic is wrong")
    (check,) = _CHECK.unpack_from(data, offset + _CHECKED_BYTES)
    if check != xxh3_64_intdigest(memoryview(data)[offset : offset + _CHECKED_BYTES]):
        raise Corrupt("the checksum of a frame header does not match")
    if version != VERSION:
        raise UnknownFormat(
            f"a frame has format version {version}, this release reads {VERSION}: upgrade tidemill"
        )
    if flags & ~_FLAG_CARRIED or reserved_int or reserved != _RESERVED:
        raise Corrupt("a frame header has reserved bits set")
    if codec > CODEC_ZSTD:
        raise Corrupt(f"a frame header names the unknown codec {codec}")
    if not 1 <= rows <= FRAME_ROWS_MAX:
        raise Corrupt(f"a frame header claims {rows} rows; 1 to {FRAME_ROWS_MAX} are possible")
    if body_bytes > FRAME_BODY_BYTES_MAX:
        raise Corrupt(
            f"a frame header claims a body of {body_bytes} bytes, over {FRAME_BODY_BYTES_MAX}"
        )
    if key_min > key_max:
        raise Corrupt(f"a frame header has the keys {key_min} to {key_max} in the wrong order")
    if not 0 <= first_seq <= INT64_MAX - rows:
        raise Corrupt(f"a frame header has the impossible sequence number {first_seq}")
    if not 0 <= time_us <= TIME_US_MAX:
        raise Corrupt(f"a frame header has the impossible time {time_us} µs")
    if producer_number < 0:
        raise Corrupt(f"a frame header has the impossible producer number {producer_number}")
    return FrameHeader(
        rows,
        first_seq,
        key_min,
        key_max,
        time_us,
        fingerprint,
        body_bytes,
        body_check,
        codec,
        bool(flags),
        producer,
        producer_number,
        check,
    )
