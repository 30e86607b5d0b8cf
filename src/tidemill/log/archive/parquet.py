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
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemill.batch import LogBatch
from tidemill.batch.frame import TIME_FIELD
from tidemill.errors import Corrupt

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
    with pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        # A dictionary cannot tell one NaN from another; and it is of no use in what is nested.
        use_dictionary=[field.name for field in schema if _has_few_values(field.type)],
        write_statistics=True,
        write_page_checksum=True,
        store_schema=True,
    ) as writer:
        writer.write_table(table, row_group_size=per_group)
    return sink.getvalue()


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
        columns = [column.combine_chunks() for column in table.itercolumns()]
        batch = pa.RecordBatch.from_arrays(
            [whole(column) for column in columns], schema=file_schema(payload)
        )
        batch.validate(full=True)
    except _DAMAGE as cause:
        raise Corrupt(f"Arrow refuses a row group: {_line(cause)}") from cause
    if batch.num_rows != group.rows or batch.column(0).null_count:
        raise Corrupt(f"a row group has {batch.num_rows} rows, the footer says {group.rows}")
    return LogBatch(
        pa.RecordBatch.from_arrays(batch.columns[1:], schema=payload), first_seq, batch.column(0)
    )


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


def _has_few_values(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_floating(kind)


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
