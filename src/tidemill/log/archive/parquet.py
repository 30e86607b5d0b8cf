"""Rows as a Parquet file, and back: plain columns that any tool reads.

    time │ payload's columns …        the number of a row is its place in the file, plus the first
    ─────┴──────────────────────      that the manifest says; so a file need not know its numbers
    row group 0
    row group 1                       each is read, checked and decoded by itself
    footer                            where all of that is

Every page has a checksum, and the manifest has that of the footer; so a part of a file can be read
and trusted without the rest. What comes out is checked as a frame is: the types are those of the
schema version, and Arrow has validated it through and through.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemill.batch import LogBatch
from tidemill.batch.frame import TIME_FIELD
from tidemill.errors import Corrupt
from tidemill.limits import ROW_GROUP_ROWS

_TAIL_BYTES = 8  # behind the footer: its length, and the magic
_ZSTD_LEVEL = 3

# What Arrow's reader raises for bytes that are not what they should be.
_DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)


class Group(NamedTuple):
    """Rows that lie together in a file."""

    number: int
    at: int  # the place of its first row
    rows: int
    start: int  # of its bytes
    end: int


def file_schema(payload: pa.Schema) -> pa.Schema:
    """The columns of a file with rows of this payload.

    >>> file_schema(pa.schema([("n", pa.int32())])).names
    ['time', 'n']
    """
    return pa.schema([TIME_FIELD, *payload])


def encode(batches: Sequence[LogBatch], *, group_rows: int, group_bytes: int) -> pa.Buffer:
    """A file of rows in one schema, in groups of about that size.

    >>> data = encode([LogBatch.of([b"a", b"b", b"c"])], group_rows=2, group_bytes=2**20)
    >>> [group.rows for group in groups(read_footer(data))]
    [2, 1]
    """
    schema = file_schema(batches[0].schema)
    rows = sum(len(batch) for batch in batches)
    size = sum(batch.payload.nbytes for batch in batches)
    per_group = max(1, min(group_rows, rows, group_bytes * rows // max(1, size)))
    table = pa.Table.from_batches([with_time(batch) for batch in batches], schema=schema)
    sink = pa.BufferOutputStream()
    group = table.slice(0, per_group)
    few = [name for name in schema.names if _has_few_values(group.column(name))]
    with _writer(sink, schema, few) as writer:
        writer.write_table(table, row_group_size=per_group)
    return sink.getvalue()


def _writer(
    sink: pa.BufferOutputStream | Path, schema: pa.Schema, few_values: list[str]
) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=few_values,
        write_statistics=True,
        write_page_checksum=True,
        store_schema=True,
    )


def footer_bytes(data: pa.Buffer) -> int:
    """How long the end of a file is that `read_footer` needs."""
    length = int.from_bytes(data[-_TAIL_BYTES : -_TAIL_BYTES + 4].to_pybytes(), "little")
    return length + _TAIL_BYTES


def read_footer(data: pa.Buffer) -> pq.FileMetaData:
    """What the end of a file says, or the whole of it."""
    try:
        return pq.read_metadata(pa.BufferReader(data))
    except _DAMAGE as cause:
        raise Corrupt(f"the footer of a Parquet file is damaged: {_line(cause)}") from cause


def groups(footer: pq.FileMetaData) -> list[Group]:
    """The row groups of a file, in order."""
    found = []
    at = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(index) for index in range(group.num_columns)]
        starts = [
            column.data_page_offset
            if column.dictionary_page_offset is None
            else min(column.dictionary_page_offset, column.data_page_offset)
            for column in columns
        ]
        ends = [
            start + column.total_compressed_size
            for start, column in zip(starts, columns, strict=True)
        ]
        found.append(Group(number, at, group.num_rows, min(starts), max(ends)))
        at += group.num_rows
    return found


def decode(
    footer: pq.FileMetaData, group: Group, data: pa.Buffer, payload: pa.Schema, first_seq: int
) -> LogBatch:
    """The rows of a group, whose bytes are `data`, fully verified; the first has `first_seq`."""
    try:
        source = _Piece(data, group.start, group.end)
        with pq.ParquetFile(
            source, metadata=footer, page_checksum_verification=True, pre_buffer=False
        ) as file:
            table = file.read_row_group(group.number, use_threads=False)
        schema = file_schema(payload)
        columns = [whole(column.combine_chunks()) for column in table.itercolumns()]
        if [column.type for column in columns] != schema.types:
            # Others give the elements of a list another name, and have no durations.
            columns = [
                column.cast(field.type) for column, field in zip(columns, schema, strict=True)
            ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        batch.validate(full=True)
    except _DAMAGE as cause:
        raise Corrupt(f"Arrow refuses a row group: {_line(cause)}") from cause
    if batch.num_rows != group.rows or batch.column(0).null_count:
        raise Corrupt(f"a row group has {batch.num_rows} rows, the footer says {group.rows}")
    return LogBatch(
        pa.RecordBatch.from_arrays(batch.columns[1:], schema=payload), first_seq, batch.column(0)
    )


def misfit(footer: pq.FileMetaData, payload: pa.Schema) -> str:
    """Why a file that others wrote cannot be a segment; empty if it can.

    >>> schema = pa.schema([("n", pa.int64())])
    >>> data = encode([LogBatch.of([{"n": 1}])], group_rows=2, group_bytes=2**20)
    >>> misfit(read_footer(data), schema), misfit(read_footer(data), pa.schema([("m", pa.int64())]))
    ('', 'it has the columns time, n')
    """
    stored = footer.schema.to_arrow_schema()
    wanted = file_schema(payload)
    if stored.names != wanted.names:
        return f"it has the columns {', '.join(stored.names)}"
    for field in wanted:
        kind = stored.field(field.name).type
        if not _holds(kind, field.type):
            return f"its column {field.name!r} is {kind}, not {field.type}"
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name = column.path_in_schema
            is_required = name in wanted.names and not wanted.field(name).nullable
            counted = column.statistics
            if is_required and group.num_rows and (counted is None or counted.null_count):
                return f"its column {name!r} has nulls"
    return ""


def _holds(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values are the same, whatever others call the parts of a type."""
    if pa.types.is_duration(wanted):
        return bool(pa.types.is_int64(stored) or stored.equals(wanted))
    if pa.types.is_map(wanted) and pa.types.is_map(stored):
        return _holds(stored.key_type, wanted.key_type) and _holds(
            stored.item_type, wanted.item_type
        )
    if pa.types.is_list(wanted) and pa.types.is_list(stored):
        return _holds(stored.value_type, wanted.value_type)
    if pa.types.is_struct(wanted) and pa.types.is_struct(stored):
        return [one.name for one in stored] == [one.name for one in wanted] and all(
            _holds(one.type, other.type) for one, other in zip(stored, wanted, strict=True)
        )
    return bool(stored.equals(wanted))


def restamp(path: Path, payload: pa.Schema, time_us: int) -> Path:
    """A copy of a file that others wrote, beside it, with another time for all rows."""
    schema = file_schema(payload)
    copy = path.with_name(f"{path.stem}-restamped.parquet")
    try:
        with pq.ParquetFile(path) as file, _writer(copy, schema, [TIME_FIELD.name]) as writer:
            for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS):
                times = pa.repeat(pa.scalar(time_us, TIME_FIELD.type), batch.num_rows)
                columns = [
                    column.cast(field.type)
                    for column, field in zip(batch.columns[1:], payload, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays([times, *columns], schema=schema))
    except _DAMAGE as cause:
        raise Corrupt(f"{path} cannot be read back: {_line(cause)}") from cause
    return copy


def with_time(batch: LogBatch) -> pa.RecordBatch:
    """The columns that a file has for these rows."""
    return batch.payload.add_column(0, TIME_FIELD, batch.times)


def are_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two columns hold the same values; NaN is the same as NaN.

    >>> are_same(pa.array([1.0, float("nan"), None]), pa.array([1.0, float("nan"), None]))
    True
    >>> are_same(pa.array([[1.0], [2.0]]), pa.array([[1.0], [3.0]]))
    False
    """
    if one.equals(other):
        return True
    if one.type != other.type or len(one) != len(other) or not _has_floats(one.type):
        return False
    if not one.is_null().equals(other.is_null()):
        return False
    if pa.types.is_floating(one.type):
        both = pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))
        return bool(pc.all(both, skip_nulls=True, min_count=0).as_py())
    if pa.types.is_struct(one.type):
        return all(
            are_same(mine, yours)
            for mine, yours in zip(one.flatten(), other.flatten(), strict=True)
        )
    if not pc.list_value_length(_as_list(one)).equals(pc.list_value_length(_as_list(other))):
        return False
    return are_same(_as_list(one).flatten(), _as_list(other).flatten())


def _as_list(column: pa.Array) -> pa.Array:
    """A list or map as a list; entries of a map are structs of a key and an item."""
    if not pa.types.is_map(column.type):
        return column
    kind = pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)]))
    return column.cast(kind)


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_has_floats(kind.field(index).type) for index in range(kind.num_fields))


def _has_few_values(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary is worth having, of which each row group has its own.

    With as many values as there are rows it makes a column larger, and three times as slow to read
    in Spark. It cannot tell one NaN from another, and is of no use in what is nested.
    """
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
        return False
    return bool(2 * pc.count_distinct(column).as_py() <= len(column))


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array; of no chunks, an empty one."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column


def _line(cause: BaseException) -> str:
    """What an exception says, without the lines for those who wrote what raised it."""
    return (str(cause).splitlines() or [type(cause).__name__])[0]


class _Piece(io.RawIOBase):
    """A file of which only one stretch is at hand, which is all that is asked for."""

    def __init__(self, data: pa.Buffer, start: int, end: int) -> None:
        super().__init__()
        self._data = data
        self._start = start
        self._end = end
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._end if size < 0 else min(self._at + size, self._end)
        if self._at < self._start or end - self._start > self._data.size:
            raise OSError(f"bytes {self._at} to {end} are not at hand")
        found = self._data[self._at - self._start : end - self._start].to_pybytes()
        self._at = end
        return found
