"""Single items of bytes take a short way in, and nobody can tell from what is written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.batch import DEFAULT, PlainForm, PlainRow, body_schema
from tidemill.limits import INT64_MAX, INT64_MIN, SHARED_FRAME_ITEM_BYTES_MAX

SCHEMA = body_schema(DEFAULT, carried=False)
FORM = PlainForm(SCHEMA)

rows = st.builds(PlainRow, st.integers(INT64_MIN, INT64_MAX), st.binary(max_size=40))


@given(st.lists(rows, min_size=1, max_size=40))
def test_a_plain_body_is_what_arrow_would_have_written(given_rows: list[PlainRow]) -> None:
    body = FORM.encode(given_rows)
    columns = [
        pa.array([row.key for row in given_rows], pa.int64()),
        pa.array([row.value for row in given_rows], pa.binary()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    assert body.buffer == batch.serialize().to_pybytes()
    assert (body.rows, body.body_bytes) == (len(given_rows), len(body.buffer))
    decoded = pa.ipc.read_record_batch(pa.py_buffer(body.buffer), SCHEMA)
    decoded.validate(full=True)
    assert decoded.equals(batch)


@pytest.mark.parametrize(
    "data",
    [
        [],
        [(1, b"a"), (2, b"b")],
        ((1, b"a"),),
        [[1, b"a"]],
        [(1, b"a", b"b")],
        [(True, b"a")],
        [(1.0, b"a")],
        [(INT64_MAX + 1, b"a")],
        [(INT64_MIN - 1, b"a")],
        [(1, "a")],
        [(1, bytearray(b"a"))],
        [(1, None)],
        [(1, bytes(SHARED_FRAME_ITEM_BYTES_MAX + 1))],
        [{"key": 1, "value": b"a"}],
        [b"without a clock"],
    ],
    ids=lambda data: repr(data)[:40],
)
def test_what_is_not_one_small_pair_takes_the_long_way(data: object) -> None:
    assert FORM.row_of(data, now_ns=None) is None


def test_bytes_alone_get_the_time_as_their_key() -> None:
    assert FORM.row_of([b"a"], now_ns=lambda: 77) == PlainRow(77, b"a")


def test_no_row_is_plain_where_the_schema_is_another() -> None:
    other = PlainForm(body_schema(pa.schema([("value", pa.binary())]), carried=False))
    assert other.row_of([(1, b"a")], now_ns=None) is None
