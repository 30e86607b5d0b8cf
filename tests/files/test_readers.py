"""Readers beside the owner: each call sees the queue as it stands, changes nothing, and costs disk
only while the reader lives.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFile, FailingFileSystem
from tests.files.counting_fs import CountingFileSystem
from tests.files.small_segments import SEGMENT, disk_bytes, queue_at
from tidemill.files.disk.filesystem import File, LocalFileSystem
from tidemill.files.journal.head import read_head
from tidemill.files.journal.segment import Segment
from tidemill.files.journal.spine import SpineFile
from tidemill.files.readers import follower as followers
from tidemill.files.readers.reach import read_reach
from tidemill.files.readers.tail import read_tail
from tidemill.files.sharing.pin import Pin, sweep_readers

MODES = ("none", "data", "index", "full")


def reader_at(path: Path, **options: object) -> tm.PriorityQueue:
    return tm.PriorityQueue(path, read_only=True, **options)  # type: ignore[arg-type]


def same(owner: tm.PriorityQueue, reader: tm.PriorityQueue) -> None:
    """Both handles show the same queue."""
    table = pa.Table.from_batches([owner.peek(-1).to_arrow()])
    assert reader.scan().read_all().equals(table)
    assert reader.peek(-1).to_arrow().equals(owner.peek(-1).to_arrow())
    assert (len(reader), reader.forks()) == (len(owner), owner.forks())
    assert reader.stats().next_seq == owner.stats().next_seq
    for name in owner.forks():
        assert reader.fork(name).peek(-1).rows() == owner.fork(name).peek(-1).rows()
        assert len(reader.fork(name)) == len(owner.fork(name))


@pytest.mark.parametrize("sync", MODES)
def test_a_reader_sees_each_operation_when_it_has_returned(tmp_path: Path, sync: str) -> None:
    dice = random.Random(3)
    owner = queue_at(tmp_path, sync=sync, bucket=tm.Width(40))
    with owner, reader_at(tmp_path) as reader:
        same(owner, reader)
        for number in range(120):
            keys = [dice.randint(-50, 100) for _ in range(dice.choice([1, 5, 40]))]
            owner.push([(key, dice.randbytes(100)) for key in keys])
            if sync in ("none", "index"):
                # Pushes that are not synced are shown all the same.
                assert len(reader) == len(owner)
            if number % 3 == 0:
                owner.pop(dice.choice([1, 10, 30]))
            if number == 40:
                owner.fork("audit")
            if number == 60:
                owner.fork("audit").pop(50)
                owner.fork("late")
            if number == 80:
                owner.delete(-10, 20)
            if number == 90:
                owner.fork("late").remove()
            if number % 7 == 0:
                same(owner, reader)
        owner.clear()
        owner.fork("audit").clear()
        owner._core.maintenance.run_round()
        same(owner, reader)
        assert len(reader) == 0


def test_a_reader_follows_through_segments_that_come_and_go(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner, reader_at(tmp_path) as reader:
        owner.push([(key, b"stays") for key in range(1_000, 1_011)])
        for number in range(600):
            owner.push([(number % 11, bytes(400))])
            owner.pop()
            if number % 5 == 0:
                same(owner, reader)
        assert max(owner._core.folder.journal.segments) > 10
        assert owner.stats().segments < 5


def test_a_reader_that_looks_rarely_starts_again(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner, reader_at(tmp_path) as reader:
        for round_ in range(4):
            for number in range(300):
                owner.push([(number, bytes(400))])
                owner.pop(number % 2)
            same(owner, reader)
            assert len(reader) == 150 * (round_ + 1)


def test_opening_reads_summaries_and_not_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with queue_at(tmp_path) as owner:
        for number in range(1_000):
            owner.push([(number, bytes(400))])
        owner._core.maintenance.run_round()
        read: list[int] = []

        def counted(segment: Segment, *args: object, **options: object) -> object:
            read.append(segment.number)
            return read_tail(segment, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(followers, "read_tail", counted)
        with reader_at(tmp_path) as reader:
            assert len(reader) == 1_000
            assert set(read) == {max(owner._core.folder.journal.segments)}
            assert reader.stats().segments == owner.stats().segments > 10


def test_a_reader_changes_nothing_and_says_so(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        owner.push([(1, b"a")])
        owner.fork("audit")
        with reader_at(tmp_path) as reader:
            audit = reader.fork("audit")
            calls: list[Callable[[], object]] = [
                lambda: reader.push([b"x"]),
                lambda: reader.push([]),
                reader.pop,
                lambda: reader.pop(key_max=-5),
                lambda: reader.read().__enter__(),
                lambda: reader.delete(0, 1),
                reader.clear,
                reader.sync,
                lambda: reader.fork("new"),
                audit.pop,
                audit.clear,
                audit.remove,
                lambda: audit.fork("another"),
            ]
            for call in calls:
                with pytest.raises(tm.ReadOnly, match="read_only=True"):
                    call()
            same(owner, reader)
        assert owner.pop(2).rows() == [(1, b"a")]


def test_readers_need_no_owner(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        owner.push([(2, b"b"), (1, b"a")])
        owner.fork("audit").pop()
    with reader_at(tmp_path) as one, reader_at(tmp_path) as two:
        assert one.peek(5).rows() == two.peek(5).rows() == [(1, b"a"), (2, b"b")]
        assert one.fork("audit").peek(5).rows() == [(2, b"b")]
        with queue_at(tmp_path) as owner:
            owner.push([(0, b"new")])
            assert [len(one), len(two), len(owner)] == [3, 3, 3]
        assert one.peek().rows() == [(0, b"new")]


def test_a_reader_takes_no_lock_from_an_owner_and_leaves_the_journal_alone(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        owner.push([(1, b"a")])
    before = {
        file.name: (file.stat().st_mtime_ns, file.read_bytes())
        for file in [*(tmp_path / "journal").iterdir(), tmp_path / "lock", tmp_path / "head"]
    }
    with reader_at(tmp_path) as reader:
        assert len(reader) == 1
        with queue_at(tmp_path):
            pass
    reader = reader_at(tmp_path)
    assert len(reader) == 1
    reader.close()
    shutil.rmtree(tmp_path / "readers")
    names = {file.name for file in (tmp_path / "journal").iterdir()}
    assert names == {name for name in before if name not in ("lock", "head")}


def test_a_folder_that_is_no_queue_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(tm.NotAQueue, match="a reader makes none"):
        reader_at(tmp_path / "missing")
    with pytest.raises(tm.NotAQueue):
        reader_at(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with queue_at(tmp_path, bucket=tm.Width(7)):
        pass
    with pytest.raises(tm.BucketMismatch):
        reader_at(tmp_path, bucket=tm.Width(8))
    wider = pa.schema([pa.field("value", pa.binary(), nullable=False), ("more", pa.int64())])
    with pytest.raises(tm.SchemaMismatch, match="reader"):
        reader_at(tmp_path, schema=wider)
    assert not list((tmp_path / "readers").iterdir()) if (tmp_path / "readers").exists() else True


def test_a_schema_that_grows_is_seen_when_the_owner_opens_with_it(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        owner.push([(1, b"a")])
    with reader_at(tmp_path) as reader:
        assert reader.scan().read_all().column_names == ["seq", "key", "time", "value"]
        wider = pa.schema([pa.field("value", pa.binary(), nullable=False), ("more", pa.int64())])
        with queue_at(tmp_path, schema=wider) as owner:
            owner.push([(2, {"value": b"b", "more": 5})])
            found = reader.scan(columns=["value", "more"]).read_all().to_pylist()
            assert found == [{"value": b"a", "more": None}, {"value": b"b", "more": 5}]


def test_a_scan_of_a_reader_outlives_what_the_owner_retires(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner, reader_at(tmp_path) as reader:
        owner.push([(key, bytes(200)) for key in range(100)])
        for key in range(500):
            owner.push([(key, bytes(200))])
        expected = pa.Table.from_batches([owner.peek(-1).to_arrow()])
        scan = reader.scan()
        owner.clear()
        assert (len(reader), owner.stats().segments) == (0, 1)
        full = disk_bytes(tmp_path)
        assert scan.read_all().equals(expected)
        del scan
        assert len(reader) == 0
        assert disk_bytes(tmp_path) < full / 3


def test_a_scan_outlives_a_change_of_owner(tmp_path: Path) -> None:
    owner = queue_at(tmp_path, bucket=tm.Width(50))
    owner.push([(key, bytes(200)) for key in range(500)])
    with reader_at(tmp_path) as reader:
        expected = pa.Table.from_batches([owner.peek(-1).to_arrow()])
        scan = reader.scan()
        first = scan.read_next_batch()
        owner.close()
        with queue_at(tmp_path) as owner:
            owner.clear()
            for _ in range(200):
                owner.push([(1, bytes(300))])
                owner.pop()
            assert len(reader) == 0
            whole = pa.Table.from_batches([first, *scan.read_all().to_batches()])
            assert whole.combine_chunks().equals(expected.combine_chunks())
            del scan
        assert len(list((tmp_path / "readers").iterdir())) == 1
    assert list((tmp_path / "readers").iterdir()) == []


def test_disk_comes_back_when_readers_end(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        for key in range(500):
            owner.push([(key, bytes(400))])
        reader = reader_at(tmp_path)
        full = disk_bytes(tmp_path)
        owner.clear()
        # It has not looked since, and may still want to scan what it knows.
        assert disk_bytes(tmp_path) > full * 0.9
        reader.close()
        assert disk_bytes(tmp_path) < 3 * SEGMENT
        assert list((tmp_path / "readers").iterdir()) == []
        with pytest.raises(tm.Closed):
            reader.peek()
        reader.close()


def test_disk_comes_back_when_a_reader_was_killed(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        for key in range(500):
            owner.push([(key, bytes(400))])
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            reader = reader_at(tmp_path)
            os.write(writing, b"%d" % len(reader))
            threading.Event().wait()
        assert os.read(reading, 10) == b"500"
        full = disk_bytes(tmp_path)
        owner.clear()
        owner._core.maintenance.run_round()
        assert disk_bytes(tmp_path) > full * 0.9, "the reader lives"
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)
        owner._core.maintenance.run_round()
        assert disk_bytes(tmp_path) < 3 * SEGMENT
        assert list((tmp_path / "readers").iterdir()) == []


def test_sweeping_leaves_the_living_alone(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    assert sweep_readers(fs, tmp_path) == []
    with queue_at(tmp_path) as owner:
        owner.push([(1, b"a")])
        with reader_at(tmp_path) as reader:
            left = tmp_path / "readers" / "1-1"
            left.mkdir()
            (left / "0000000000000009.segment").write_bytes(b"of a reader that a crash took")
            (tmp_path / "readers" / "2-1").mkdir()
            (tmp_path / "readers" / "2-1" / "lock").touch()
            assert sweep_readers(fs, tmp_path) == ["1-1", "2-1"]
            assert sweep_readers(fs, tmp_path) == []
            assert reader.peek().rows() == [(1, b"a")]


def test_a_reader_that_may_not_pin_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with queue_at(tmp_path) as owner:
        owner.push([(1, b"a")])

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for call in ("make_folder", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(LocalFileSystem, call, refuse)
            with pytest.raises(tm.NoAccess, match="pins the segments"):
                reader_at(tmp_path)
    with reader_at(tmp_path) as reader:
        assert len(reader) == 1


def test_a_reader_raises_in_the_child_of_a_fork(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        owner.push([(1, b"a")])
        with reader_at(tmp_path) as reader:
            audit = owner.fork("audit")
            scan = reader.scan()
            pid = os.fork()
            if not pid:
                uses: list[Callable[[], object]] = [
                    reader.peek,
                    reader.scan,
                    reader.stats,
                    reader.forks,
                    lambda: len(reader),
                    scan.read_next_batch,
                    audit.scan,
                ]
                for use in uses:
                    try:
                        use()
                        os._exit(1)
                    except tm.Closed:
                        pass
                del scan
                reader.close()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            # What the child did not own it did not take away.
            assert scan.read_all().num_rows == len(reader) == 1


def test_a_peek_can_wait_for_the_owner(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner, reader_at(tmp_path) as reader:
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(reader.peek(wait_s=30).rows()))
        thread.start()
        owner.push([(1, b"a")])
        thread.join()
        assert found == [[(1, b"a")]]
        assert reader.peek(key_max=0, wait_s=0.01).rows() == []


def test_many_threads_share_a_reader(tmp_path: Path) -> None:
    wrong: list[object] = []
    done = threading.Event()
    with queue_at(tmp_path, maintain_in_background=True) as owner, reader_at(tmp_path) as reader:
        owner.push([(0, b"+"), (0, b"-")])

        def look() -> None:
            while not done.is_set():
                values = reader.peek(-1).values.to_pylist()
                values += reader.scan().read_all()["value"].to_pylist()
                if values.count(b"+") != values.count(b"-") or not values:
                    wrong.append(values)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(300):
            owner.push([(number % 3, b"+"), (number % 3, b"-"), (-5, bytes(600))])
            assert len(owner.pop(3 if number > 20 else 1)) > 0
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_readers_of_both_queues_see_a_shovel(tmp_path: Path) -> None:
    with queue_at(tmp_path / "from") as source, queue_at(tmp_path / "to") as target:
        source.push([(key, b"x" * 400) for key in range(200)])
        for key in range(200):
            source.push([(key, b"y" * 400)])
        source.pop(50)
        target.fork("audit")
        target.push([(1, b"gone")])
        target.clear()
        target.fork("audit").clear()
        with reader_at(tmp_path / "from") as one, reader_at(tmp_path / "to") as two:
            scan = one.scan()
            assert source.shovel(target) == 350
            assert len(one) == 0
            same(source, one)
            same(target, two)
            # Segments change hands as they are.
            assert target._core.folder.state.adopted
            target.push([(5, b"more")])
            target.pop(20)
            same(target, two)
            assert scan.read_all().num_rows == 350
            with reader_at(tmp_path / "to") as three:
                same(target, three)


@pytest.mark.parametrize(("sync", "shown"), [("full", 1), ("data", 1), ("index", 2), ("none", 2)])
def test_what_must_be_synced_is_not_shown_before_it_is(
    tmp_path: Path, sync: str, shown: int
) -> None:
    fs = CountingFileSystem()
    with queue_at(tmp_path, sync=sync, file_system=fs) as owner, reader_at(tmp_path) as reader:
        owner.push([(1, b"a")])
        fs.may_sync.clear()
        fs.sync_began.clear()
        thread = threading.Thread(target=lambda: owner.push([(0, b"b")]))
        thread.start()
        if sync in ("full", "data"):
            assert fs.sync_began.wait(30)
        else:
            thread.join()
        try:
            # The bytes are in the file by now.
            assert len(reader) == shown
            with reader_at(tmp_path) as another:
                assert len(another) == shown
        finally:
            fs.may_sync.set()
        thread.join()
        assert reader.peek().rows() == [(0, b"b")]


@pytest.mark.parametrize("damage", ["gone", "scribbled", "cut off", "of another boot"])
def test_without_a_head_that_says_anything_all_that_is_whole_is_shown(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with queue_at(tmp_path, sync="full") as owner:
        owner.push([(1, b"a")])
        before = (tmp_path / "head").read_bytes()
        owner.push([(2, b"b")])
    head = tmp_path / "head"
    if damage == "gone":
        head.unlink()
    elif damage == "scribbled":
        head.write_bytes(b"x" * 64)
    elif damage == "cut off":
        head.write_bytes(before[:30])
    else:
        # Power failed, and what had been written of the head was older than what was synced.
        head.write_bytes(before)
        monkeypatch.setattr(LocalFileSystem, "boot_id", lambda _: b"the boot after  ")
    with reader_at(tmp_path) as reader:
        assert reader.peek(5).rows() == [(1, b"a"), (2, b"b")]
        with queue_at(tmp_path) as owner:
            owner.push([(3, b"c")])
            assert len(reader) == 3


@pytest.mark.parametrize("sync", MODES)
def test_a_killed_owner_leaves_readers_with_all_it_was_told(tmp_path: Path, sync: str) -> None:
    reader: tm.PriorityQueue | None = None
    for life in range(1, 4):
        pid = os.fork()
        if not pid:
            owner = queue_at(tmp_path, sync=sync)
            for number in range(100):
                owner.push([(number, bytes(200)), (number, b"")])
                owner.pop()
            os.kill(os.getpid(), 9)
        os.waitpid(pid, 0)
        reader = reader or reader_at(tmp_path)
        assert len(reader) == 100 * life
        same_as = reader_at(tmp_path)
        assert reader.scan().read_all().equals(same_as.scan().read_all())
        same_as.close()
    assert reader is not None
    reader.close()


def test_what_an_owner_takes_back_disappears(tmp_path: Path) -> None:
    fs = FailingFileSystem(LocalFileSystem(), error=errno.ENOSPC, partial_bytes=600)
    owner = queue_at(tmp_path, file_system=fs)
    with reader_at(tmp_path) as reader:
        owner.push([(1, b"a")])
        assert len(reader) == 1
        # The first of two buckets is written before the disk is full.
        head = read_head(LocalFileSystem(), tmp_path)
        fs.fail_next("pwrite")
        with pytest.raises(tm.DiskFull):
            owner.push([(0, bytes(100)), (1 << 40, bytes(100))])
        assert len(reader) == 1
        owner.push([(2, b"b")])
        assert reader.peek(5).rows() == [(1, b"a"), (2, b"b")]
        after = read_head(LocalFileSystem(), tmp_path)
        assert head is not None
        assert after is not None
        assert after.identity > head.identity
    owner.close()


def test_the_spine_says_how_far_a_reader_may_go(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    with queue_at(tmp_path, sync="full") as owner:
        journal = owner._core.folder.journal
        head = read_head(fs, tmp_path)
        assert head is not None
        for number in range(5):
            owner.push([(number, b"a")])
            reach = read_reach(fs, tmp_path)
            assert reach is not None
            assert reach.place == journal.end > head.place
        # The head was left alone.
        assert read_head(fs, tmp_path) == head
        # What was synced without a record of its own has no entry.
        owner.sync()
        assert read_head(fs, tmp_path) == reach
        journal.roll()
        owner.push([(9, b"b")])
        reach = read_reach(fs, tmp_path)
        assert reach is not None
        assert reach.place == journal.end


class Spineless(LocalFileSystem):
    """No spine can be written, from the start on or later."""

    def __init__(self, *, fails_open: bool) -> None:
        self._fails_open = fails_open

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if path.suffix != ".spine" or not create:
            return file
        if self._fails_open:
            file.close()
            path.unlink()
            raise OSError(errno.EIO, "no spine", str(path))
        failing = FailingFileSystem(self)
        failing.fail_next("pwrite")
        return FailingFile(failing, file, path)


@pytest.mark.parametrize("fails_open", [True, False])
def test_without_a_spine_the_head_says_how_far(tmp_path: Path, fails_open: bool) -> None:
    fs = Spineless(fails_open=fails_open)
    with queue_at(tmp_path, sync="full", file_system=fs) as owner, reader_at(tmp_path) as reader:
        for number in range(3):
            owner.push([(number, b"a")])
            assert len(reader) == number + 1
            head = read_head(fs, tmp_path)
            assert head is not None
            assert head.place == owner._core.folder.journal.end


def test_readers_see_all_while_an_owner_opens_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = queue_at(tmp_path, sync="full")
    for number in range(10):
        owner.push([(number, b"a")])
    owner._core.folder.let_go()  # as if it had been killed
    seen = []
    begin = SpineFile.begin

    def looked_at(self: SpineFile, path: Path) -> None:
        begin(self, path)
        with reader_at(tmp_path) as reader:
            seen.append(len(reader))

    monkeypatch.setattr(SpineFile, "begin", looked_at)
    queue_at(tmp_path, sync="full").close()
    assert seen == [10]


def test_a_head_that_could_not_be_written_is_written_with_the_next_operation(
    tmp_path: Path,
) -> None:
    with queue_at(tmp_path, sync="full") as owner, reader_at(tmp_path) as reader:
        owner.push([(0, b"a")])
        head = owner._core.folder.journal._head
        failing = FailingFileSystem(LocalFileSystem())
        head._file = FailingFile(failing, head._file, head.path)
        failing.fail_next("pwrite")
        owner._core.folder.journal.roll()
        assert failing.fired == 1
        for number in range(1, 4):
            owner.push([(number, b"a")])
            assert len(reader) == number + 1


def test_a_segment_that_was_sealed_while_a_reader_looked_is_not_missed(tmp_path: Path) -> None:
    class Rolling(LocalFileSystem):
        """The owner begins a segment, and ends the one before, just as somebody wants its spine."""

        def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
            if path.suffix == ".spine" and len(owner) == 1:
                owner._core.folder.journal.roll()
                owner._core.folder.journal.finish_seals()
                owner.push([(2, b"b")])
            return super().open(path, write=write, create=create)

    with queue_at(tmp_path, sync="full") as owner:
        owner.push([(1, b"a")])
        reach = read_reach(Rolling(), tmp_path)
        assert len(owner) == 2
        assert reach is not None
        assert reach.place == owner._core.folder.journal.end


def test_an_operation_that_is_not_whole_is_not_shown(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner, reader_at(tmp_path) as reader:
        owner.push([(1, b"a")])
        whole = owner._core.folder.journal.active.end
        owner.push([(0, bytes(100)), (1 << 40, bytes(100))])
        file = owner._core.folder.journal.active.file
        end = owner._core.folder.journal.active.end
        data = file.pread(end - whole, whole)
        for length in range(0, len(data.rstrip(b"\0")), 40):
            file.pwrite([data[:length], bytes(len(data) - length)], whole)
            assert len(reader) == 1
        file.pwrite([data], whole)
        assert len(reader) == 3


@pytest.mark.parametrize("mode", ["abort", "continue"])
@pytest.mark.parametrize("when", ["open", "later"])
def test_damage_is_an_error_or_passed_over(tmp_path: Path, mode: str, when: str) -> None:
    with queue_at(tmp_path, sync="full") as owner:
        if when == "later":
            reader = reader_at(tmp_path, on_corruption=mode)
        for key in range(5):
            owner.push([(key, b"x" * 50)])
        entry = owner._core.folder.index.frames_of_segment(1)[2]
        with open(tmp_path / "journal" / f"{1:016d}.segment", "r+b") as file:
            file.seek(entry.offset + 64 + entry.length - 100)
            file.write(b"damaged")
        if when == "open":
            reader = reader_at(tmp_path, on_corruption=mode)
        if mode == "abort":
            with pytest.raises(tm.Corrupt) as raised:
                reader.peek(-1)
            assert raised.value.offset == entry.offset
        else:
            assert reader.scan(columns=["key"]).read_all()["key"].to_pylist() == [0, 1, 3, 4]
            assert (len(reader), len(reader.peek(-1))) == (4, 4)
            owner.push([(9, b"more")])
            assert len(reader) == 5
        reader.close()
        assert list((tmp_path / "readers").iterdir()) == []


def test_opening_reads_no_bodies_that_were_written(tmp_path: Path) -> None:
    segment_bytes = 4 * 1024 * 1024
    with queue_at(tmp_path, sync="full", segment_bytes=segment_bytes) as owner:
        for key in range(10):
            owner.push([(key, bytes(200_000))])
        fs = CountingFileSystem()
        with reader_at(tmp_path, file_system=fs) as reader:
            assert fs.calls["bytes read.segment"] < 200_000
            owner.push([(10, b"more")])
            assert len(reader) == 11
            same(owner, reader)


def test_damage_in_a_sealed_segment_is_found_when_it_is_read(tmp_path: Path) -> None:
    with queue_at(tmp_path) as owner:
        for key in range(300):
            owner.push([(key, bytes(400))])
        owner._core.maintenance.run_round()
        first = min(owner._core.folder.journal.segments)
        entry = owner._core.folder.index.frames_of_segment(first)[0]
        reader = reader_at(tmp_path, on_corruption="continue")
        strict = reader_at(tmp_path)
        with open(tmp_path / "journal" / f"{first:016d}.segment", "r+b") as file:
            file.seek(entry.offset + 64 + entry.length - 100)
            file.write(b"damaged")
        assert len(reader.peek(-1)) == len(reader) == 300 - entry.rows
        with pytest.raises(tm.Corrupt):
            strict.scan().read_all()
        with pytest.raises(tm.Corrupt):
            strict.peek(-1)
        reader.close()
        strict.close()


def test_damage_to_what_a_sealed_segment_ends_with_is_an_error_without_its_summary(
    tmp_path: Path,
) -> None:
    """No record behind it says that it was synced; the next segment says that it was there."""
    with queue_at(tmp_path) as owner:
        for key in range(300):
            owner.push([(key, bytes(400))])
        assert len(owner._core.folder.journal.segments) > 3
        entry = owner._core.folder.index.frames_of_segment(1)[-1]
    for summary in (tmp_path / "journal").glob("*.summary"):
        summary.unlink()
    with open(tmp_path / "journal" / f"{1:016d}.segment", "r+b") as file:
        file.seek(entry.offset + 64 + entry.length - 100)
        file.write(b"damaged")
    with pytest.raises(tm.Corrupt, match="checksum"):
        reader_at(tmp_path)
    with reader_at(tmp_path, on_corruption="continue") as reader:
        assert len(reader.peek(-1)) == len(reader) == 300 - entry.rows


def test_a_missing_segment_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "_ATTEMPTS", 3)
    with queue_at(tmp_path) as owner:
        for key in range(300):
            owner.push([(key, bytes(400))])
    (tmp_path / "journal" / f"{2:016d}.segment").unlink()
    with pytest.raises(tm.Corrupt, match="missing"):
        reader_at(tmp_path)
    assert list((tmp_path / "readers").iterdir()) == []


def test_a_reader_that_is_being_born_is_not_swept(tmp_path: Path) -> None:
    """Whoever sweeps found no lock; by the time it looks into the folder the reader lives there."""
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([b"one"])
        born: list[Pin] = []

        class Slow(LocalFileSystem):
            """Is overtaken between a look for the lock and what follows from it."""

            def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
                try:
                    return super().open(path, write=write, create=create)
                except FileNotFoundError:
                    if not born and path.name == "lock":
                        path.parent.rmdir()
                        born.append(Pin.make(LocalFileSystem(), tmp_path, tmp_path / "journal"))
                        for name in os.listdir(tmp_path / "journal"):
                            born[0].link(name)
                    raise

        (tmp_path / "readers").mkdir(exist_ok=True)
        (tmp_path / "readers" / f"{os.getpid()}-1").mkdir()
        linked = set(os.listdir(tmp_path / "journal"))
        assert sweep_readers(Slow(), tmp_path) == []
        assert {*os.listdir(born[0].folder)} == {*linked, "lock"}
        born[0].remove()
        assert os.listdir(tmp_path / "readers") == []


def test_damage_that_a_reader_meets_is_named_as_the_owner_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tm.PriorityQueue(tmp_path) as owner:
        owner.push([(1, bytes(1_000))])
        entry = next(iter(owner._core.folder.index.frames_of_segment(1)))
    path = tmp_path / "journal" / f"{1:016}.segment"
    data = bytearray(path.read_bytes())
    data[entry.offset + 500] ^= 1
    path.write_bytes(data)
    with tm.PriorityQueue(tmp_path, read_only=True) as reader:
        with pytest.raises(tm.Corrupt, match="tidemill doctor") as met:
            reader.peek()
        assert (met.value.path, met.value.offset) == (path, entry.offset)
    with tm.PriorityQueue(tmp_path, read_only=True, on_corruption="continue") as reader:
        assert len(reader.peek()) == 0
    assert f"{path}, offset {entry.offset}: " in caplog.text
