"""Damaged records that are set aside: all that were found together or none, without harm to what
lies around them, and known for good to whoever opens or reads the queue later.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.files.counting_fs import CountingFileSystem
from tidemill.files.commit.operation import Quarantine, Retire, unpack_quarantine
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.folder.count import count_left
from tidemill.files.folder.quarantine import keep_copy
from tidemill.files.format.frame_table import Entry
from tidemill.files.format.record import OFFSET_MAX, make_place
from tidemill.files.journal.scan import Damage
from tidemill.files.sharing import lock, pin
from tidemill.files.state.state import State
from tidemill.files.upkeep import queue_core
from tidemill.files.upkeep.carry import carry

FILLING = 30  # pushes that fill a segment and more
DAMAGED = "0000000000000001.segment"


def _open(path: Path, mode: Any = "continue", **options: Any) -> tm.PriorityQueue:
    given = {"maintain_in_background": False, "segment_bytes": 16 * 1024, **options}
    return tm.PriorityQueue(path, on_corruption=mode, **given)


def _fill(queue: tm.PriorityQueue, key: int, pushes: int = FILLING) -> None:
    for _ in range(pushes):
        queue.push([(key, b"x" * 1000)])


def _frames(queue: tm.PriorityQueue, key_max: int) -> list[Entry]:
    found = queue._core.view.index.frames_of_segment(1)
    return [entry for entry in found if entry.key_max <= key_max]


def _spoil(path: Path, offset: int, length: int = 1, name: str = DAMAGED) -> None:
    file = path / "journal" / name
    data = bytearray(file.read_bytes())
    data[offset : offset + length] = bytes(255 - byte for byte in data[offset : offset + length])
    file.write_bytes(data)


def _two_damaged(path: Path, *, popped_by_root: int = 0) -> None:
    """Two frames of ten items that overlap, in part consumed, and both damaged; 31 items behind."""
    with _open(path, "abort") as queue:
        queue.push([(key, b"a") for key in range(0, 20, 2)])
        queue.push([(key, b"b") for key in range(1, 20, 2)])
        queue.push([(100, b"good")])
        queue.fork("audit").pop(4)
        queue.pop(popped_by_root)
        _fill(queue, 1000)
        frames = _frames(queue, 99)
    assert len(frames) == 2
    for entry in frames:
        _spoil(path, entry.offset + entry.length - 20)


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_a_queue_works_on_when_only_some_of_its_damage_could_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed_first: bool
) -> None:
    _two_damaged(tmp_path)
    copies: list[int] = []

    def one_only(*arguments: Any, **options: Any) -> Path:
        copies.append(options["place"])
        if len(copies) == 2:
            raise OSError(errno.ENOSPC, "no room")
        return keep_copy(*arguments, **options)

    monkeypatch.setattr(queue_core, "keep_copy", one_only)
    queue = _open(tmp_path)
    with pytest.raises(tm.DiskFull):
        queue.pop(1)
    assert queue.stats().quarantined == 0
    if is_closed_first:
        queue.close()
        queue = _open(tmp_path)
    # Counted without being read, as the damage is not known to be there.
    assert queue.delete(0, 10**6) == len(queue) + 51
    queue.close()
    for mode in ("abort", "continue"):
        with _open(tmp_path, mode) as queue:
            assert len(queue) == len(queue.peek(-1)) == 0


def test_damage_counts_as_set_aside_only_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that begins meanwhile must not say so, and upkeep must not take it for dead."""
    _two_damaged(tmp_path)
    queue = _open(tmp_path)

    def counting(*arguments: Any) -> dict[int, int]:
        live = count_left(*arguments)
        queue._core.folder.journal.roll()
        assert queue.stats().quarantined == 0
        return live

    monkeypatch.setattr(queue_core, "count_left", counting)
    monkeypatch.setattr(queue_core, "keep_copy", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        queue.pop(1)
    queue.close()
    with _open(tmp_path, "abort") as again, pytest.raises(tm.Corrupt):
        again.pop(1)


def _interrupt(*_arguments: object, **_options: object) -> Path:
    raise KeyboardInterrupt


def _one_of_unreadable_length(path: Path) -> None:
    with _open(path, "abort") as queue:
        for key, value in enumerate([b"one", b"damaged", b"three", b"four"]):
            queue.push([(key, value)])
        [entry] = [entry for entry in _frames(queue, 1) if entry.key_min == 1]
    _spoil(path, entry.offset + 8)  # within the envelope, which alone tells its length


@pytest.mark.parametrize("mode", ["abort", "continue"])
def test_what_lies_behind_a_record_that_was_set_aside_is_found_without_the_summary(
    tmp_path: Path, mode: str
) -> None:
    _one_of_unreadable_length(tmp_path)
    good = [(0, b"one"), (2, b"three"), (3, b"four")]
    with _open(tmp_path) as queue:
        assert (queue.peek(-1).rows(), queue.stats().quarantined) == (good, 1)
        queue._core.maintenance.run_round()
        _fill(queue, 1000, 20)  # so that a state tells it, not the record
    for derived in [*tmp_path.glob("journal/*.summary"), *tmp_path.glob("journal/*.spine")]:
        derived.unlink()
    with _open(tmp_path, mode, read_only=True) as reader:
        assert reader.peek(3).rows() == good
    with _open(tmp_path, mode) as queue:
        assert (queue.peek(3).rows(), len(queue)) == (good, 23)
        assert queue.pop(1).rows() == good[:1]
        queue._core.maintenance.run_round()
    with _open(tmp_path, mode) as queue:
        assert queue.pop(2).rows() == good[1:]
        assert len(queue) == len(queue.pop(-1)) == 20


def test_numbers_of_carried_items_are_not_given_again_when_their_state_is_damaged(
    tmp_path: Path,
) -> None:
    with _open(tmp_path, "abort") as queue:
        folder = queue._core.folder
        queue.push([(5, b"old")] * 5)
        folder.journal.roll()
        queue.push([(5, b"carried")] * 5)
        folder.journal.roll()
        folder.journal.finish_seals()
        carry(folder, 2)
        name, start = folder.journal.active.path.name, folder.journal.active.start
    _spoil(tmp_path, start // 2 - 200, 400, name)  # of both copies
    with _open(tmp_path) as queue:
        assert len(queue) == len(queue.peek(-1)) == 10
        assert queue.push([(5, b"new")] * 5).first == 11
        assert queue.scan(columns=["seq"]).read_all()["seq"].to_pylist() == list(range(1, 16))
        assert queue.delete(0, 10) == 15
    with _open(tmp_path, "abort") as queue:
        assert len(queue) == 0


def test_new_damage_before_a_record_of_older_damage_does_not_keep_a_queue_closed(
    tmp_path: Path,
) -> None:
    with _open(tmp_path, "abort") as queue:
        queue.push([(1, b"damaged")])
        queue.push([(2, b"good")])
        _fill(queue, 10, 14)
        queue._core.maintenance.run_round()
        [entry] = _frames(queue, 1)
    _spoil(tmp_path, entry.offset + entry.length - 20)
    with _open(tmp_path) as queue:
        fork = queue.fork("audit")
        assert queue.pop(1).rows() == fork.pop(1).rows() == [(2, b"good")]
        last = queue._core.folder.journal.active.path
    data, named = last.read_bytes(), b'"name":"audit","parent"'
    first, second = data.find(named), data.rfind(named)
    _spoil(tmp_path, first - 80, second - first + 96, last.name)  # both records of the fork
    with _open(tmp_path) as queue:
        assert queue.forks() == []
        assert len(queue) == len(queue.pop(-1)) == 14


@pytest.mark.parametrize("good", [5, 10, 30])
def test_a_reader_that_passed_over_damage_keeps_step_with_an_owner_that_has_not_seen_it(
    tmp_path: Path, good: int
) -> None:
    with _open(tmp_path, "abort") as queue:
        queue.push([(key, b"damaged") for key in range(10)])
        queue.push([(100 + key, b"good") for key in range(good)])
        _fill(queue, -1, 14)
        queue.pop(14)
        [entry] = [entry for entry in _frames(queue, 50) if entry.rows == 10]
    _spoil(tmp_path, entry.offset + entry.length - 20)
    with _open(tmp_path) as owner, _open(tmp_path, read_only=True) as reader:
        assert len(reader.peek(-1)) == len(reader) == good
        assert owner.delete(0, 9) == 10
        assert len(reader) == len(reader.peek(-1)) == len(owner) == good
        owner.push([(500, b"new")])
        assert len(reader) == len(reader.peek(-1)) == len(owner) == good + 1


def test_a_reader_passes_over_several_damaged_frames(tmp_path: Path) -> None:
    _two_damaged(tmp_path, popped_by_root=4)
    with _open(tmp_path, read_only=True) as reader:
        assert reader.peek(1).rows() == [(100, b"good")]
        assert len(reader) == 31


def test_readers_know_what_was_set_aside_of_the_last_operation_of_a_segment(tmp_path: Path) -> None:
    with _open(tmp_path, bucket=tm.Width(10)) as queue:
        queue.push([(key, b"x" * 500) for key in (1, 11, 21)])
        _, damaged, _ = queue._core.view.index.frames_of_segment(1)
    with open(tmp_path / "journal" / DAMAGED, "r+b") as file:
        file.seek(damaged.offset + 64 + damaged.length - 100)
        file.write(b"damaged")
    with _open(tmp_path) as queue:
        assert queue.peek(-1).keys.to_pylist() == [1, 21]
        assert queue._core.view.segments[1].summary is None
        with tm.PriorityQueue(tmp_path, read_only=True) as reader:
            assert reader.peek(-1).keys.to_pylist() == [1, 21]
            assert len(reader) == 2


def test_upkeep_goes_on_with_segments_whose_damage_was_set_aside(tmp_path: Path) -> None:
    with _open(tmp_path, "abort") as queue:
        queue._core.maintenance._is_stopped = True
        for number in range(12):
            queue.push([(50, b"near %d" % number)])
            queue.push([(1000, b"far %d" % number)])
            _fill(queue, -1, 12)
        queue.pop(144)
        queue._core.folder.journal.finish_seals()
        segments = sorted(queue._core.view.segments)[:11]
        of = queue._core.view.index.frames_of_segment
        found = [entry for number in segments for entry in of(number) if entry.key_min == 50]
    for entry in found:
        _spoil(tmp_path, entry.offset + entry.length - 5, name=f"{entry.segment:016d}.segment")
    with _open(tmp_path) as queue:
        for _ in range(8):
            queue._core.maintenance.run_round()
        stuck = queue.stats().segments
        assert stuck > len(found)
        queue.pop(12, key_max=50)
        for _ in range(8):
            queue._core.maintenance.run_round()
        assert queue.stats().segments < stuck


def test_a_folder_whose_opening_failed_can_be_opened_while_the_error_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_file: object) -> tuple[int | None, int]:
        raise OSError(errno.EIO, "it cannot be read")

    monkeypatch.setattr(lock, "read_owner", unreadable)
    with pytest.raises(tm.StorageFailed, match="cannot be read") as failure:
        _open(tmp_path)
    assert failure.tb is not None
    monkeypatch.undo()
    _open(tmp_path).close()


def test_a_sweeper_that_comes_late_leaves_the_next_reader_of_that_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(tmp_path) as owner:
        owner.push([(1, b"a")])
        first = _open(tmp_path, read_only=True)
        [folder] = (tmp_path / pin.FOLDER).iterdir()
        acquire = lock.FileLock.try_acquire
        readers: list[tm.PriorityQueue] = []

        def late(fs: LocalFileSystem, path: Path) -> lock.FileLock | None:
            file = fs.open(path, write=True)
            first.close()
            monkeypatch.setattr(lock.FileLock, "try_acquire", acquire)
            readers.append(_open(tmp_path, read_only=True))
            assert (folder / pin.LOCK_NAME).exists()
            assert file.lock()
            return lock.FileLock(file)

        monkeypatch.setattr(lock.FileLock, "try_acquire", late)
        assert pin.sweep_readers(CountingFileSystem(), tmp_path) == []
        assert readers[0].peek().rows() == [(1, b"a")]
        readers[0].close()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("segment_bytes", "block"), [(16 * 1024, 512), (64 * 1024 * 1024, 4096)])
def test_a_lost_block_of_the_disk_leaves_a_state_that_opens_the_queue(
    tmp_path: Path, segment_bytes: int, block: int, at: int
) -> None:
    folder = tmp_path / "queue"
    with _open(folder, "abort", segment_bytes=segment_bytes) as queue:
        queue.push([(1, b"gone with it")])
        queue._core.folder.journal.roll()
        queue.pop(1)
        queue.push([(2, b"good")])
        queue._core.maintenance.run_round()
        name = queue._core.folder.journal.active.path.name
    assert len(list(folder.glob("journal/*.segment"))) == 1
    _spoil(folder, at * block, block, name)
    with _open(folder) as queue:
        assert queue.pop(-1).rows() == [(2, b"good")]


def test_a_record_of_more_than_a_gigabyte_that_was_set_aside_does_not_keep_a_queue_closed() -> None:
    place, length = make_place(2, 8192), OFFSET_MAX - 8192
    operation = Quarantine([Damage(place, length, 16, "damaged")], {0: 2}, 18)
    for _, payload in operation.closing:
        assert unpack_quarantine(payload) == (place, 16, length, {0: 2}, 18)
    state = State()
    operation.apply(state)
    again, _ = State.from_json(state.to_json([2], 0))
    assert again.set_aside_bytes == {place: length}


@pytest.mark.parametrize("forks", [0, 40, 60])
def test_one_lost_block_leaves_a_copy_of_the_state_to_owners_and_readers(
    tmp_path: Path, forks: int
) -> None:
    whole = tmp_path / "whole"
    with tm.PriorityQueue(whole) as queue:
        names = [queue.fork(f"fork-{number:02}").name for number in range(forks)]
        # The segment that is there from the first moment knows of none of them.
        queue._core.folder.journal.roll()
        start = queue._core.folder.journal.active.start
        queue._core.folder.journal.finish_seals()
        queue._core.folder.commit(Retire([1]))
        queue._core.folder.journal.remove([1])
        queue.push([(1, b"a")])
        name = queue._core.folder.journal.active.path.name
    for at in range(0, start, 4096):
        damaged = tmp_path / f"damaged-{at}"
        shutil.copytree(whole, damaged)
        with open(damaged / "journal" / name, "r+b") as file:
            file.seek(at)
            file.write(bytes(4096))
        for read_only in (True, False):
            with _open(damaged, segment_bytes=None, read_only=read_only) as queue:
                assert queue.forks() == names
                assert queue.peek(2).rows() == [(1, b"a")]
