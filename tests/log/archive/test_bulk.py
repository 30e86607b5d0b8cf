"""Files that others wrote become segments: all of them or none, once, whatever fails."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.archive.faulty_objects import Away, Crash, Fault, FaultyLog, FaultyObjects
from tests.log.archive.shared_archive import SharedArchive
from tests.log.archive.test_archiver import WHENS, archiver, fill, stray
from tests.log.contract.writing import append, read_all
from tidemill.batch import DEFAULT
from tidemill.errors import (
    Fenced,
    SchemaMismatch,
    TidemillError,
    TransactionRewound,
    Unavailable,
)
from tidemill.files.queue.receipt import Durability
from tidemill.files.staging.transaction import Outcome, Transaction
from tidemill.files.state.log_state import Mark
from tidemill.log.archive import bulk, parquet
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.folder import FolderObjects
from tidemill.log.archive.memory import MemoryObjects
from tidemill.log.archive.notes import BULK_NOTE
from tidemill.log.archive.objects import ObjectStore
from tidemill.log.contract import Ends, LogStore, LogWriter, NoteChange, Reservation
from tidemill.log.memory import MemoryWriter, Shelf
from tidemill.log.tiered import TieredLog, verify_archive

HOT = [b"%d" % number for number in range(1, 8)]
GIVEN = [[b"a", b"b"], [], [b"c"], [b"d", b"e", b"f"]]
LOADED = [row for rows in GIVEN for row in rows]
LOAD = Transaction("load", 5)
TIME_US = 1


def written(folder: Path, parts: Sequence[Sequence[bytes]] = GIVEN) -> list[Path]:
    """Files as somebody else's writer makes them."""
    paths = []
    for number, rows in enumerate(parts):
        times = pa.array([TIME_US] * len(rows), pa.timestamp("us", tz="UTC"))
        path = folder / f"{number}-{secrets.token_hex(4)}.parquet"
        table = pa.table({"time": times, "value": pa.array(rows, pa.binary())})
        pq.write_table(table, path, store_schema=False)
        paths.append(path)
    return paths


def load(
    log: LogStore, objects: ObjectStore, paths: list[Path], transaction: Transaction | None = LOAD
) -> Outcome:
    return bulk.load(
        log, Archive(objects), paths, transaction, payload=DEFAULT, time_us=TIME_US, wait_s=0
    )


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return FolderObjects(tmp_path / "archive")


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    fill(shelf, HOT)
    return shelf


def check(shelf: Shelf, rows: list[bytes]) -> None:
    with TieredLog(shelf.open()) as log:
        assert read_all(log, 1) == rows
        assert log.ends() == Ends(1, len(rows) + 1)
        times = [
            time
            for batch in log.read(1, rows_max=100, bytes_max=10**6)
            for time in batch.times.cast("int64").to_pylist()
        ]
        assert times == sorted(times)


def test_rows_come_behind_those_that_are_there(
    shelf: Shelf, objects: ObjectStore, tmp_path: Path
) -> None:
    publisher = shelf.open().claim()
    assert load(shelf.open(), objects, written(tmp_path)) == Outcome(8, 13, is_new=True)
    check(shelf, HOT + LOADED)
    assert shelf.frames == [], "hot rows are archived before"
    assert stray(objects) == set()
    assert Archive(objects).look().pending is None
    with pytest.raises(Fenced):
        append(publisher, [b"late"])
    with TieredLog(shelf.open()) as log:
        assert append(log.claim(), [b"next"]).first == 14
        assert log.seq_at(0) == 1
        layout = log.layout(1, 15)
        assert layout.firsts.tolist() == [1, 8, 10, 11, 14]
        assert layout.rows.tolist() == [7, 2, 1, 3, 1]
    check(shelf, [*HOT, *LOADED, b"next"])
    archiver(shelf.open(), objects).run(15)
    check(shelf, [*HOT, *LOADED, b"next"])


def test_times_do_not_go_back_where_another_thread_knows_an_older_archive(
    shelf: Shelf, objects: ObjectStore, tmp_path: Path
) -> None:
    archiver(shelf.open(), objects)
    shared, paths = SharedArchive(objects), written(tmp_path)
    bulk.load(shelf.open(), shared, paths, LOAD, payload=DEFAULT, time_us=TIME_US, wait_s=0)
    check(shelf, HOT + LOADED)


def test_a_transaction_is_there_once(shelf: Shelf, objects: ObjectStore, tmp_path: Path) -> None:
    assert load(shelf.open(), objects, written(tmp_path)).is_new
    assert load(shelf.open(), objects, written(tmp_path)) == Outcome(8, 13, is_new=False)
    with pytest.raises(TransactionRewound):
        load(shelf.open(), objects, written(tmp_path), Transaction("load", 4))
    check(shelf, HOT + LOADED)
    assert load(shelf.open(), objects, written(tmp_path), Transaction("load", 6)).first == 14
    assert load(shelf.open(), objects, written(tmp_path), None).first == 20
    assert load(shelf.open(), objects, written(tmp_path, [[]]), Transaction("load", 7)).rows == 0
    assert not load(shelf.open(), objects, [], Transaction("load", 7)).is_new
    check(shelf, HOT + 3 * LOADED)
    assert stray(objects) == set()


def test_a_log_may_be_empty(objects: ObjectStore, tmp_path: Path) -> None:
    shelf = Shelf()
    assert load(shelf.open(), objects, written(tmp_path)).first == 1
    check(shelf, LOADED)


def test_times_do_not_go_back(shelf: Shelf, objects: ObjectStore, tmp_path: Path) -> None:
    """The log has newer rows than the files say: they get the time of those."""
    load(shelf.open(), objects, written(tmp_path))
    with TieredLog(shelf.open()) as log:
        (batch,) = log.read(8, rows_max=1, bytes_max=100)
        assert batch.times.cast("int64")[0].as_py() == shelf.time_us > TIME_US
    named = [segment.file for segment in Archive(objects).look().segments][-1]
    footer = parquet.read_footer(objects.get(named).data)
    assert footer.row_group(0).column(0).statistics.max_raw == shelf.time_us


def test_files_that_do_not_fit_are_refused(
    shelf: Shelf, objects: ObjectStore, tmp_path: Path
) -> None:
    path = tmp_path / "other.parquet"
    times = pa.array([2**60], pa.timestamp("us", tz="UTC"))
    for column, match in (("other", "the columns time, other"), ("value", "is string, not binary")):
        pq.write_table(pa.table({"time": times, column: ["text"]}), path)
        with pytest.raises(SchemaMismatch, match=match):
            bulk.load(shelf.open(), Archive(objects), [path], LOAD, payload=DEFAULT, time_us=2**60)
    required = pa.schema([pa.field("value", pa.binary(), nullable=False)])
    pq.write_table(pa.table({"time": times, "value": pa.array([None], pa.binary())}), path)
    assert parquet.misfit(pq.read_metadata(path), required) == "its column 'value' has nulls"
    check(shelf, HOT)
    assert stray(objects) == set()


class FaultyWriter(MemoryWriter):
    """A publisher with the fault in front of the step that commits."""

    def __init__(self, writer: LogWriter, shelf: Shelf, fault: Fault) -> None:
        super().__init__(shelf, writer.epoch)
        self._fault = fault

    def skip(
        self,
        reservation: Reservation,
        time_us: int,
        note: NoteChange,
        marks: Sequence[Mark] = (),
    ) -> Durability:
        self._fault.step("skip", "before")
        done = super().skip(reservation, time_us, note, marks)
        self._fault.step("skip", "after")
        return done


class FaultyHome(FaultyLog):
    def claim(self) -> LogWriter:
        self._fault.step("claim", "before")
        return FaultyWriter(super().claim(), self._shelf, self._fault)


def faults(
    kind: type[BaseException], folder: Path
) -> Iterator[tuple[Shelf, MemoryObjects, Fault, BaseException | None]]:
    """A load with a fault at each of its calls, before and after it took effect."""
    for when in WHENS:
        for at in range(200):
            shelf = Shelf()
            fill(shelf, HOT)
            objects = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
            fault = Fault(at, when, kind)
            failure: BaseException | None = None
            try:
                load(FaultyHome(shelf, fault), FaultyObjects(objects, fault), written(folder))
            except (Crash, TidemillError) as error:
                failure = error
            if at >= len(fault.calls):
                break
            yield shelf, objects, fault, failure


def is_committed(shelf: Shelf) -> bool:
    return "load" in shelf.marks


@pytest.mark.slow
def test_a_crash_at_any_step_publishes_all_or_nothing(tmp_path: Path) -> None:
    steps = set()
    outcomes = set()
    for shelf, objects, fault, _ in faults(Crash, tmp_path):
        steps.add((fault.calls[fault.at].split()[0], fault.when))
        outcomes.add(is_committed(shelf))
        check(shelf, HOT + LOADED if is_committed(shelf) else HOT)
        done = load(shelf.open(), objects, written(tmp_path))
        assert done == Outcome(8, 13, is_new=done.is_new), fault
        check(shelf, HOT + LOADED)
        assert stray(objects) == set(), fault
    assert outcomes == {True, False}
    assert {("skip", when) for when in WHENS} <= steps
    assert {step for step, _ in steps} >= {"get", "put", "replace", "list", "claim", "release"}


@pytest.mark.slow
def test_after_a_crash_others_go_on(tmp_path: Path) -> None:
    """A publisher and an archiver that know nothing of it take the log over."""
    for shelf, objects, fault, _ in faults(Crash, tmp_path):
        rows = HOT + LOADED if is_committed(shelf) else HOT
        with TieredLog(shelf.open()) as log:
            append(log.claim(), [b"x", b"y"])
        rows = [*rows, b"x", b"y"]
        check(shelf, rows)
        archiver(shelf.open(), objects).run(len(rows) + 1)
        check(shelf, rows)
        assert Archive(objects).look().pending is None, fault
        assert stray(objects) == set(), fault
        done = load(shelf.open(), objects, written(tmp_path))
        check(shelf, rows + LOADED if done.is_new else rows)


@pytest.mark.slow
def test_a_store_that_fails_at_any_step_loses_nothing(tmp_path: Path) -> None:
    for shelf, objects, fault, failure in faults(Away, tmp_path):
        assert failure is None or isinstance(failure, Unavailable), fault
        check(shelf, HOT + LOADED if is_committed(shelf) else HOT)
        load(shelf.open(), objects, written(tmp_path))
        check(shelf, HOT + LOADED)
        assert stray(objects) == set(), fault


class Rival(Fault):
    """Somebody else does something in the middle of a call, and it goes on."""

    def __init__(self, at: int, shelf: Shelf, objects: ObjectStore, *, publishes: bool) -> None:
        super().__init__(at, "before")
        self._shelf, self._objects, self._publishes = shelf, objects, publishes

    def step(self, call: str, when: str) -> None:
        try:
            super().step(call, when)  # type: ignore[arg-type]
        except Crash:
            if self._publishes:
                append(self._shelf.open().claim(), [b"rival"])
            else:
                archiver(self._shelf.open(), self._objects).run(self._shelf.next)


@pytest.mark.slow
@pytest.mark.parametrize("publishes", [True, False])
def test_others_in_the_middle_are_told_or_tell(tmp_path: Path, publishes: bool) -> None:
    """Another publisher or archiver at each call: whoever comes first wins, and nothing is lost."""
    ends = set()
    for at in range(200):
        shelf = Shelf()
        fill(shelf, HOT)
        objects = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
        fault = Rival(at, shelf, objects, publishes=publishes)
        rival = [b"rival"] if publishes else []
        try:
            load(FaultyHome(shelf, fault), FaultyObjects(objects, fault), written(tmp_path))
            ends.add("published")
        except Fenced:
            assert not is_committed(shelf)
            ends.add("fenced")
        if not fault.is_over:
            assert ends == {"published", "fenced"}
            return
        with TieredLog(shelf.open()) as log:
            found = read_all(log, 1)
        assert sorted(found) == sorted(HOT + rival + (LOADED if is_committed(shelf) else []))
        load(shelf.open(), objects, written(tmp_path))
        with TieredLog(shelf.open()) as log:
            found = read_all(log, 1)
        assert sorted(found) == sorted(HOT + rival + LOADED)
        assert [row for row in found if row in LOADED] == LOADED
        assert stray(objects) == set(), fault
    pytest.fail("it never comes to an end")


def test_what_is_pending_and_published_counts_for_everybody(
    shelf: Shelf, objects: ObjectStore, tmp_path: Path
) -> None:
    """The commit is the log's step; the manifest follows with whoever changes it next."""
    fault = Fault(-1, "after")
    log = FaultyHome(shelf, fault)
    fault.at = 10**9
    original = fault.step

    def step(call: str, when: str) -> None:
        original(call, when)  # type: ignore[arg-type]
        if (call, when) == ("skip", "after"):
            raise Crash

    fault.step = step  # type: ignore[method-assign]
    with pytest.raises(Crash):
        load(log, objects, written(tmp_path))
    manifest = Archive(objects).look()
    assert manifest.pending is not None
    assert manifest.next == 8
    assert shelf.notes[BULK_NOTE] == manifest.pending.token
    check(shelf, HOT + LOADED)
    with TieredLog(shelf.open()) as tiered:
        assert tiered.layout(1, 14).rows.sum() == 13
        report = verify_archive(tiered, deep=True, repair=True, on_progress=None)
        assert (report.rows, report.worst, report.orphans) == (13, None, 0)
        assert tiered.trim(before=9) == 9
        assert read_all(tiered) == LOADED[1:]
    assert Archive(objects).look().pending is None
    assert stray(objects) == set()
