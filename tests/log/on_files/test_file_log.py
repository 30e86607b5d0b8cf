"""A log in a folder: what is on disk, what comes back, and what is refused."""

from __future__ import annotations

import functools
import os
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.files.counting_fs import CountingFileSystem
from tidemill.batch import LogBatch
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.folder.folder import Folder
from tidemill.files.sharing.lock import FileLock
from tidemill.files.sharing.pointers import move
from tidemill.log.on_files.place import LogPlace
from tidemill.log.on_files.store import FileLog
from tidemill.log.on_files.writer import FileWriter

SMALL = 16 * 1024
WITHIN_S = 60


def segments(path: Path) -> list[str]:
    return sorted(one.stem for one in (path / "journal").glob("*.segment"))


def is_free(path: Path) -> bool:
    """Whether nobody owns the folder."""
    lock = FileLock.try_acquire(LocalFileSystem(), path / "lock")
    if lock is not None:
        lock.release()
    return lock is not None


def fill(log: tm.Log, rows: int, *, length: int = 1_000) -> None:
    with log.publisher() as out:
        for number in range(rows):
            out.send(b"%d" % number + bytes(length))


def test_a_path_and_a_url_are_the_same_log(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log") as log, log.publisher() as out:
        assert out.send([b"a"]).durability == "synced"
        with tm.Log(f"file:{tmp_path}/log") as other, tm.Log(str(tmp_path / "log")) as third:
            assert other.read().rows() == third.read().rows() == [b"a"]
    with tm.Log(tmp_path / "log", sync="none") as log, log.publisher() as out:
        assert out.send([b"b"]).durability == "buffered"


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    tm.PriorityQueue(tmp_path / "queue").close()
    tm.Log(tmp_path / "log").close()
    with pytest.raises(tm.NotAQueue, match=r"a priority queue: open it with tm\.PriorityQueue"):
        tm.Log(tmp_path / "queue")
    for read_only in (False, True):
        with pytest.raises(tm.NotAQueue, match=r"a log: open it with tm\.Log"):
            tm.PriorityQueue(tmp_path / "log", read_only=read_only)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(tm.NotAQueue, match=r"letter\.txt"):
        tm.Log(tmp_path / "other")
    assert os.listdir(tmp_path / "other") == ["letter.txt"]


def test_read_only_makes_nothing_and_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(tm.NotAQueue):
        tm.Log(tmp_path / "log", read_only=True)
    assert not (tmp_path / "log").exists()
    tm.Log(tmp_path / "log").close()
    with tm.Log(tmp_path / "log", read_only=True) as log:
        for refused in (log.publisher, lambda: log.trim(1)):
            with pytest.raises(tm.ReadOnly):
                refused()
        with log.receiver("one", follow=False) as receiver:
            assert list(receiver) == []


@pytest.mark.parametrize(
    "options",
    [{"sync": "data"}, {"on_corruption": "ignore"}, {"segment_bytes": 5}, {"bucket": 1}],
)
def test_options_that_make_no_sense_leave_no_trace(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with pytest.raises(tm.InvalidInput):
        tm.Log(tmp_path / "log", **options)
    assert not (tmp_path / "log").exists()


def test_a_read_goes_on_when_a_publisher_adds_a_column_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pa.schema([("n", pa.int64())])
    looks: list[int] = []
    read = FileLog.read

    def read_late(store: FileLog, start: int, **options: int) -> list[LogBatch]:
        found = read(store, start, **options)
        looks.append(start)
        if len(looks) == 1:
            two = pa.schema([*one, ("city", pa.string())])
            with tm.Log(tmp_path / "log", schema=two) as other, other.publisher() as out:
                out.send([{"n": 2, "city": "Oslo"}])
        return found

    with tm.Log(tmp_path / "log", schema=one) as log:
        with log.publisher() as out:
            out.send([{"n": 1}])
        monkeypatch.setattr(FileLog, "read", read_late)
        assert log.read(1).rows() == [{"n": 1, "city": None}, {"n": 2, "city": "Oslo"}]


def test_another_schema_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(tm.SchemaMismatch):
        tm.Log(tmp_path / "log", schema=pa.schema([("seq", pa.int64())]))
    assert not (tmp_path / "log").exists()


def test_trimming_gives_disk_back(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log", segment_bytes=SMALL) as log:
        fill(log, 200)
        before = segments(tmp_path / "log")
        assert len(before) > 10
        assert log.trim(before=101) == 101
        after = segments(tmp_path / "log")
        assert 0 < len(after) < 0.7 * len(before)
        assert [row[:3] for row in log.read(rows_max=1_000).rows()] == [
            (b"%d" % number + bytes(3))[:3] for number in range(100, 200)
        ]
        log.trim(before=log.ends().next)
        assert len(segments(tmp_path / "log")) == 1
    with tm.Log(tmp_path / "log") as log:
        assert log.ends() == (201, 201)


def test_what_a_receiver_reads_stays_while_it_is_trimmed(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log", segment_bytes=SMALL) as log, tm.Log(tmp_path / "log") as other:
        fill(log, 200)
        batches = other._store.read(1, rows_max=50, bytes_max=2**20)
        log.trim(before=150)
        assert sum(len(batch) for batch in batches) == 50
        assert all(batch.rows()[0].endswith(bytes(1_000)) for batch in batches)
        with pytest.raises(tm.Trimmed):
            other.read(51)


def test_opening_reads_no_rows(tmp_path: Path) -> None:
    read = {}
    for rows in (300, 3_000):
        path = tmp_path / str(rows)
        with tm.Log(path, segment_bytes=64 * 1024) as log, log.publisher() as out:
            for _ in range(20):
                out.send([bytes(100)] * (rows // 20))
            # So that what is left in the last segment is the same.
            while len(segments(path)) < 10:
                out.send([bytes(30_000)])
        counting = CountingFileSystem()
        with tm.Log(path, file_system=counting) as log:
            log.publisher().close()
            assert log.ends().next > rows
        read[rows] = counting.calls["bytes read.segment"] + counting.calls["bytes read.summary"]
    assert read[3_000] < 2 * read[300]


def test_within_a_process_the_newer_publisher_wins(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log") as log, tm.Log(tmp_path / "log") as other:
        old = log.publisher()
        old.send(b"a")
        new = other.publisher()
        with pytest.raises(tm.Fenced):
            old.send(b"x")
        new.send(b"b")
        new.close()
        with pytest.raises(tm.Fenced):
            old.send(b"x")
        old.close()
        assert log.publisher().send(b"c").first == 3
        assert log.read().rows() == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "options",
    [{"producer": "no name!"}, {"pending_bytes_max": "much"}, {"pending_bytes_max": -1}],
)
def test_a_publisher_that_is_refused_changes_nothing(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with tm.Log(tmp_path / "log") as log:
        out = log.publisher()
        with pytest.raises(tm.InvalidInput):
            log.publisher(**options)  # type: ignore[arg-type]
        assert out.send(b"a").first == 1, "nobody was fenced"


def test_a_publisher_that_fails_as_it_opens_lets_the_folder_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FileWriter, producer: str) -> None:
        raise tm.StorageFailed(f"what {producer} sent cannot be read")

    with tm.Log(tmp_path / "log") as log:
        monkeypatch.setattr(FileWriter, "mark", fail)
        with pytest.raises(tm.StorageFailed, match="loader"):
            log.publisher(producer="loader")
        assert is_free(tmp_path / "log")


def test_what_owns_a_folder_for_a_moment_lets_it_go_behind_a_broken_publisher(
    tmp_path: Path,
) -> None:
    with tm.Log(tmp_path / "log") as log, log.publisher() as out:
        out.send([b"a", b"b"])
        owner = LogPlace.of(LocalFileSystem(), tmp_path / "log").owner
        assert owner is not None
        owner.journal.doubt(OSError("the disk failed"))
        with pytest.raises(tm.StorageFailed):
            out.send(b"c")
        assert log.trim(before=2) == 2, "it opens the folder again"
        assert is_free(tmp_path / "log")
        with log.publisher() as another:
            assert another.send(b"c").first == 3
    assert is_free(tmp_path / "log")


@pytest.mark.parametrize("what", ["publisher", "log", "new publisher"])
def test_a_close_that_was_interrupted_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    close = Folder.close

    def interrupted(folder: Folder) -> None:
        monkeypatch.setattr(Folder, "close", close)
        folder.is_closed = True
        raise KeyboardInterrupt

    log = tm.Log(tmp_path / "log")
    out = log.publisher()
    out.send(b"a")
    monkeypatch.setattr(Folder, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.close() if what == "log" else out.close()
    if what == "new publisher":
        out = log.publisher()
        assert out.send(b"b").first == 2
    log.close() if what == "log" else out.close()
    assert is_free(tmp_path / "log")
    log.close()


def test_publishers_that_come_and_go_leave_dense_numbers(tmp_path: Path) -> None:
    def work(who: int) -> None:
        with tm.Log(tmp_path / "log", segment_bytes=SMALL) as log:
            for turn in range(20):
                try:
                    with log.publisher() as out:
                        confirmed[who].append(out.send(b"%d-%d" % (who, turn)).first)
                except tm.Fenced:
                    pass

    confirmed: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with tm.Log(tmp_path / "log") as log:
        rows = log.read().rows()
    assert len(rows) == len(set(rows)) >= sum(map(len, confirmed)) > 0
    assert len({seq for mine in confirmed for seq in mine}) == sum(map(len, confirmed))


def test_a_producer_is_remembered_across_segments_and_openings(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log", segment_bytes=SMALL) as log:
        with log.publisher(producer="loader") as out:
            receipt = out.send([b"once"], number=41)
        fill(log, 100)
        log.trim(before=90)
    with tm.Log(tmp_path / "log") as log, log.publisher(producer="loader") as out:
        assert out.send([b"once"], number=41) == receipt
        assert log.ends().next == 102


def test_a_damaged_journal_stops_publishers_and_not_readers(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log") as log:
        fill(log, 3)
    path = tmp_path / "log" / "journal" / f"{1:016d}.segment"
    data = bytearray(path.read_bytes())
    at = data.index(b"1" + bytes(900))
    data[at] ^= 1
    path.write_bytes(data)
    with tm.Log(tmp_path / "log") as log:
        with pytest.raises(tm.Corrupt) as caught:
            log.publisher()
        assert caught.value.path == path
        assert caught.value.offset is not None
        with pytest.raises(tm.Corrupt, match="row"):
            log.read(2)


def test_a_full_log_of_producers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.files.state import log_state

    monkeypatch.setattr(log_state, "PRODUCERS_MAX", 2)
    with tm.Log(tmp_path / "log") as log:
        for name in ("one", "two", "one"):
            with log.publisher(producer=name) as out:
                out.send(b"x", number=log.ends().next)
        with (
            log.publisher(producer="three") as out,
            pytest.raises(tm.TooLarge, match="'three' is one more"),
        ):
            out.send(b"x", number=1)
        assert log.ends().next == 4


def test_a_handle_of_before_a_fork_is_of_no_use_in_the_child(tmp_path: Path) -> None:
    store = FileLog(tmp_path / "log")
    writer = store.claim()
    pid = os.fork()
    if pid == 0:
        for use in (store.ends, store.claim, lambda: store.read(1, rows_max=1, bytes_max=1)):
            try:
                use()
            except tm.Closed:
                continue
            os._exit(1)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    writer.close()
    store.close()


def test_a_consumer_whose_removal_was_broken_off_begins_anew(tmp_path: Path) -> None:
    with tm.Log(tmp_path) as log:
        fill(log, 3, length=1)
        for batch in log.receiver("billing", follow=False):
            batch.ack()
        assert log.consumers() == {"billing": 3}
        # As a kill leaves it between emptying the file and taking its name away.
        os.truncate(tmp_path / "consumers" / "billing", 0)
        assert log.consumers() == {}
        assert sum(len(batch) for batch in log.receiver("billing", follow=False)) == 3


def test_a_batch_larger_than_a_segment_is_one_send(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log", segment_bytes=SMALL) as log, log.publisher() as out:
        assert out.send([bytes(10_000)] * 20).count == 20
        assert out.send(b"next").first == 21
        assert len(log.read(rows_max=100)) == 21


def test_a_receiver_that_comes_before_the_publisher_misses_nothing(tmp_path: Path) -> None:
    """A power cut took rows that need not be synced; the pointer was."""
    with tm.Log(tmp_path, sync="none") as log, log.publisher() as out:
        out.send([b"old"] * 5)
        log.receiver("billing").close()
    file = LocalFileSystem().open(tmp_path / "consumers" / "billing", write=True)
    move(file, 10, sync=True)
    file.close()
    with tm.Log(tmp_path, read_only=True) as reading, reading.receiver("billing") as billing:
        with tm.Log(tmp_path, sync="none") as log, log.publisher() as out:
            assert out.send([b"new"] * 8).first == 6
            seen: list[int] = []
            while len(seen) < 8:
                batch = billing.receive(wait_s=WITHIN_S)
                assert batch is not None
                seen += range(batch.first_seq, batch.next_seq)
                batch.ack()
            assert seen == list(range(6, 14))
        billing.flush()  # An ack alone is stored soon, and not at once.
        assert reading.consumers() == {"billing": 13}


def test_receivers_that_come_and_go_at_once_do_not_forget_or_keep_one_another(
    tmp_path: Path,
) -> None:
    heard: set[int] = set()
    begin, are_there = threading.Barrier(5), threading.Event()

    def come_and_go() -> None:
        begin.wait(WITHIN_S)
        while not are_there.is_set():
            store.watch(lambda: None)()

    interval_s = sys.getswitchinterval()
    with FileLog(tmp_path / "log", sync="none") as store:
        for number in range(100):
            store.watch(functools.partial(heard.add, number))
        others = [threading.Thread(target=come_and_go) for _ in range(4)]
        sys.setswitchinterval(1e-6)
        try:
            for other in others:
                other.start()
            begin.wait(WITHIN_S)
            for number in range(100, 2_000):
                store.watch(functools.partial(heard.add, number))
            are_there.set()
            for other in others:
                other.join(WITHIN_S)
        finally:
            sys.setswitchinterval(interval_s)
        store.set_note("told", "", expected=None)
        assert len(heard) == 2_000
        assert len(store._place._watchers) == 2_000


def test_a_log_stays_where_it_is_when_the_process_goes_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with tm.Log("log", segment_bytes=16 * 1024) as log:
        monkeypatch.chdir(tmp_path / "elsewhere")
        with log.publisher() as out:
            out.send([bytes(5000)] * 8)
        assert log.ends().next == 9
    with tm.Log(tmp_path / "log", create=False) as log:
        assert len(log.read()) == 8
    assert not list((tmp_path / "elsewhere").iterdir())
