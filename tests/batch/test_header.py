"""The header of a frame: what goes in comes out, and nothing else is believed."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from tidemill.batch.header import HEADER_BYTES, MAGIC, VERSION, pack_header, unpack_header
from tidemill.errors import Bug, Corrupt, TidemillError, UnknownFormat
from tidemill.limits import (
    FRAME_BODY_BYTES_MAX,
    FRAME_ROWS_MAX,
    INT64_MAX,
    INT64_MIN,
    TIME_US_MAX,
)

SOUND: dict[str, Any] = {
    "rows": 3,
    "first_seq": 7,
    "key_min": -1,
    "key_max": 5,
    "time_us": 1_700_000_000_000_000,
    "fingerprint": 2**64 - 1,
    "body_bytes": 264,
    "body_check": 2**64 - 2,
    "codec": 2,
    "carried": True,
    "producer": bytes(range(16)),
    "producer_number": 12,
}

int64 = st.integers(INT64_MIN, INT64_MAX)
uint64 = st.integers(0, 2**64 - 1)


def resealed(header: bytes) -> bytes:
    """The header with its own checksum put right."""
    return header[:120] + struct.pack("<Q", xxh3_64_intdigest(header[:120]))


def patched(offset: int, data: bytes) -> bytes:
    """A sound header with some bytes changed, under a good checksum."""
    header = bytearray(pack_header(**SOUND))
    header[offset : offset + len(data)] = data
    return resealed(bytes(header))


@given(
    rows=st.integers(1, FRAME_ROWS_MAX),
    first_seq=st.integers(0, INT64_MAX - FRAME_ROWS_MAX),
    keys=st.tuples(int64, int64).map(sorted),
    time_us=st.integers(0, TIME_US_MAX),
    fingerprint=uint64,
    body_bytes=st.integers(0, FRAME_BODY_BYTES_MAX),
    body_check=uint64,
    codec=st.integers(0, 2),
    carried=st.booleans(),
    producer=st.binary(min_size=16, max_size=16),
    producer_number=st.integers(0, INT64_MAX),
)
def test_every_field_survives(keys: list[int], **fields: Any) -> None:
    fields.update(key_min=keys[0], key_max=keys[1])
    header = pack_header(**fields)
    assert len(header) == HEADER_BYTES
    found = unpack_header(b"before" + header + b"after", 6)._asdict()
    assert found.pop("check") == xxh3_64_intdigest(header[:120])
    assert found == fields


def test_any_flipped_bit_is_corrupt() -> None:
    sound = pack_header(**SOUND)
    for bit in range(8 * HEADER_BYTES):
        header = bytearray(sound)
        header[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            unpack_header(header)


@given(st.binary(max_size=200), st.integers(-10, 210))
def test_arbitrary_bytes_are_corrupt(data: bytes, offset: int) -> None:
    with pytest.raises(Corrupt):
        unpack_header(data, offset)


@given(st.binary(min_size=116, max_size=116))
@example(bytes(116))
def test_arbitrary_bytes_under_a_good_checksum_are_a_header_or_a_typed_error(data: bytes) -> None:
    try:
        header = unpack_header(resealed(MAGIC + data + bytes(8)))
    except TidemillError:
        return
    assert 1 <= header.rows <= FRAME_ROWS_MAX


@pytest.mark.parametrize("length", [0, 1, 127])
def test_a_short_header_is_corrupt(length: int) -> None:
    with pytest.raises(Corrupt, match="only"):
        unpack_header(pack_header(**SOUND)[:length])


def test_a_newer_version_under_a_good_checksum_is_unknown_and_else_corrupt() -> None:
    newer = patched(4, struct.pack("<H", VERSION + 1))
    with pytest.raises(UnknownFormat, match="version 2"):
        unpack_header(newer)
    with pytest.raises(Corrupt, match="checksum"):
        unpack_header(newer[:-1] + b"\0")


@pytest.mark.parametrize(
    ("offset", "data", "reason"),
    [
        (6, b"\x03", "codec"),
        (7, b"\x02", "reserved"),
        (12, b"\x01", "reserved"),
        (119, b"\x01", "reserved"),
        (8, struct.pack("<I", 0), "rows"),
        (8, struct.pack("<I", FRAME_ROWS_MAX + 1), "rows"),
        (16, struct.pack("<Q", FRAME_BODY_BYTES_MAX + 1), "bytes"),
        (24, struct.pack("<q", -1), "sequence"),
        (24, struct.pack("<q", INT64_MAX), "sequence"),
        (32, struct.pack("<q", 6), "keys"),
        (48, struct.pack("<q", -1), "time"),
        (48, struct.pack("<q", TIME_US_MAX + 1), "time"),
        (80, struct.pack("<q", -1), "producer"),
    ],
)
def test_an_impossible_field_under_a_good_checksum_is_corrupt(
    offset: int, data: bytes, reason: str
) -> None:
    with pytest.raises(Corrupt, match=reason):
        unpack_header(patched(offset, data))


def test_a_value_that_cannot_be_packed_is_our_bug() -> None:
    with pytest.raises(Bug):
        pack_header(**{**SOUND, "key_max": INT64_MAX + 1})
