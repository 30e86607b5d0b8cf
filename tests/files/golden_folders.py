"""The folders whose bytes are kept in `golden/`: what every later release must still upgrade.

A change that makes the tests of these folders fail breaks every queue that exists. A new version of
the format adds an archive and keeps the old ones: `python -m tests.files.golden_folders` writes the
one of the present version if it is missing, and leaves the rest alone.

Each archive has the same queue twice, as a process left it that closed it and as one left it that
died, and `expected.json`: what every fork hands out, in order.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

import tidemill as tm
from tests.faults.driven_queue import StillClock
from tidemill.files.format.frame_table import Entry
from tidemill.files.format.record import ENVELOPE_BYTES
from tidemill.files.format.settings import FORMAT
from tidemill.files.journal.segment import segment_path
from tidemill.files.upkeep.carry import carry

GOLDEN = Path(__file__).parent / "golden"
STATES = ("closed", "crashed")

Expected: TypeAlias = dict[str, list[list[Any]]]  # fork → (seq, key, place, height) of each item

_FIRST = pa.schema([("place", pa.utf8())])
_SECOND = pa.schema([("place", pa.utf8()), ("height", pa.int64())])


def archive_of(version: int) -> Path:
    return GOLDEN / f"format-{version}.tar.gz"


def unpack(version: int, folder: Path) -> Expected:
    """Unpack an archive into `folder`, one queue for each of `STATES`; returns what they hold."""
    with tarfile.open(archive_of(version)) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        # Archives do not keep who may read a folder.
        path.chmod(0o700 if path.is_dir() else 0o600)
    expected: Expected = json.loads((folder / "expected.json").read_bytes())
    return expected


def contents(queue: tm.PriorityQueue) -> Expected:
    """What every fork would hand out."""
    found = {}
    for name in ("", *queue.forks()):
        end = queue.fork(name) if name else queue
        rows = end.peek(-1).to_arrow()
        columns = [rows.column(one).to_pylist() for one in ("seq", "key", "place", "height")]
        found[name] = [list(row) for row in zip(*columns, strict=True)]
        assert len(end) == len(found[name])
    return found


def _open(path: Path, **options: Any) -> tm.PriorityQueue:
    return tm.PriorityQueue(
        path,
        bucket=tm.Width(100),
        clock=StillClock(),
        maintain_in_background=False,
        segment_bytes=16 * 1024,
        **options,
    )


def _rows(start: int, count: int) -> list[tuple[int, dict[str, Any]]]:
    numbers = range(start, start + count)
    return [((number * 37) % 400 - 100, {"place": f"place {number}"}) for number in numbers]


def _damage(path: Path, entry: Entry) -> None:
    """Change one byte of a frame's body."""
    segment = segment_path(path / "journal", entry.segment)
    at = entry.offset + ENVELOPE_BYTES + entry.length - 100
    data = bytearray(segment.read_bytes())
    data[at] ^= 4
    segment.write_bytes(data)


def make(path: Path, crashed: Path) -> Expected:
    """A queue with every kind of record, several segments, carried frames and a quarantine; a copy
    in `crashed` as it is before closing.
    """
    with _open(path, schema=_FIRST) as queue:
        audit = queue.fork("audit")
        for start in range(0, 200, 10):
            queue.push(_rows(start, 10))
        late = audit.fork("late")
        queue.fork("gone").remove()
        queue.pop(30)
        audit.pop(12)
        audit.delete(50, 119)
        late.delete(250, 260)
    with _open(path, schema=_SECOND) as queue:
        queue.push([(key, {"place": "high up", "height": key * 10}) for key in (-7, 0, 7, 77, 299)])
        folder = queue._core.folder
        folder.journal.roll()
        # What is left of the oldest segment moves, each row for the forks that still need it.
        carry(folder, min(folder.journal.segments))
        assert len(folder.state.audiences) > 1
        folder.journal.roll()
        damaged = list(folder.index.frames_of_segment(min(folder.journal.segments)))[-1]
    _damage(path, damaged)
    with _open(path, on_corruption="continue") as queue:
        contents(queue)
        assert queue.stats().quarantined == 1
        queue.push(_rows(200, 25))
        queue.fork("late").pop(3)
        with queue.read(2) as read:
            read.push([(9, {"place": "pushed by a read", "height": 1})])
        expected = contents(queue)
        assert queue.stats().segments > 2
        shutil.copytree(path, crashed)
    return expected


def write_missing() -> None:
    """Write the archive of the present version if it is not there yet."""
    if archive_of(FORMAT).exists():
        return
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        expected = make(root / "closed", root / "crashed")
        (root / "expected.json").write_text(json.dumps(expected))
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(root.rglob("*")):
                archive.add(path, path.relative_to(root), recursive=False, filter=_anonymous)
    archive_of(FORMAT).write_bytes(gzip.compress(data.getvalue(), mtime=0))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


if __name__ == "__main__":
    write_missing()
