"""Rows as Parquet and back: every type, every value, and no damage in silence."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from tidemill.batch import LogBatch
from tidemill.errors import Corrupt
from tidemill.log.archive import parquet

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int8()),
        ("real", pa.float64()),
        ("reals", pa.list_(pa.float32())),
        ("map", pa.map_(pa.utf8(), pa.float64())),
        ("both", pa.struct([("x", pa.float32()), ("y", pa.utf8())])),
        ("length", pa.duration("us")),
        ("price", pa.decimal128(10, 2)),
        ("wall", pa.timestamp("us")),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
    ]
)


def row(number: int) -> dict[str, object]:
    odd = number % 2
    return {
        "id": number - 50,
        "small": None if odd else number % 100,
        "real": [math.nan, -0.0, None, math.inf, 0.1][number % 5],
        "reals": [None, [], [math.nan, 1.5, None]][number % 3],
        "map": [("a", math.nan), ("", None)] if odd else None,
        "both": {"x": math.nan, "y": None} if odd else None,
        "length": dt.timedelta(microseconds=number),
        "price": Decimal("-1.25"),
        "wall": dt.datetime(1, 1, 1),  # noqa: DTZ001
        "instant": dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
        "data": bytes([number]) * number,
        "day": dt.date(1970, 1, 1),
        "flag": bool(odd),
    }


ROWS = LogBatch(pa.RecordBatch.from_pylist([row(n) for n in range(100)], schema=SCHEMA), 7, 99)


def decoded(data: pa.Buffer) -> list[LogBatch]:
    found = parquet.read_footer(data[data.size - parquet.footer_bytes(data) :])
    return [
        parquet.decode(found, group, data[group.start : group.end], SCHEMA, 7 + group.at)
        for group in parquet.groups(found)
    ]


def test_every_type_and_value_comes_back() -> None:
    data = parquet.encode([ROWS.slice(0, 13), ROWS.slice(13)], group_rows=30, group_bytes=2**20)
    groups = decoded(data)
    assert [len(group) for group in groups] == [30, 30, 30, 10]
    back = LogBatch.concat(groups)
    assert (back.first_seq, back.schema) == (7, SCHEMA)
    for one, other in zip(
        parquet.with_time(back).columns, parquet.with_time(ROWS).columns, strict=True
    ):
        assert parquet.are_same(one, other)
    zeros = [math.copysign(1, value) for value in back.payload["real"].to_pylist()[1::5]]
    assert set(zeros) == {-1.0}


def test_groups_are_bounded_by_bytes_as_well() -> None:
    batch = LogBatch.of([bytes(1_000)] * 100)
    data = parquet.encode([batch], group_rows=10**6, group_bytes=10_000)
    sizes = [group.rows for group in parquet.groups(parquet.read_footer(data))]
    assert sum(sizes) == 100
    assert max(sizes) <= 10


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1.0, None], [1.0, 2.0]),
        ([1.0, math.nan], [1.0, 2.0]),
        ([[1.0], [2.0, 3.0]], [[1.0, 2.0], [3.0]]),
        ([{"x": 1.0}], [{"x": math.nan}]),
        ([b"a"], [b"b"]),
        ([1.0], [1.0, 2.0]),
    ],
)
def test_different_values_are_not_the_same(one: list[object], other: list[object]) -> None:
    assert parquet.are_same(pa.array(one), pa.array(one))
    assert not parquet.are_same(pa.array(one), pa.array(other))


def test_damage_of_a_group_is_noticed_or_changes_nothing() -> None:
    """Every byte of the rows in turn; the footer has a checksum in the manifest."""
    batch = LogBatch.of([b"%d" % number for number in range(40)])
    data = parquet.encode([batch], group_rows=40, group_bytes=2**20)
    footer = parquet.read_footer(data)
    (group,) = parquet.groups(footer)
    noticed = 0
    for at in range(group.start, group.end):
        damaged = bytearray(data.to_pybytes())
        damaged[at] ^= 0x10
        piece = pa.py_buffer(bytes(damaged))[group.start : group.end]
        try:
            found = parquet.decode(footer, group, piece, batch.schema, 1)
        except Corrupt:
            noticed += 1
        else:
            assert found.rows() == batch.rows(), at
            assert found.times.equals(batch.times), at
    assert noticed > (group.end - group.start) // 2


def test_rows_of_another_schema_are_refused() -> None:
    data = parquet.encode([LogBatch.of([b"a"])], group_rows=1, group_bytes=1)
    footer = parquet.read_footer(data)
    (group,) = parquet.groups(footer)
    with pytest.raises(Corrupt, match="refuses a row group"):
        parquet.decode(footer, group, data[group.start : group.end], SCHEMA, 1)


def test_a_dictionary_is_for_columns_of_few_values() -> None:
    numbers = range(1000)
    rows = [
        {"each": n, "few": f"city {n % 7}", "half": n // 2, "real": float(n % 2)} for n in numbers
    ]
    schema = pa.schema(
        [("each", pa.int64()), ("few", pa.utf8()), ("half", pa.int32()), ("real", pa.float64())]
    )
    data = parquet.encode([LogBatch.of(rows, schema=schema)], group_rows=500, group_bytes=2**20)
    group = parquet.read_footer(data).row_group(0)
    kept = {
        column.path_in_schema
        for column in map(group.column, range(group.num_columns))
        if column.has_dictionary_page
    }
    assert kept == {"time", "few", "half"}
