"""How the columns of NDJSON and CSV are read: first as Arrow's readers can, then as the queue's.

The readers guess types from the first block, and take a time without a zone for UTC. So times,
dates and bytes are read as text, and cast by Arrow's stricter rules; and what the first block has
settled holds for the rest of the input.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tidemill.batch.types import INSTANT
from tidemill.errors import InvalidInput, SchemaMismatch
from tidemill.gateway.rows import base64_column
from tidemill.shown import shown

_types = pa.types
_FROM_A_QUEUE = ("seq", "key", "time")
_NO_TIME = re.compile(r"Failed to parse string: '(.*)' as a scalar of type", re.DOTALL)


class TextColumns:
    """The columns of one input."""

    def __init__(self, payload: pa.Schema | None, key: str | None, *, binary: str) -> None:
        self._payload = payload
        self._key = key or "key"
        self._binary = binary

    def declared(self) -> dict[str, pa.DataType]:
        """The columns whose type is known beforehand, each in the type it is to be read as."""
        return {field.name: self._read_as(field) for field in self._payload or ()}

    def settled(self, found: pa.Schema) -> dict[str, pa.DataType]:
        """All columns of the first block, each in the type the rest is to be read as."""
        return {
            # Whether text is taken for a time would hang on the first block: it stays text.
            field.name: _without_times(field.type)
            for field in found
        }

    def finish(self, table: pa.Table) -> pa.Table:
        """The rows as they are pushed."""
        names = table.schema.names
        if set(_FROM_A_QUEUE) <= set(names):
            # What a queue gave can be pushed again; the other queue numbers anew.
            table = table.drop_columns(["seq", "time"])
        for at, field in enumerate(table.schema):
            column = table.column(at)
            wanted = self._wanted(field)
            if wanted is None and _types.is_binary(field.type):
                # What the reader of CSV makes of text in another encoding.
                raise SchemaMismatch(
                    f"column {field.name!r} is not UTF-8: convert the input first, as `iconv -f "
                    "latin1 -t utf-8` does"
                )
            if wanted is not None and wanted != field.type:
                table = table.set_column(at, field.name, self._cast(column, field.name, wanted))
        return table

    def _read_as(self, field: pa.Field) -> pa.DataType:
        return _readable(field.type, field.name)

    def _wanted(self, field: pa.Field) -> pa.DataType | None:
        if self._payload is not None and (at := self._payload.get_field_index(field.name)) >= 0:
            return self._payload.field(at).type
        if field.name == self._key and _types.is_string(field.type):
            return INSTANT
        return None

    def _cast(self, column: pa.ChunkedArray, name: str, wanted: pa.DataType) -> pa.ChunkedArray:
        if _types.is_binary(wanted) and self._binary == "base64":
            return pa.chunked_array(
                [base64_column.decode(chunk, name) for chunk in column.chunks], pa.binary()
            )
        try:
            return column.cast(wanted)
        except pa.ArrowException as cause:
            raise SchemaMismatch(self._refusal(name, wanted, str(cause))) from cause

    def _refusal(self, name: str, wanted: pa.DataType, cause: str) -> str:
        found = _NO_TIME.match(cause)
        if wanted != INSTANT or found is None:
            return f"column {name!r} cannot be read as {wanted}: {cause}"
        need = "times need a zone, as in 2026-01-31T12:00:00Z"
        if name == self._key:
            need = f"keys are whole numbers, without quotes in NDJSON, or times, and {need}"
        return f"column {name!r} has the text {shown(found[1])}: {need}"


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with text wherever a reader took that for a time."""
    if _types.is_temporal(kind):
        return pa.utf8()
    if _types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if _types.is_struct(kind):
        return pa.struct([(field.name, _without_times(field.type)) for field in kind])
    return kind


def _readable(kind: pa.DataType, name: str) -> pa.DataType:
    """The type that a reader of text knows for this one, and that casts to it."""
    if _types.is_timestamp(kind) or _types.is_date(kind) or _types.is_binary(kind):
        return pa.utf8()
    if _types.is_duration(kind):
        return pa.int64()
    if _types.is_list(kind):
        return pa.list_(_readable(kind.value_type, name))
    if _types.is_struct(kind):
        return pa.struct([(field.name, _readable(field.type, name)) for field in kind])
    if _types.is_map(kind):
        raise InvalidInput(f"column {name!r} is a map, which text cannot say: push Parquet")
    return kind
