"""Rows that come in: NDJSON, CSV, Parquet or lines, from a file or from standard input.

Whatever its size, an input is read a block at a time, and each block becomes one batch. What comes
through a pipe waits for a moment only: `tail -F` never ends, and may not fill a block for hours.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import select
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from tidemill.errors import InvalidInput, NoAccess, TooLarge
from tidemill.gateway.console import say
from tidemill.gateway.refusal import NotFound
from tidemill.gateway.rows.text_columns import TextColumns
from tidemill.gateway.standard_streams import check_open
from tidemill.limits import INT64_MAX, INT64_MIN, JSON_DEPTH_MAX, LINE_BYTES_MAX, MIB
from tidemill.shown import shown

BLOCK_BYTES = 8 * MIB
# Arrow reads 32 blocks of CSV ahead, so that these are smaller, and joined again behind it.
_CSV_BLOCK_BYTES = 2 * MIB
_BLOCK_ROWS_MAX = 256 * 1024
_MOMENT_S = 0.1  # for which rows of a pipe wait for more to go in with them
_OPENING = np.frombuffer(b"{[", np.uint8)
_CLOSING = np.frombuffer(b"}]", np.uint8)
# Also one that does not end: else the search would begin again within it, at each quote.
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[:\[,]\s*(-?[0-9]{19,})(?=\s*[,}\]])")
_DIGITS_OF_A_FLOAT_MAX = 22  # and a sign
_EXTENSIONS = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def format_of(name: str, given: str | None, *, otherwise: str | None = None) -> str:
    """The format of a file, as given or by its name.

    >>> format_of("events.parquet", None), format_of("-", None, otherwise="ndjson")
    ('parquet', 'ndjson')
    """
    found = given or _EXTENSIONS.get(Path(name).suffix.lower()) or otherwise
    if found is None:
        raise InvalidInput(f"the name {name!r} does not tell the format: add --format")
    return found


class RowSource:
    """An input, open for reading once."""

    def __init__(
        self, stream: BinaryIO, name: str, kind: str, *, binary: str, is_live: bool = False
    ) -> None:
        self.name = "standard input" if name == "-" else name
        self._stream = stream
        self._kind = kind
        self._binary = binary
        self._bytes_total = _size(stream)
        is_pipe = self._bytes_total is None and isinstance(stream, io.BufferedReader)
        self._pipe = cast("io.BufferedReader", stream) if is_live and is_pipe else None
        self._share: float | None = None

    def batches(self, payload: pa.Schema | None, key: str | None) -> Iterator[pa.RecordBatch]:
        """The rows in order, in batches that are never empty.

        `payload` is the schema they are meant for; without one, text has its types by the first
        block. `key` names the column of the keys.
        """
        columns = TextColumns(payload, key, binary=self._binary)
        readers: dict[str, Callable[[], Iterator[pa.RecordBatch]]] = {
            "ndjson": lambda: self._ndjson(columns),
            "csv": lambda: self._csv(columns),
            "parquet": self._parquet,
            "lines": lambda: self._lines(payload),
        }
        try:
            for batch in readers[self._kind]():
                if batch.num_rows:
                    yield batch
        # Arrow has a plain OSError for some damage as well.
        except (pa.ArrowException, UnicodeDecodeError, OSError) as cause:
            if isinstance(cause, OSError) and cause.errno is not None:
                raise InvalidInput(f"{self.name} cannot be read: {cause.strerror}") from cause
            raise InvalidInput(f"{self.name} is not {self._kind} as expected: {cause}") from cause

    def share(self) -> float | None:
        """How much of the input has been read, if that can be known."""
        if self._share is not None or not self._bytes_total:
            return self._share
        return self._stream.tell() / self._bytes_total

    def _ndjson(self, columns: TextColumns) -> Iterator[pa.RecordBatch]:
        from pyarrow import json  # noqa: PLC0415  Only whoever reads JSON pays for it.

        def read(block: bytes, types: dict[str, pa.DataType], unexpected: str) -> pa.Table:
            self._check_json(block)
            return json.read_json(
                io.BytesIO(block),
                json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                json.ParseOptions(
                    explicit_schema=pa.schema(list(types.items())) if types else None,
                    unexpected_field_behavior=unexpected,
                ),
            )

        settled: dict[str, pa.DataType] | None = None
        # Types that hang on the first block must not hang on when its rows came.
        for block in self._blocks(
            is_first_full=not columns.declared(), is_whole=_ends_with_an_object
        ):
            if not block.strip():
                continue
            if settled is None:
                declared = columns.declared()
                table = read(block, declared, "infer")
                guessed = [field.type for field in table.schema if field.name not in declared]
                if any("double" in str(kind) for kind in guessed):
                    self._check_whole_numbers(block)
                settled = columns.settled(table.schema)
                if settled == dict(zip(table.schema.names, table.schema.types, strict=True)):
                    yield from _batches(columns.finish(table))
                    continue
            yield from _batches(columns.finish(read(block, settled, "error")))

    def _check_json(self, block: bytes) -> None:
        """Refuse what Arrow's reader would end the process over."""
        if not block.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
            raise InvalidInput(
                f"{self.name} is not ndjson as expected: a row is no object; plain lines need "
                "--format lines"
            )
        # Most rows have one bracket each, and then none is deep. A row may go on in the next line;
        # but here one ends and another begins, or it is no JSON.
        between = b"}\r\n{" if b"}\r\n{" in block else b"}\n{"
        if _brackets(block) - block.count(between) <= JSON_DEPTH_MAX:
            return
        for at, rows in enumerate(block.split(between)):
            if _brackets(rows) >= JSON_DEPTH_MAX and _is_deep(b"{" + rows if at else rows):
                raise InvalidInput(
                    f"{self.name} has a row of values within more than {JSON_DEPTH_MAX} others"
                )

    def _check_whole_numbers(self, block: bytes) -> None:
        """Refuse whole numbers that Arrow guessed a float for: it would not keep their digits."""
        for line in block.split(b"\n") if _LONG_NUMBER.search(block) else ():
            for found in _LONG_NUMBER.findall(_TEXT.sub(b'""', line)):
                if not _is_kept(digits := found.decode()):
                    raise InvalidInput(
                        f"{self.name} has the whole number {shown(digits)}, which no int64 holds, "
                        "and a float would change: put it in quotes, or name a type with --schema"
                    )

    def _csv(self, columns: TextColumns) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv  # noqa: PLC0415

        if not self._peek():
            return

        def read() -> Iterator[pa.RecordBatch]:
            yield from csv.open_csv(
                self._stream,
                read_options=csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK_BYTES),
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    column_types=columns.declared(),
                    # An empty field is null, and a quoted empty one is empty: as we write them.
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    # No text looks like this, so that times stay text unless they are declared.
                    timestamp_parsers=["\x01"],
                ),
            )

        held: list[pa.RecordBatch] = []
        for batch in _in_a_thread(read()):
            held.append(batch)
            if sum(one.nbytes for one in held) >= BLOCK_BYTES:
                yield from _batches(columns.finish(pa.Table.from_batches(held)))
                held = []
        if held:
            yield from _batches(columns.finish(pa.Table.from_batches(held)))

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        from pyarrow import parquet  # noqa: PLC0415

        # Pages are read as they are needed, so that large row groups do not fill the memory.
        file = parquet.ParquetFile(self._stream, buffer_size=MIB, pre_buffer=False)
        groups = file.metadata
        size = sum(groups.row_group(at).total_byte_size for at in range(groups.num_row_groups))
        row_bytes = max(size // max(groups.num_rows, 1), 1)
        rows = min(max(BLOCK_BYTES // row_bytes, 1), _BLOCK_ROWS_MAX)
        done = 0
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            done += batch.num_rows
            self._share = done / groups.num_rows
            yield batch

    def _lines(self, payload: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        from tidemill.batch.schema import only_column  # noqa: PLC0415

        field = only_column(payload)
        for block in self._blocks():
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            column = pa.array(lines, pa.binary())
            if field.type != pa.binary():
                column = column.cast(pa.utf8()).cast(field.type)
            yield pa.RecordBatch.from_arrays([column], [field.name])

    def _blocks(
        self, *, is_first_full: bool = False, is_whole: Callable[[bytes], bool] | None = None
    ) -> Iterator[bytes]:
        """The input in blocks of whole lines, and from a pipe of whole rows, as `is_whole` says."""
        rest = b""
        for chunk in self._chunks(is_first_full=is_first_full):
            end = chunk.rfind(b"\n") + 1
            size = len(rest) + end
            if self._pipe is not None and is_whole is not None and size < BLOCK_BYTES:
                end = end if is_whole(rest + chunk[:end]) else 0
            if not end:
                rest += chunk
                if len(rest) > LINE_BYTES_MAX:
                    raise TooLarge(
                        f"{self.name} has a line of more than {LINE_BYTES_MAX // MIB} MiB"
                    )
                continue
            yield rest + chunk[:end]
            rest = chunk[end:]
        if rest:
            yield rest

    def _chunks(self, *, is_first_full: bool) -> Iterator[bytes]:
        """The input by as many bytes as a block has, or as came within a moment."""
        is_end = False
        while not is_end:
            if self._pipe is None or is_first_full:
                chunk = self._stream.read(BLOCK_BYTES)
                # A terminal would have to be told twice that this is the end.
                is_end = len(chunk) < BLOCK_BYTES
                is_first_full = False
            else:
                chunk, is_end = _arriving(self._pipe, BLOCK_BYTES)
            if chunk:
                yield chunk

    def _peek(self) -> bytes:
        """Whether there is anything: Arrow takes an input of nothing for an error."""
        if not isinstance(self._stream, io.BufferedReader):
            self._stream = io.BufferedReader(self._stream)  # type: ignore[type-var]
        return self._stream.peek(1)[:1]


def _ends_with_an_object(block: bytes) -> bool:
    """Whether lines of JSON are whole rows, also if a row takes several, as `jq` writes it: who
    writes into a pipe may pause in the middle. What is no JSON has nothing to wait for.

    >>> _ends_with_an_object(b'{"a":1}\\n'), _ends_with_an_object(b'{\\n "a":1\\n}\\n')
    (True, True)
    >>> _ends_with_an_object(b'{\\n "a":1\\n')
    False
    """
    if not block.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return True
    last = block.rstrip().rpartition(b"\n")[2]
    return last == b"}" or (last.startswith(b"{") and last.endswith(b"}"))


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _is_deep(rows: bytes) -> bool:
    """Whether values lie within too many others; brackets in text do not count."""
    brackets, depth = np.frombuffer(_TEXT.sub(b"", rows), np.uint8), 0
    for start in range(0, len(brackets), MIB):
        piece = brackets[start : start + MIB]
        steps = np.isin(piece, _OPENING).astype(np.int64) - np.isin(piece, _CLOSING)
        depths = depth + steps.cumsum()
        if depths.max() > JSON_DEPTH_MAX:
            return True
        depth = int(depths[-1])
    return False


def _is_kept(digits: str) -> bool:
    """Whether an int64 holds the number, or it is how a float is written, in full up to 10**21.

    >>> [_is_kept(digits) for digits in ("18446744073709552000", "18446744073709551615")]
    [True, False]
    """
    if len(digits) > _DIGITS_OF_A_FLOAT_MAX:
        return False
    number = int(digits)
    return INT64_MIN <= number <= INT64_MAX or number == int(Decimal(repr(float(number))))


def _arriving(stream: io.BufferedReader, bytes_max: int) -> tuple[bytes, bool]:
    """What a pipe gives within a moment, from its next byte on; and whether it has ended."""
    chunks: list[bytes] = []
    size = 0
    until_s = 0.0
    while size < bytes_max:
        if chunks and not select.select([stream], [], [], max(until_s - time.monotonic(), 0))[0]:
            break
        chunk = stream.read1(min(bytes_max - size, MIB))
        if not chunk:
            return b"".join(chunks), True
        until_s = until_s or time.monotonic() + _MOMENT_S
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks), False


@contextmanager
def open_source(
    name: str, given: str | None, *, binary: str, is_live: bool = False
) -> Iterator[RowSource]:
    """Open a file, or standard input for '-'; `is_live` takes lines and NDJSON as they come."""
    found = format_of(name, given, otherwise="ndjson" if name == "-" else None)
    if name == "-":
        check_open(0)
    if name != "-":
        with open_file(name) as stream:
            yield RowSource(stream, name, found, binary=binary, is_live=is_live)
    elif found == "parquet" and not sys.stdin.buffer.seekable():
        # Parquet is read from its end, so what comes through a pipe is put on disk first.
        with tempfile.TemporaryFile(prefix="tidemill-") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy, MIB)
            copy.seek(0)
            yield RowSource(copy, name, found, binary=binary)
    else:
        if sys.stdin.isatty():
            say("reading rows from this terminal; Ctrl-D at the beginning of a line ends them")
        yield RowSource(sys.stdin.buffer, name, found, binary=binary, is_live=is_live)


def open_file(name: str) -> BinaryIO:
    """A file to read; one that cannot be is refused in words."""
    try:
        return open(name, "rb")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {name}") from error
    except IsADirectoryError as error:
        raise InvalidInput(f"{name} is a folder, not a file of rows") from error
    except PermissionError as error:
        raise NoAccess(f"{name} may not be read: check its owner and mode") from error
    except OSError as error:
        raise NotFound(f"{name} cannot be opened: {error.strerror}") from error


def _in_a_thread(reader: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches. Arrow waits for its input where no signal reaches it; a wait for a thread
    ends with Ctrl-C, and the thread with the process.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="tidemill-csv")
    try:
        while (batch := thread.submit(next, reader, None).result()) is not None:
            yield batch
    finally:
        thread.shutdown(wait=False)


def _size(stream: BinaryIO) -> int | None:
    try:
        found = os.fstat(stream.fileno())
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A block as one batch; more than one push of it would be more than one sync."""
    yield from table.combine_chunks().to_batches()
