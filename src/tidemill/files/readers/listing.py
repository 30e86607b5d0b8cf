"""Lists the records of a journal as they lie in its files, for people who want to see for
themselves: nothing is locked, changed or left out, damage included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidemill.batch.header import FrameHeader
from tidemill.errors import Corrupt, NotAQueue
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import Kind, split_place
from tidemill.files.format.settings import NAME as SETTINGS_NAME
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.journal.scan import Damage, Finding, Found, scan
from tidemill.files.journal.segment import segment_path
from tidemill.files.journal.spine import SpineEntry, unpack_entries
from tidemill.files.recovery.adoption import origins_in
from tidemill.files.state.cut import unpack_cut

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEGMENT = ".segment"


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """One record, or a stretch of damage."""

    segment: int
    offset: int
    kind: str  # a kind of `record.Kind` in small letters, or "damage"
    length: int  # bytes in the file, as far as they are known
    rows: int  # of a frame
    commit: bool  # whether an operation ends here
    epoch: int | None  # of the owner that wrote it
    details: Any  # what it says, by kind: names and values, or whatever JSON can say


def list_records(folder: Path, file_system: FileSystem | None = None) -> Iterator[ListedRecord]:
    """All records of the journal in a folder, oldest first.

    It may run beside the owner of the folder: a segment that goes meanwhile is passed over, and
    what is being written just then may show as damage at the very end.

    >>> import tempfile, tidemill as tm
    >>> folder = Path(tempfile.mkdtemp())
    >>> with tm.PriorityQueue(folder) as queue:
    ...     receipt = queue.push([(5, b"a")])
    >>> [record.kind for record in list_records(folder)]
    ['state', 'state', 'frame']
    """
    fs = file_system or LocalFileSystem()
    journal = folder / JOURNAL_NAME
    with storage_errors("reading", folder):
        try:
            if SETTINGS_NAME not in fs.list_folder(folder):
                raise NotAQueue(f"{folder} holds no queue")
            names = fs.list_folder(journal)
            origins = origins_in(fs, journal)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotAQueue(f"{folder} holds no queue") from error
        for name in sorted(name for name in names if name.endswith(_SEGMENT)):
            number = int(name.removesuffix(_SEGMENT))
            yield from _segment(fs, journal, number, origins.get(number))


def _segment(
    fs: FileSystem, journal: Path, number: int, origin: Origin | None
) -> Iterator[ListedRecord]:
    path = segment_path(journal, number)
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return
    try:
        for finding in scan(file, number, _spine(fs, path.with_suffix(".spine")), origin):
            if isinstance(finding, Damage) and path.name not in fs.list_folder(journal):
                return  # It went meanwhile, and the next segment has its file.
            yield _listed(finding)
    finally:
        file.close()


def _spine(fs: FileSystem, path: Path) -> list[SpineEntry]:
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return []
    try:
        return unpack_entries(file.pread(file.size(), 0))
    finally:
        file.close()


def _listed(finding: Finding) -> ListedRecord:
    if isinstance(finding, Damage):
        segment, offset = split_place(finding.place)
        details = {"reason": finding.reason}
        return ListedRecord(
            segment, offset, "damage", finding.length, finding.rows, False, None, details
        )
    envelope = finding.envelope
    segment, offset = split_place(envelope.place)
    return ListedRecord(
        segment,
        offset,
        envelope.kind.name.lower(),
        envelope.total_bytes,
        envelope.rows,
        envelope.commit,
        envelope.epoch,
        _details(finding),
    )


def _details(found: Found) -> Any:
    if found.header is not None:
        return _frame(found.header, found.envelope.audience)
    if found.envelope.kind is Kind.CUT:
        fork, cut, rows = unpack_cut(found.payload, found.envelope.place)
        return {
            "fork": fork,
            "consumed": rows,
            "arrived": cut.arrived,
            "low": cut.low,
            "high": cut.high,
            "seq": cut.seq,
        }
    try:
        return json.loads(found.payload)
    except ValueError as error:
        raise Corrupt(f"a {found.envelope.kind.name} record is no JSON: {error}") from error


def _frame(header: FrameHeader, audience: int) -> dict[str, Any]:
    # A carried frame keeps the greatest seq of its rows where others keep the producer's number.
    last = header.producer_number if header.carried else header.first_seq + header.rows - 1
    return {
        "key_min": header.key_min,
        "key_max": header.key_max,
        "first_seq": header.first_seq,
        "last_seq": last,
        "time": (_EPOCH + timedelta(microseconds=header.time_us)).isoformat(),
        "carried": header.carried,
        "audience": audience,
        "schema": f"{header.fingerprint:016x}",
    }
