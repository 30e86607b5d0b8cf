"""Rows that go out: NDJSON, CSV, Parquet or lines, to a file or to standard output.

A file gets its name when all rows are in it and on disk, so that whoever pops may pop then, and a
full disk or a crash leaves neither half a file nor a lost row.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import InvalidInput
from tidemill.files.disk.storage import typed
from tidemill.gateway.refusal import NotFound
from tidemill.gateway.rows.json_text import bytes_as_text, encode_ndjson, text_of
from tidemill.gateway.rows.source import format_of
from tidemill.gateway.rows.table_text import render
from tidemill.gateway.standard_streams import check_open

TABLE = "table"


class RowSink(Protocol):
    """Takes rows; `finish` writes what is still held back."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None: ...


@contextmanager
def open_sink(
    to: str, given: str | None, schema: pa.Schema, *, binary: str, overwrite: bool = False
) -> Iterator[RowSink]:
    """A sink for rows of this schema: on leaving the block everything is written and flushed, and
    on disk if it is a file. A block that raises leaves no file.
    """
    kind = choose_format(to, given)
    if to == "-":
        check_open(1)
        with _storage(Path("standard output")):
            sink = _sink(kind, sys.stdout.buffer, schema, binary)
            yield sink
            sink.finish()
            sys.stdout.buffer.flush()
            _sync(sys.stdout.buffer)
        return
    path = Path(to)
    if to.endswith(os.sep):
        raise InvalidInput(f"{to} is the name of a folder, not of a file to write to")
    with _storage(path):
        before = _check_target(path, overwrite=overwrite)
        if before is not None and not stat.S_ISREG(before.st_mode):
            # A device or a named pipe is written to; a file in its place would be the end of it.
            with open(path, "wb") as stream:
                sink = _sink(kind, stream, schema, binary)
                yield sink
                sink.finish()
            return
        # Through a link to the file that it names: the link stays.
        path = path.resolve()
        draft = path.with_name(f".tidemill-{os.getpid()}-{secrets.token_hex(4)}.partial")
        try:
            with open(draft, "xb") as stream:
                if before is not None:
                    os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
                sink = _sink(kind, stream, schema, binary)
                yield sink
                sink.finish()
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, path)
            _sync_folder(path.parent)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def choose_format(to: str, given: str | None) -> str:
    """What is written there: a terminal gets a table, a pipe NDJSON, unless told otherwise."""
    if to == "-" and given is None:
        return TABLE if sys.stdout and sys.stdout.isatty() else "ndjson"
    return format_of(to, given)


class _Ndjson:
    def __init__(self, stream: BinaryIO, binary: str) -> None:
        self._stream = stream
        self._binary = binary

    def write(self, batch: pa.RecordBatch) -> None:
        for text in encode_ndjson(batch, binary=self._binary):
            self._stream.write(text)

    def finish(self) -> None:
        pass


class _Csv:
    def __init__(self, stream: BinaryIO, schema: pa.Schema, binary: str) -> None:
        from pyarrow import csv  # noqa: PLC0415  Only whoever writes CSV pays for it.

        for field in schema:
            if pa.types.is_nested(field.type):
                raise InvalidInput(
                    f"column {field.name!r} is a {field.type}, which CSV cannot hold: "
                    "write ndjson or parquet"
                )
        self._binary = binary
        text = pa.schema([(field.name, _csv_type(field.type)) for field in schema])
        self._writer = csv.CSVWriter(_Unseekable(stream), text)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            _csv_text(column, name, self._binary)
            for column, name in zip(batch.columns, batch.schema.names, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, batch.schema.names))

    def finish(self) -> None:
        self._writer.close()


class _Parquet:
    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        from pyarrow import parquet  # noqa: PLC0415

        self._writer = parquet.ParquetWriter(_Unseekable(stream), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._writer.close()


class _Lines:
    """The values alone, a line each; a value with a line end in it would come back as two."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        names = [name for name in schema.names if name not in ("seq", "key", "time")]
        if len(names) != 1:
            raise InvalidInput(
                f"lines hold one column, but there are {', '.join(names)}: "
                "write ndjson or csv, or choose one by --columns where a command has it"
            )
        self._name = names[0]
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        column = batch.column(self._name)
        column = column if pa.types.is_binary(column.type) else column.cast(pa.utf8())
        column = column.cast(pa.binary())
        if column.null_count or pc.any(pc.match_substring(column, "\n")).as_py():
            raise InvalidInput(
                f"column {self._name!r} holds a null or a line end, which lines cannot say: "
                "write ndjson"
            )
        if len(column):
            self._stream.write(text_of(pc.binary_join_element_wise(column, b"", b"\n")))

    def finish(self) -> None:
        pass


class _Table:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._stream.write(render(batch).encode(errors="backslashreplace") + b"\n")

    def finish(self) -> None:
        pass


class _Unseekable:
    """A pipe with a position, which Arrow asks for though it only ever appends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._position = 0
        self.closed = False

    def write(self, data: pa.Buffer) -> int:
        self._stream.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        # The stream itself is closed by whoever opened it.
        self.closed = True


def _sink(kind: str, stream: BinaryIO, schema: pa.Schema, binary: str) -> RowSink:
    if kind == "csv":
        return _Csv(stream, schema, binary)
    if kind == "parquet":
        return _Parquet(stream, schema)
    if kind == "lines":
        return _Lines(stream, schema)
    return _Table(stream) if kind == TABLE else _Ndjson(stream, binary)


def _csv_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary(kind) or (pa.types.is_temporal(kind) and not pa.types.is_duration(kind)):
        return pa.utf8()
    return pa.int64() if pa.types.is_duration(kind) else kind


def _csv_text(column: pa.Array, name: str, binary: str) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind):
        return bytes_as_text(column, name, binary)
    if pa.types.is_timestamp(kind):
        return pc.replace_substring(column.cast(pa.utf8()), " ", "T")
    return column.cast(_csv_type(kind))


def _check_target(path: Path, *, overwrite: bool) -> os.stat_result | None:
    """What is there already, if it may be written to or replaced."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if not path.resolve().parent.is_dir():
            raise NotFound(f"there is no folder {path.parent} to write {path.name} to") from None
        return None
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"{path} is a folder, not a file to write to")
    if stat.S_ISREG(found.st_mode) and not overwrite:
        raise InvalidInput(f"{path} is there already: name another file, or add --overwrite")
    return found


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    """Errors of the disk as errors of ours; a broken pipe stays what it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise typed(error, "writing", path) from error


def _sync(stream: BinaryIO) -> None:
    """Put redirected output on disk; a pipe or a terminal has none."""
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
