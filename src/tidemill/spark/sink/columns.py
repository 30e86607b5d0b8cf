"""Which columns of a DataFrame go where: the key, the payload, and what a source put in front."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from tidemill.batch import check_payload_schema, to_payload, to_rows
from tidemill.errors import InvalidInput, InvalidKey, SchemaMismatch
from tidemill.spark.schema import check_distinct
from tidemill.spark.sink.options import SinkOptions

_KEY = "key"
# What a source of ours gives beside the payload, and what the queue gives anew when it is written.
_GIVEN = ("seq", "time")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a write; plain, for it travels to the tasks."""

    kept: tuple[str, ...]
    key: str | None  # None: it is written to a log, which has none
    names: tuple[str, ...]  # of all columns that Spark gives

    @classmethod
    def of(cls, schema: StructType, *, queue: bool, key: str | None) -> Columns:
        """Choose, and refuse what cannot be."""
        given = _arrow(schema)
        names = tuple(given.names)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatch(f"the column {twice!r} is there twice; rename one")
        left = set(_GIVEN) if _is_sources(given) else set()
        if queue:
            key = _KEY if key is None else key
            if key not in names:
                raise InvalidKey(
                    f"a priority queue orders its items by a key, and there is no column {key!r} "
                    f'among {", ".join(names)}: add one, or name another, .option("key", …)'
                )
        elif key is not None:
            raise InvalidInput("a log has no keys, and so no option key")
        elif _KEY in names:
            raise SchemaMismatch(
                "a log has no keys: drop the column 'key', rename it, or write to a queue "
                '(one that is not there yet is made with .option("kind", "queue"))'
            )
        return cls(tuple(name for name in names if name not in left), key, names)

    def payload(self, schema: StructType) -> pa.Schema:
        """The payload's schema, for a queue that is made for it."""
        fields = [
            field.with_nullable(True)
            for field in _arrow(schema)
            if field.name in self.kept and field.name != _KEY
        ]
        return check_payload_schema(pa.schema(fields))

    def check(self, schema: StructType, payload: pa.Schema, place: str) -> None:
        """Raise unless rows like these can be written to what has this payload."""
        given = _arrow(schema)
        for name in set(self.kept) & set(payload.names):
            # A text that happens to be a number would pass row by row, until one does not.
            if _is_text(given.field(name).type) and not _is_text(payload.field(name).type):
                raise SchemaMismatch(
                    f"the DataFrame does not fit {place}: its column {name!r} is text, and "
                    f"{payload.field(name).type} is wanted; cast it"
                )
        # As a write of no rows, which tells whether any could be written.
        arrays = [pa.array([], field.type) for field in given]
        empty = self.chosen(pa.RecordBatch.from_arrays(arrays, schema=given))
        try:
            if self.key is None:
                to_payload(empty, schema=payload)
            else:
                to_rows(empty, schema=payload, key=self.key)
        except SchemaMismatch as refusal:
            raise SchemaMismatch(
                f"the DataFrame does not fit {place}, which has {_listed(payload)}: {refusal}"
            ) from refusal

    def chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What is written of a batch."""
        if len(self.kept) == len(self.names):
            return batch
        return batch.select(list(self.kept))


def check_names(options: SinkOptions, schema: StructType) -> None:
    """Raise unless Spark could tell the columns apart when it reads what was written."""
    has_key = options.key is not None or options.kind == "queue"
    given = ("seq", _KEY, "time") if has_key else _GIVEN
    check_distinct((*given, *schema.names), "what is written would have", "rename one")


def _arrow(schema: StructType) -> pa.Schema:
    for field in schema:
        if _holds_variant(field.dataType):
            # Arrow has it as a struct of bytes, which would be read back as just that.
            raise SchemaMismatch(
                f"column {field.name!r} has the type {field.dataType.simpleString()}, which only "
                "Spark knows: write it as a text, to_json(…)"
            )
        try:
            to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkTypeError as refusal:
            kind = field.dataType.simpleString()
            raise SchemaMismatch(
                f"column {field.name!r} has the type {kind}, which Spark does not hand over: "
                "cast it, to a number or a text"
            ) from refusal
    return to_arrow_schema(schema, timezone="UTC")


def _is_sources(schema: pa.Schema) -> bool:
    """Whether the first columns are those that a source of ours gives."""
    return all(name in schema.names for name in _GIVEN) and (
        pa.types.is_int64(schema.field("seq").type)
        and pa.types.is_timestamp(schema.field("time").type)
    )


def _holds_variant(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(_holds_variant(field.dataType) for field in kind)
        case ArrayType():
            return _holds_variant(kind.elementType)
        case MapType():
            return _holds_variant(kind.keyType) or _holds_variant(kind.valueType)
        case _:
            return isinstance(kind, VariantType)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
