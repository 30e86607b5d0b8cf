"""Entries of a ring as text: lines that go in, and lines that come out.

An entry is bytes, or what JSON can say. On the way out a line of NDJSON tells which it was, and
exactly: {"offset":7,"value":{"id":1}}, {"offset":8,"text":"bytes that are UTF-8"}, or
{"offset":9,"base64":"/w=="}.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import tidemill as tm
from tidemill.files.disk.storage import typed
from tidemill.gateway.console import Console
from tidemill.gateway.rows.source import open_file
from tidemill.gateway.standard_streams import check_open, knows_all_characters
from tidemill.limits import LINE_BYTES_MAX, MIB

FORMATS = ("ndjson", "lines")
_READ_BYTES = 1 << 20


def parsed(line: bytes, form: str) -> Any:
    """The entry that a line stands for.

    >>> parsed(b'{"id":1}', "ndjson"), parsed(b'{"id":1}', "lines")
    ({'id': 1}, b'{"id":1}')
    """
    if form == "lines":
        return line
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        shown = line[:60].decode(errors="replace")
        raise tm.InvalidInput(f"a line is no JSON, {shown!r}: {error}") from error


def shown(entry: tm.Entry, form: str = "ndjson") -> bytes:
    """The line for an entry.

    >>> shown(tm.Entry(7, b"a")), shown(tm.Entry(8, [1])), shown(tm.Entry(9, b"\\xff"), "lines")
    (b'{"offset":7,"text":"a"}', b'{"offset":8,"value":[1]}', b'\\xff')
    """
    if form == "lines":
        return entry.value if isinstance(entry.value, bytes) else _json(entry.value)
    return _json(document(entry))


def document(entry: tm.Entry) -> dict[str, Any]:
    """What a line of NDJSON says."""
    if not isinstance(entry.value, bytes):
        return {"offset": entry.offset, "value": entry.value}
    try:
        return {"offset": entry.offset, "text": entry.value.decode()}
    except UnicodeDecodeError:
        return {"offset": entry.offset, "base64": base64.b64encode(entry.value).decode()}


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=not knows_all_characters(), separators=(",", ":"))
    return text.encode()


@contextmanager
def open_lines(path: str) -> Iterator[Iterator[list[bytes]]]:
    """The lines of a file or of standard input, as many at once as there are by now."""
    if path == "-":
        check_open(0)
        yield _lines(sys.stdin.buffer)
        return
    with open_file(path) as stream:
        yield _lines(stream)


def _lines(stream: IO[bytes]) -> Iterator[list[bytes]]:
    begun: list[bytes] = []  # of a line whose end has not come
    size = 0
    if not isinstance(stream, io.BufferedReader):
        raise tm.InvalidInput("the input cannot be read as bytes")
    while chunk := stream.read1(_READ_BYTES):
        end = chunk.rfind(b"\n")
        if end >= 0:
            whole = b"".join([*begun, chunk[:end]])
            yield [line.removesuffix(b"\r") for line in whole.split(b"\n")]
            begun, size, chunk = [], 0, chunk[end + 1 :]
        begun.append(chunk)
        size += len(chunk)
        if size > LINE_BYTES_MAX:
            raise tm.TooLarge(f"the input has a line of more than {LINE_BYTES_MAX // MIB} MiB")
    if size:
        yield [b"".join(begun)]


def write_entries(entries: Sequence[tm.Entry], form: str, console: Console) -> None:
    """Write lines for entries, and have them out."""
    if not entries:
        return
    check_open(1)
    console.flush()
    try:
        sys.stdout.buffer.write(b"".join(shown(entry, form) + b"\n" for entry in entries))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise typed(error, "writing", Path("standard output")) from error
