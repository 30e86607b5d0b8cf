"""Batches become bodies and come back, whatever their columns; damage and bombs are refused."""

from __future__ import annotations

import struct
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.samples import TYPED, body_of, decode, frame_of, typed_rows, vouched
from tidemill.batch import DEFAULT, body_schema, encode_body, join_body, to_rows
from tidemill.batch.ipc import _parse, body_shape, decompressed_bytes_max
from tidemill.batch.skeleton import read_by_skeleton
from tidemill.errors import Bug, Corrupt, InvalidInput, TooLarge
from tidemill.limits import INT64_MAX, INT64_MIN, MIB

CODECS = [None, "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 63, 1000])
def test_a_typed_batch_survives(codec: str | None, carried: bool, rows: int) -> None:
    batch, _ = body_of(typed_rows(rows), TYPED, carried=carried)
    frame, schema = frame_of(typed_rows(rows), TYPED, carried=carried, codec=codec)
    header, found = decode(frame, schema)
    assert found.equals(batch)
    assert (header.rows, header.carried) == (rows, carried)
    assert header.codec == CODECS.index(codec)


@given(
    st.lists(st.tuples(st.integers(INT64_MIN, INT64_MAX), st.binary(max_size=50)), min_size=1),
    st.sampled_from(CODECS),
)
def test_any_keys_and_payloads_survive(pairs: list[tuple[int, bytes]], codec: str | None) -> None:
    frame, schema = frame_of(pairs, codec=codec)
    _, found = decode(frame, schema)
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == pairs


@pytest.mark.parametrize("codec", CODECS)
def test_a_slice_is_encoded_without_the_rest(codec: str | None) -> None:
    batch, schema = body_of(typed_rows(500), TYPED)
    part = batch.slice(137, 3)
    encoded = encode_body(part, codec)
    assert len(encoded.buffer) < 5_000
    frame = vouched(bytes(encoded.buffer), rows=3, codec=encoded.codec)
    assert decode(frame, schema)[1].equals(part)


def test_a_body_can_be_a_view_or_a_buffer() -> None:
    frame, schema = frame_of([b"a"])
    from tidemill.batch import decode_body, unpack_header

    header = unpack_header(frame)
    for body in (frame[128:], memoryview(frame)[128:], pa.py_buffer(frame).slice(128)):
        assert decode_body(header, body, schema).column("value").to_pylist() == [b"a"]


def test_any_flipped_bit_of_a_body_is_corrupt() -> None:
    frame, schema = frame_of([b"a", b"b"])
    for bit in range(8 * 128, 8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt, match="checksum"):
            decode(bytes(damaged), schema)


@pytest.mark.parametrize("cut", [1, 8, 100])
def test_a_body_of_another_length_is_corrupt(cut: int) -> None:
    frame, schema = frame_of([b"a", b"b"])
    for other in (frame[:-cut], frame + bytes(cut)):
        with pytest.raises(Corrupt, match="bytes, its header says"):
            decode(other, schema)


def test_a_body_read_by_another_schema_is_corrupt() -> None:
    frame, _ = frame_of([b"a", b"b"])
    typed, _ = frame_of(typed_rows(2), TYPED)
    for data, schema in ((frame, TYPED), (typed, DEFAULT)):
        with pytest.raises(Corrupt):
            decode(data, body_schema(schema, carried=False))


def test_a_null_under_a_column_that_may_hold_none_is_corrupt() -> None:
    loose = pa.schema([("key", pa.int64()), ("value", pa.binary())])
    strict = body_schema(DEFAULT, carried=False)
    for batch in (
        pa.record_batch([pa.array([1, None]), pa.array([b"a", b"b"])], schema=loose),
        pa.record_batch([pa.array([1, 2]), pa.array([b"a", None])], schema=loose),
    ):
        with pytest.raises(Corrupt, match="nulls"):
            decode(vouched(bytes(batch.serialize()), rows=2), strict)


@pytest.mark.parametrize(("seq", "time"), [(0, 0), (-5, 0), (1, -1), (1, 2**62)])
def test_an_impossible_seq_or_time_in_a_carried_body_is_corrupt(seq: int, time: int) -> None:
    rows = to_rows([b"a"], schema=DEFAULT)
    one = np.ones(1, np.int64)
    batch = join_body(one, rows.payload, seqs=seq * one, times=time * one)
    frame = vouched(bytes(batch.serialize()), rows=1, carried=True)
    with pytest.raises(Corrupt, match="carried"):
        decode(frame, body_schema(DEFAULT, carried=True))


def test_text_that_is_no_utf8_is_corrupt() -> None:
    schema = body_schema(pa.schema([("text", pa.utf8())]), carried=False)
    text = pa.Array.from_buffers(
        pa.utf8(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    batch = pa.record_batch([pa.array([1]), text], schema=schema)
    with pytest.raises(Corrupt, match="UTF8"):
        decode(vouched(bytes(batch.serialize()), rows=1), schema)


def test_other_messages_of_arrow_are_corrupt() -> None:
    schema = body_schema(DEFAULT, carried=False)
    for body in (bytes(schema.serialize()), b"\xff\xff\xff\xff\0\0\0\0", b""):
        with pytest.raises(Corrupt):
            decode(vouched(body, rows=1), schema)


def zstd_bomb() -> bytes:
    """4 KB that would become 128 MiB."""
    schema = body_schema(DEFAULT, carried=False)
    batch = pa.record_batch([pa.array([1]), pa.array([bytes(128 * MIB)])], schema=schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    pa.ipc.new_stream(sink, schema, options=options).write_batch(batch)
    stream = bytes(sink.getvalue())
    return stream[8 + int.from_bytes(stream[4:8], "little") :]


def forged_claim(codec: str) -> bytes:
    """A sound body whose buffer of 1,000 bytes claims 128 MiB."""
    body = bytes(encode_body(body_of([bytes(1000)])[0], codec).buffer)
    claim = struct.pack("<q", 1000)
    front, found, rest = body.rpartition(claim)
    assert found
    return front + struct.pack("<q", 128 * MIB) + rest


@pytest.mark.parametrize(
    ("bomb", "code"), [(zstd_bomb(), 2), (forged_claim("lz4"), 1), (forged_claim("zstd"), 2)]
)
def test_a_bomb_is_refused_before_arrow_sees_it(
    bomb: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.batch.frame._read", None)
    schema = body_schema(DEFAULT, carried=False)
    assert len(bomb) < 20_000
    with pytest.raises(Corrupt, match="claims to hold"):
        decode(vouched(bomb, rows=1, codec=code), schema)
    # A header that calls it uncompressed does not help it.
    with pytest.raises(Corrupt, match="compressed in another way"):
        decode(vouched(bomb, rows=1, codec=0), schema)


def test_a_batch_that_would_look_like_a_bomb_is_stored_uncompressed() -> None:
    rows = to_rows([bytes(32 * MIB)], schema=DEFAULT)
    batch = join_body(np.zeros(1, np.int64), rows.payload)
    encoded = encode_body(batch, "zstd")
    assert encoded.codec == 0
    frame = vouched(bytes(encoded.buffer), rows=1, codec=0)
    assert decode(frame, body_schema(DEFAULT, carried=False))[1].equals(batch)


def test_regular_data_of_a_usual_size_is_compressed_however_well() -> None:
    batch = join_body(
        np.zeros(1000, np.int64), to_rows([bytes(8000)] * 1000, schema=DEFAULT).payload
    )
    encoded = encode_body(batch, "zstd")
    assert encoded.codec == 2
    assert len(encoded.buffer) < 100_000
    frame = vouched(bytes(encoded.buffer), rows=1000, codec=2)
    assert decode(frame, body_schema(DEFAULT, carried=False))[1].equals(batch)


def test_what_a_body_may_become_grows_with_it_up_to_the_limit() -> None:
    assert decompressed_bytes_max(4096) == 16 * MIB
    assert decompressed_bytes_max(MIB) == 256 * MIB
    assert decompressed_bytes_max(100 * MIB) == 1088 * MIB


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidInput, match="gzip"):
        encode_body(body_of([b"a"])[0], "gzip")


def test_a_body_over_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.batch.frame.FRAME_BODY_BYTES_MAX", 1000)
    with pytest.raises(TooLarge, match="1000"):
        encode_body(body_of([bytes(1000)])[0])


def test_columns_that_no_reader_would_believe_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1_000
    many = pa.table({"key": range(rows), **{f"n{at}": range(rows) for at in range(40)}})
    batch = many.to_batches()[0]
    for bound, is_refused in ((1_000, True), (3_000, False)):
        monkeypatch.setattr("tidemill.batch.frame.FRAME_METADATA_BYTES_MAX", bound)
        with pytest.raises(TooLarge, match="columns") if is_refused else nullcontext():
            encode_body(batch)


def test_a_type_that_is_not_normal_cannot_be_in_a_frame() -> None:
    schema = body_schema(pa.schema([("n", pa.large_utf8())]), carried=False)
    batch = pa.record_batch([pa.array([1]), pa.array(["x"], pa.large_utf8())], schema=schema)
    with pytest.raises(Bug):
        decode(vouched(bytes(batch.serialize()), rows=1), schema)


@pytest.mark.parametrize(("data", "schema"), [([b"a"] * 9, DEFAULT), (typed_rows(9), TYPED)])
def test_a_message_is_judged_the_same_with_and_without_its_skeleton(
    data: list[object], schema: pa.Schema
) -> None:
    frame, body = frame_of(data, schema)
    shape = body_shape(body)
    view = memoryview(frame)[128:]
    found = read_by_skeleton(view, shape.skeleton)
    assert found is not None, "our own messages are read the fast way"
    assert [*map(list, found[3:5])] == [*map(list, _parse(view, shape)[0][3:5])]
    assert found._replace(nodes=(), buffers=()) == _parse(view, shape)[0]._replace(
        nodes=(), buffers=()
    )
    for place in range(8, found.start):
        damaged = bytearray(view)
        damaged[place] ^= 0x10
        with_it = read_by_skeleton(memoryview(damaged), shape.skeleton)
        if with_it is not None:
            without = _parse(memoryview(damaged), shape)[0]
            assert with_it._replace(nodes=[*with_it.nodes], buffers=[*with_it.buffers]) == without
