"""A log that is not the one its archive continues: nothing of it is released."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tidemill as tm
from tests.faults.crash_states import replay_state
from tests.faults.memory_fs import MemoryFileSystem
from tests.log.contract.writing import append
from tests.services.mariadb import MariaDB
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.folder import FolderObjects
from tidemill.log.on_files.store import FileLog


def send(log: tm.Log, what: bytes, first: int, last: int) -> None:
    """Rows that take so much together that a folder would give some of them back."""
    with log.publisher() as out:
        for number in range(first, last + 1):
            out.send(b"%s %d " % (what, number) + bytes(2_000))


def own_rows(log: tm.Log, what: bytes, first: int, last: int) -> int:
    rows = log.read(first, rows_max=last + 1 - first).rows()
    return sum(row.startswith(what + b" ") for row in rows)


def test_a_backup_that_went_on_keeps_its_rows(tmp_path: Path) -> None:
    path, backup = tmp_path / "log", tmp_path / "backup"
    with tm.Log(path, segment_bytes=16 * 1024) as log:
        send(log, b"old", 1, 10)
        log.archive(tmp_path / "archive")
    shutil.copytree(path, backup)
    with tm.Log(path) as log:
        send(log, b"old", 11, 40)
        log.archive()
    shutil.rmtree(path)
    backup.rename(path)
    with tm.Log(path) as log:
        send(log, b"new", 11, 60)
        for _ in range(2):
            with pytest.raises(tm.Corrupt, match=r"row 40 of .* an older copy"):
                log.archive()
        assert own_rows(log, b"new", 11, 60) == 50
    with tm.Log(tmp_path / "archive") as alone:
        assert own_rows(alone, b"old", 1, 40) == 40, "the archive has what it had"


def test_a_log_whose_copy_was_archived_keeps_its_rows(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log", segment_bytes=16 * 1024) as log:
        send(log, b"mine", 1, 10)
        log.archive(tmp_path / "archive")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    with tm.Log(tmp_path / "copy") as copy:
        send(copy, b"test", 11, 30)
        copy.archive()
    with tm.Log(tmp_path / "log") as log:
        send(log, b"mine", 11, 40)
        with pytest.raises(tm.Corrupt, match=r"row 30 of .* a copy of it was"):
            log.archive()
        assert own_rows(log, b"mine", 11, 40) == 30


@pytest.mark.slow
def test_tables_from_a_dump_keep_what_was_sent_since(
    mariadb: MariaDB, database: str, tmp_path: Path
) -> None:
    url = mariadb.url(database, "orders")
    with tm.Log(url, parallelism=1) as log:
        send(log, b"old", 1, 10)
        log.archive(tmp_path / "archive")
    names = mariadb.execute(f"SHOW TABLES FROM {database}")
    for (name,) in names:
        mariadb.execute(f"CREATE TABLE {database}.`kept {name}` LIKE {database}.`{name}`")
        mariadb.execute(f"INSERT {database}.`kept {name}` SELECT * FROM {database}.`{name}`")
    with tm.Log(url) as log:
        send(log, b"old", 11, 40)
        log.archive()
    for (name,) in names:
        mariadb.execute(f"DELETE FROM {database}.`{name}`")
        mariadb.execute(f"INSERT {database}.`{name}` SELECT * FROM {database}.`kept {name}`")
    with tm.Log(url) as log:
        send(log, b"new", 11, 60)
        with pytest.raises(tm.Corrupt, match=r"row 40 of .* an older copy"):
            log.archive()
        assert own_rows(log, b"new", 11, 60) == 50


def test_an_archive_is_never_ahead_of_its_log_after_a_power_cut() -> None:
    disk = MemoryFileSystem()
    path, archive = Path("/log"), Path("/archive")
    with FileLog(path, sync="none", file_system=disk) as log:
        writer = log.claim()
        append(writer, [b"a", b"b"])
        Archiver(log, Archive(FolderObjects(archive, disk))).run(3)
        append(writer, [b"c", b"d", b"e"])
        before = len(disk.trace.operations)
        Archiver(log, Archive(FolderObjects(archive, disk))).run(6)
        after = len(disk.trace.operations)
    seen = set()
    for point in range(before, after + 1):
        fs = replay_state(disk.trace, f"{point}:0").file_system()  # Nothing that was not synced.
        manifest = Archive(FolderObjects(archive, fs)).look()
        with FileLog(path, file_system=fs) as log:
            seen.add((manifest.next, log.ends().next))
    assert (6, 6) in seen
    assert {one for one in seen if one[0] > one[1]} == set()
