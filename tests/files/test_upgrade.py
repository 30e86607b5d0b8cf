"""Folders of older formats: refused with the command that helps, and upgraded without loss."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import tidemill as tm
from tests.faults.crash_states import enumerate_states
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.files.golden_folders import STATES, archive_of, contents, unpack
from tests.files.small_segments import files_of
from tests.files.test_settings import rewrite
from tidemill.files.folder.upgrade import upgrade
from tidemill.files.format.settings import FORMAT, FORMATS_OLD, NAME


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [*FORMATS_OLD, FORMAT])
def test_a_folder_of_every_format_gives_all_its_items(
    version: int, state: str, tmp_path: Path
) -> None:
    expected = unpack(version, tmp_path)
    folder = tmp_path / state
    done = upgrade(folder)
    assert (done.before, done.after, done.changed) == (version, FORMAT, version != FORMAT)
    for _ in range(2):
        with tm.PriorityQueue(folder) as queue:
            assert contents(queue) == expected
            assert queue.stats().quarantined == 1
    with tm.PriorityQueue(folder) as queue:
        queue.push([(-99, {"place": "after the upgrade", "height": 1})])
        for name, rows in expected.items():
            end = queue.fork(name) if name else queue
            assert [row[1] for row in rows] == end.pop(-1).keys.to_pylist()[1:]


def test_every_format_has_a_golden_folder() -> None:
    for version in (*FORMATS_OLD, FORMAT):
        assert archive_of(version).stat().st_size < 100_000


@pytest.mark.parametrize("state", STATES)
def test_an_older_format_is_refused_with_the_command_that_helps(state: str, tmp_path: Path) -> None:
    unpack(1, tmp_path)
    folder = tmp_path / state
    before = files_of(folder)
    with pytest.raises(tm.OldFormat, match=f"run `tidemill upgrade {folder}`"):
        tm.PriorityQueue(folder)
    assert files_of(folder) == before


def test_an_upgrade_changes_nothing_but_the_settings(tmp_path: Path) -> None:
    unpack(1, tmp_path)
    folder = tmp_path / "closed"
    before = files_of(folder)
    assert upgrade(folder).changed
    after = files_of(folder)
    assert {name for name in after if after[name] != before.get(name)} == {NAME}
    assert json.loads(after[NAME])["format"] == FORMAT
    assert after.keys() == before.keys()
    assert not upgrade(folder).changed
    assert files_of(folder) == after


def test_a_newer_format_is_not_upgraded(tmp_path: Path) -> None:
    tm.PriorityQueue(tmp_path / "queue").close()
    rewrite(tmp_path / "queue" / NAME, format=99)
    before = files_of(tmp_path)
    with pytest.raises(tm.UnknownFormat, match="99"):
        upgrade(tmp_path / "queue")
    assert files_of(tmp_path) == before


def test_what_is_no_queue_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear reader")
    before = files_of(tmp_path)
    for name in ("file", "other", "nowhere"):
        with pytest.raises(tm.NotAQueue, match=name):
            upgrade(tmp_path / name)
    assert files_of(tmp_path) == before


def test_a_folder_in_use_is_not_upgraded(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path / "queue"), pytest.raises(tm.Locked):
        upgrade(tmp_path / "queue")


def test_damaged_settings_are_not_upgraded(tmp_path: Path) -> None:
    unpack(1, tmp_path)
    settings = tmp_path / "closed" / NAME
    settings.write_text(settings.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(tm.Corrupt, match="checksum"):
        upgrade(tmp_path / "closed")


def _in_memory(folder: Path) -> MemoryFileSystem:
    """A folder of the disk, copied into memory."""
    fs = MemoryFileSystem()
    for path in (folder, *sorted(folder.rglob("*"))):
        inside = Path("/") / path.relative_to(folder.parent)
        if path.is_dir():
            fs.make_folder(inside)
        else:
            fs.open(inside, create=True).pwrite([path.read_bytes()], 0)
    return MemoryFileSystem(fs.image())


def test_a_crash_at_any_moment_of_an_upgrade_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    expected = unpack(1, tmp_path)
    fs = _in_memory(tmp_path / "crashed")
    path = Path("/crashed")
    upgrade(path, file_system=fs)
    outcomes = set()
    states = 0
    for state in enumerate_states(fs.trace):
        states += 1
        disk = MemoryFileSystem(state.image)
        outcomes.add(upgrade(path, file_system=disk).before)
        disk.die()
        with tm.PriorityQueue(path, file_system=disk, maintain_in_background=False) as queue:
            assert contents(queue) == expected
    assert outcomes == {1, FORMAT}
    assert states > 5


def test_an_error_of_the_disk_leaves_a_folder_that_can_be_upgraded(tmp_path: Path) -> None:
    expected = unpack(1, tmp_path)
    path = Path("/closed")
    counting = FailingFileSystem(_in_memory(tmp_path / "closed"))
    upgrade(path, file_system=counting)
    for number in range(1, counting.calls + 1):
        disk = _in_memory(tmp_path / "closed")
        failing = FailingFileSystem(disk, fail_at=number)
        try:
            upgrade(path, file_system=failing)
        except tm.SurroundingsError:
            pass
        assert failing.fired
        disk.die()
        upgrade(path, file_system=disk)
        disk.die()
        with tm.PriorityQueue(path, file_system=disk, maintain_in_background=False) as queue:
            assert contents(queue) == expected


def test_a_backup_of_the_old_folder_stays_as_it_was(tmp_path: Path) -> None:
    unpack(1, tmp_path)
    shutil.copytree(tmp_path / "closed", tmp_path / "backup")
    upgrade(tmp_path / "closed")
    with pytest.raises(tm.OldFormat):
        tm.PriorityQueue(tmp_path / "backup")
