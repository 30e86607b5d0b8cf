"""The records that were set aside, for people: list them, save them, push them back, drop them."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from tidemill.batch import HEADER_BYTES, SchemaVersions
from tidemill.errors import InvalidInput, NotAQueue
from tidemill.files.disk.filesystem import Buffer, FileSystem, LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.doctor.salvage import Salvaged, read_head
from tidemill.files.doctor.salvage import salvage as salvage_bytes
from tidemill.files.folder.folder_path import folder_path
from tidemill.files.folder.quarantine import (
    Copy,
    names_of_copies,
    note_pushed_back,
    read_bytes,
    read_copy,
    remove_copy,
)
from tidemill.files.format.record import ENVELOPE_BYTES, Kind, split_place
from tidemill.files.format.settings import read_settings
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.queue.receipt import Receipt
from tidemill.files.state.bucket import BucketFunction

SaveForm: TypeAlias = Literal["parquet", "ndjson", "raw"]

_SUFFIXES: dict[str, SaveForm] = {".parquet": "parquet", ".ndjson": "ndjson", ".jsonl": "ndjson"}


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record that was set aside, with what its first bytes still tell."""

    name: str  # by which the other functions know it
    segment: int  # where it stood
    offset: int
    bytes: int  # of the copy
    reason: str  # what is wrong with it
    kind: str | None  # such as "FRAME"; None: its envelope is damaged
    rows: int | None  # of a frame, how many items it had; None: not known
    keys: tuple[int, int] | None  # of a frame, the least and the greatest
    seqs: tuple[int, int] | None  # of a frame, the least and the greatest
    pushed_back: tuple[int, int] | None  # the seqs that its items got when they were

    def to_json(self) -> dict[str, Any]:
        """The record as plain data for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def quarantined(
    path: str | os.PathLike[str], *, file_system: FileSystem | None = None
) -> list[Quarantined]:
    """All records of a queue that were set aside and not dropped since, by place.

    >>> import tempfile, tidemill as tm
    >>> folder = tempfile.mkdtemp()
    >>> tm.PriorityQueue(folder).close()
    >>> tm.doctor.quarantined(folder)
    []
    """
    fs, folder = file_system or LocalFileSystem(), folder_path(path, "a queue")
    with storage_errors("listing the quarantine of", folder):
        _check_folder(fs, folder)
        return [_describe(fs, folder, name) for name in names_of_copies(fs, folder)]


def salvage(
    path: str | os.PathLike[str], name: str, *, file_system: FileSystem | None = None
) -> Salvaged:
    """Whatever rows of a record that was set aside still decode, as a batch."""
    fs, folder = file_system or LocalFileSystem(), folder_path(path, "a queue")
    with storage_errors("reading the quarantine of", folder):
        versions = _check_folder(fs, folder)
        copy = read_copy(fs, folder, name)
        return salvage_bytes(read_bytes(fs, folder, name), copy.place, versions)


def save(
    path: str | os.PathLike[str],
    name: str,
    target: str | os.PathLike[str],
    *,
    form: SaveForm | None = None,  # None: by the name of the target, else the bytes as they are
    file_system: FileSystem | None = None,
) -> Salvaged | None:
    """Save a record that was set aside to a new file: its rows, or its bytes as they are.

    Returns what was saved, None for bytes. In NDJSON, binary values are in base64.
    """
    fs, folder = file_system or LocalFileSystem(), folder_path(path, "a queue")
    goal = Path(target)
    chosen = form or _SUFFIXES.get(goal.suffix, "raw")
    if chosen not in ("parquet", "ndjson", "raw"):
        raise InvalidInput(f"a record is saved as parquet, ndjson or raw, not as {chosen!r}")
    with storage_errors("saving to", goal):
        if chosen == "raw":
            read_copy(fs, folder, name)
            _write_new(fs, goal, [read_bytes(fs, folder, name)])
            return None
        found = salvage(folder, name, file_system=fs)
        if found.batch is None:
            raise InvalidInput(
                f"record {name} has nothing to save as {chosen}: {found.words}; save it as raw "
                "bytes"
            )
        table = pa.Table.from_batches([found.batch.to_arrow()])
        _write_new(fs, goal, _parquet(table) if chosen == "parquet" else _ndjson(table))
        return found


def push_back(
    path: str | os.PathLike[str],
    name: str,
    *,
    unverified: bool = False,  # also rows of which some bytes are wrong
    again: bool = False,  # also if they were pushed back before
    bucket: BucketFunction | None = None,  # as for opening the queue
    file_system: FileSystem | None = None,
) -> Receipt:
    """Push the rows of a record that was set aside into its queue again.

    To every fork it is a push: they get new seqs, and a fork that had consumed them before the
    damage gets them once more. The copy stays until it is dropped.
    """
    fs, folder = file_system or LocalFileSystem(), folder_path(path, "a queue")
    found = salvage(folder, name, file_system=fs)
    if found.batch is None:
        raise InvalidInput(f"record {name} has nothing to push back: {found.words}")
    if not found.is_verified and not unverified:
        raise InvalidInput(
            f"record {name}: {found.words}; save and look at the rows, then push them back as "
            "unverified ones if they will do"
        )
    with PriorityQueue(folder, bucket=bucket, file_system=fs) as queue:
        # Looked at when nobody else can push it back meanwhile.
        if not again:
            _check_not_pushed_back(read_copy(fs, folder, name))
        receipt = queue.push(found.batch)
        with storage_errors("noting in the quarantine of", folder):
            note_pushed_back(fs, folder, name, (receipt.first, receipt.last))
    return receipt


def _check_not_pushed_back(copy: Copy) -> None:
    if copy.problem is not None:
        raise InvalidInput(
            f"whether record {copy.name} was pushed back already is not known: {copy.problem}; "
            "look whether its items are there, then drop it, or say that it should be pushed again"
        )
    if copy.pushed_back is not None:
        first, last = copy.pushed_back
        raise InvalidInput(
            f"record {copy.name} was pushed back already, as seqs {first} to {last}; drop it, or "
            "say that it should be pushed again"
        )


def drop(path: str | os.PathLike[str], name: str, *, file_system: FileSystem | None = None) -> None:
    """Destroy the copy of a record that was set aside, for good."""
    fs, folder = file_system or LocalFileSystem(), folder_path(path, "a queue")
    with storage_errors("dropping from the quarantine of", folder):
        _check_folder(fs, folder)
        read_copy(fs, folder, name)
        remove_copy(fs, folder, name)


def _check_folder(fs: FileSystem, folder: Path) -> SchemaVersions:
    try:
        settings = read_settings(fs, folder, accept_old=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotAQueue(f"{folder} is no folder; name the folder of a queue") from error
    if settings is None:
        raise NotAQueue(
            f"{folder} has no settings.json, and so is no queue; name the folder of one"
        )
    return settings.versions


def _describe(fs: FileSystem, folder: Path, name: str) -> Quarantined:
    copy = read_copy(fs, folder, name)
    start = read_bytes(fs, folder, name, ENVELOPE_BYTES + HEADER_BYTES)
    envelope, header = read_head(start, copy.place)
    segment, offset = split_place(copy.place)
    kind, rows, keys, seqs = None, None, None, None
    if envelope is not None:
        kind = envelope.kind.name
        rows = envelope.rows if envelope.kind is Kind.FRAME else 0
    if header is not None:
        kind, rows, keys = Kind.FRAME.name, header.rows, (header.key_min, header.key_max)
        last = header.producer_number if header.carried else header.first_seq + header.rows - 1
        seqs = header.first_seq, last
    reason = copy.reason or f"not known: {copy.problem}"
    return Quarantined(
        name, segment, offset, copy.bytes, reason, kind, rows, keys, seqs, copy.pushed_back
    )


def _parquet(table: pa.Table) -> list[Buffer]:
    from pyarrow import parquet  # noqa: PLC0415  It takes long to import, and few need it.

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return [sink.getvalue()]


def _ndjson(table: pa.Table) -> list[Buffer]:
    lines = [json.dumps(row, default=_plain) for row in table.to_pylist()]
    return [("\n".join(lines) + "\n").encode()]


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _write_new(fs: FileSystem, path: Path, parts: list[Buffer]) -> None:
    try:
        file = fs.open(path, create=True)
    except FileExistsError as error:
        raise InvalidInput(f"{path} is there already; name a new file") from error
    try:
        file.pwrite(parts, 0)
        file.sync()
    finally:
        file.close()
