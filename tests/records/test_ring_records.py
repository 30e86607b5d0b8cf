"""The bytes of a ring: golden ones, and what becomes of others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from tidemill.errors import Corrupt, TidemillError, UnknownFormat
from tidemill.limits import INT64_MAX
from tidemill.records.protocol import block as blocks
from tidemill.records.protocol import metadata as states
from tidemill.records.protocol.block import Block, decode_block
from tidemill.records.protocol.geometry import Geometry
from tidemill.records.protocol.metadata import Grant, Group, Metadata, decode_metadata
from tidemill.records.protocol.values import Taken

int64 = st.integers(0, INT64_MAX)

BLOCK = Block(b"ringring", 2, 5, 9, bytes([0, 1]), [b"a", b'{"b":1}'])
STATE = Metadata(
    ring=b"ringring",
    flags=0,
    geometry=Geometry(10, 3, 1_000),
    fence=9,
    tail=7,
    overwritten=2,
    grant=Grant(9, b"n" * 16, b"o" * 16, 2_000),
    groups=(Group(0, "default", 5), Group(4, "audit", 7)),
    ended=b"",
)


GOLDEN_BLOCK = (
    "544d52420100000072696e6772696e67020000000000000005000000000000000900000000000000"
    "020000000000000001000000070000000001617b2262223a317da6a045c72ce44675"
)
GOLDEN_STATE = (
    "544d524d0100000072696e6772696e670a000000000000000300000002000100e803000000000000"
    "09000000000000000700000000000000020000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "05000000000000000764656661756c74040000000000000007000000000000000561756469746f6f"
    "6f6f6f6f6f6f6f6f6f6f6f6f6f6f090000000000000000000000000000000000000000000000a930"
    "5e8324563224"
)


def test_a_block_is_these_bytes() -> None:
    assert BLOCK.encode().hex() == GOLDEN_BLOCK
    assert decode_block(BLOCK.encode()) == BLOCK


def test_the_metadata_is_these_bytes() -> None:
    encoded = STATE.released().encode()
    assert encoded.hex() == GOLDEN_STATE
    assert decode_metadata(encoded) == STATE.released()


@pytest.mark.slow
@given(first=int64, mark=int64, number=int64, values=st.lists(st.binary(max_size=20), max_size=20))
def test_a_block_comes_back(first: int, mark: int, number: int, values: list[bytes]) -> None:
    block = Block(b"ringring", number, first, mark, bytes(len(values)), values)
    assert decode_block(block.encode()) == block


@pytest.mark.slow
@given(
    fence=st.integers(1, INT64_MAX),
    tail=int64,
    length=st.integers(0, 10),
    held=st.booleans(),
    ends=st.integers(0, 100),
)
def test_the_metadata_comes_back(fence: int, tail: int, length: int, held: bool, ends: int) -> None:
    head = max(0, tail - length)
    state = replace(STATE, fence=fence, tail=tail, groups=(Group(0, "default", head),), grant=None)
    for number in range(ends):
        state = state.granted(Grant(fence, b"n" * 16, number.to_bytes(16, "big"), 1)).released()
    if held:
        state = state.granted(Grant(fence, b"n" * 16, b"o" * 16, 1))
    assert decode_metadata(state.encode()) == state
    if ends:
        last = state.end_of_operation((ends - 1).to_bytes(16, "big"))
        assert last is not None
        assert last.token == fence


@given(data=st.binary(max_size=300))
def test_any_bytes_are_an_error_of_ours(data: bytes) -> None:
    for decode in (decode_block, decode_metadata):
        with pytest.raises(Corrupt):
            decode(data)


def _resealed(body: bytes) -> bytes:
    """Bytes with a checksum that is right, as a stranger or a bug of ours would write them."""
    return body + blocks._CHECK.pack(xxh3_64_intdigest(body))


@pytest.mark.slow
@given(place=st.integers(4, 200), byte=st.integers(0, 255), which=st.booleans())
def test_any_byte_under_a_good_checksum_is_a_state_or_an_error_of_ours(
    place: int, byte: int, which: bool
) -> None:
    good = (BLOCK if which else STATE.released()).encode()[:-8]
    place %= len(good)
    place = max(place, 4)
    bad = good[:place] + bytes([byte]) + good[place + 1 :]
    try:
        if which:
            decoded = decode_block(_resealed(bad))
            Taken(decoded.first, decoded.kinds, decoded.values).entries()
        else:
            decode_metadata(_resealed(bad))
    except TidemillError:
        pass


@pytest.mark.slow
@given(tail=st.binary(max_size=200), count=st.integers(0, 2**32 - 1), which=st.booleans())
def test_any_rest_under_a_good_header_is_a_state_or_an_error_of_ours(
    tail: bytes, count: int, which: bool
) -> None:
    try:
        if which:
            header = blocks._HEADER.pack(b"TMRB", 1, 0, b"ringring", 0, 0, 0, count, 0)
            decode_block(_resealed(header + tail))
        else:
            header = STATE.encode()[: states._HEADER.size]
            decode_metadata(_resealed(header + tail))
    except Corrupt:
        pass


def test_every_bit_that_flips_is_noticed() -> None:
    for encoded, decode in ((BLOCK.encode(), decode_block), (STATE.encode(), decode_metadata)):
        for bit in range(len(encoded) * 8):
            flipped = bytearray(encoded)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Corrupt):
                decode(bytes(flipped))


def test_a_newer_version_is_not_guessed_at() -> None:
    for encoded, decode in ((BLOCK.encode(), decode_block), (STATE.encode(), decode_metadata)):
        newer = encoded[:4] + b"\x02" + encoded[5:-8]
        with pytest.raises(UnknownFormat, match="version 2"):
            decode(_resealed(newer))


@pytest.mark.slow
@given(
    capacity=st.integers(1, 5_000),
    slots=st.integers(1, 300),
    tail=st.integers(0, 20_000),
    length=st.integers(0, 5_000),
    count=st.integers(1, 1_000),
)
def test_what_can_be_read_and_what_is_written_lie_in_different_records(
    capacity: int, slots: int, tail: int, length: int, count: int
) -> None:
    shape = Geometry.plan(capacity, slots, 1 << 20)
    head = max(0, tail - min(length, capacity))
    count = min(count, shape.overwrites_max)
    blocks_used = shape.blocks(head, tail + count)
    assert len({shape.index_of(block) for block in blocks_used}) == len(blocks_used)
