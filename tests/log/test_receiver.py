"""The receiver: order, acks of every kind, starts, bounds, and endings."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.files.fake_clock import FakeClock
from tests.log.contract.writing import append
from tidemill.batch import LogBatch
from tidemill.log.contract import ConsumerClaim, LogStore
from tidemill.log.memory import MemoryLog, Shelf
from tidemill.log.on_files.store import FileLog
from tidemill.log.publisher import Publisher
from tidemill.log.receiver import Receiver


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Iterator[LogStore]:
    with Shelf(clock=clock).open() as store:
        yield store


@pytest.fixture
def full(store: LogStore) -> LogStore:
    writer = store.claim()
    for first in range(1, 101, 4):
        append(writer, [b"%d" % number for number in range(first, first + 4)])
    return store


ROWS = [b"%d" % number for number in range(1, 101)]


def received(receiver: Receiver) -> list[bytes]:
    """All rows up to the end, after checking that they come in strict order."""
    rows, at = [], receiver.pointer + 1
    for batch in receiver:
        assert batch.first_seq == at
        at = batch.next_seq
        rows += batch.rows()
    return rows


def test_behind_a_loop_that_ended_its_acks_are_stored(full: LogStore) -> None:
    for batch in Receiver(full, "one", follow=False):
        batch.ack()
    assert full.consumers()["one"].pointer == 100


def test_a_loop_that_acked_all_up_to_its_end_leaves_no_thread(full: LogStore) -> None:
    receiver = Receiver(full, "one", follow=False)
    for batch in receiver:
        batch.ack()
    for own in (receiver._reader, receiver._keeper):
        assert own._thread is not None
        own._thread.join(60)
        assert not own._thread.is_alive()
    receiver.ack(1, 100)
    receiver.close()


def test_rows_come_in_strict_order_up_to_the_end(full: LogStore) -> None:
    with Receiver(full, "one", follow=False) as receiver:
        assert received(receiver) == ROWS


@pytest.mark.parametrize("rows_max", [1, 3, 7, 100])
@pytest.mark.parametrize("prefetch_bytes", [1, 100, 10**6])
def test_bounds_change_nothing_about_the_rows(
    full: LogStore, rows_max: int, prefetch_bytes: int
) -> None:
    receiver = Receiver(full, "one", follow=False, rows_max=rows_max, prefetch_bytes=prefetch_bytes)
    with receiver:
        batches = list(receiver)
    assert max(len(batch) for batch in batches) <= rows_max
    assert [row for batch in batches for row in batch.rows()] == ROWS


def test_small_frames_are_given_together(full: LogStore) -> None:
    with Receiver(full, "one", follow=False) as receiver:
        assert [len(batch) for batch in receiver] == [100]


def test_a_bounded_receiver_ends_at_the_last_row_of_its_beginning(full: LogStore) -> None:
    with Receiver(full, "one", follow=False) as receiver:
        append(full.claim(), [b"late"])
        assert received(receiver) == ROWS
        assert receiver.receive() is None


def test_a_following_receiver_waits_for_rows(store: LogStore) -> None:
    seen: list[bytes] = []
    with Receiver(store, "one") as receiver, ThreadPoolExecutor(1) as threads:

        def follow() -> None:
            for batch in receiver:
                seen.extend(batch.rows())
                batch.ack()
                if len(seen) == 50:
                    return

        done = threads.submit(follow)
        with Publisher(store) as out:
            for number in range(50):
                out.send(b"%d" % number)
        done.result(60)
    assert seen == [b"%d" % number for number in range(50)]
    assert store.consumers()["one"].pointer == 50


def test_waiting_has_an_end(store: LogStore) -> None:
    with Shelf().open() as real, Receiver(real, "one") as receiver:
        assert receiver.receive(wait_s=0) is None
        assert receiver.receive(wait_s=0.01) is None


@pytest.mark.parametrize("wait_s", [float("inf"), 10**12])
def test_a_wait_may_be_as_long_as_one_likes(full: LogStore, wait_s: float) -> None:
    with Receiver(full, "one") as receiver:
        # The first call waits for the thread that reads.
        assert receiver.receive(wait_s) is not None


@pytest.mark.parametrize("wait_s", [-1, float("nan"), "1", True])
def test_what_is_no_wait_is_refused(full: LogStore, wait_s: Any) -> None:
    with Receiver(full, "one") as receiver, pytest.raises(tm.InvalidInput, match="wait_s"):
        receiver.receive(wait_s)


def test_rows_that_are_there_are_given_however_short_the_wait(tmp_path: Path) -> None:
    with Shelf().open() as memory, FileLog(tmp_path / "log") as files:
        for real in (memory, files):
            with Publisher(real) as out, Receiver(real, "one") as receiver:
                for number in range(20):
                    out.send(b"%d" % number)
                    batch = receiver.receive(wait_s=0)
                    assert batch is not None
                    assert batch.rows() == [b"%d" % number]
                assert receiver.receive(wait_s=0) is None


def test_acks_in_any_order_from_many_threads(full: LogStore) -> None:
    with Receiver(full, "one", follow=False) as receiver:
        assert received(receiver) == ROWS
        seqs = list(range(1, 101)) * 2
        random.Random(7).shuffle(seqs)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(receiver.ack, seqs))
        assert receiver.pointer == 100
        receiver.flush()
        assert full.consumers()["one"].pointer == 100


def test_the_pointer_is_the_end_of_the_longest_acked_prefix(full: LogStore) -> None:
    with Receiver(full, "one", follow=False) as receiver:
        received(receiver)
        receiver.ack(3)
        receiver.ack(5, 9)
        assert receiver.pointer == 0
        receiver.ack(1, 2)
        assert receiver.pointer == 3
        receiver.flush()
        assert full.consumers()["one"].pointer == 3
        receiver.ack(4)
        receiver.ack(4)
        receiver.ack(2)
        assert receiver.pointer == 9


def test_a_trailing_ack_is_stored_without_another(full: LogStore) -> None:
    receiver = Receiver(full, "one")
    batch = receiver.receive()
    assert batch is not None
    batch.ack()
    stored = threading.Event()
    while not stored.is_set():
        if full.consumers()["one"].pointer == 100:
            stored.set()
        stored.wait(0.001)
    receiver.close()


def test_acks_gather_for_a_moment_unless_somebody_waits(
    full: LogStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    stored = threading.Semaphore(0)
    move_pointer = full.move_pointer

    def noted(claim: ConsumerClaim, pointer: int) -> None:
        move_pointer(claim, pointer)
        moved.append(pointer)
        stored.release()

    monkeypatch.setattr(full, "move_pointer", noted)
    with Receiver(full, "one", follow=False, clock=clock) as receiver:
        assert receiver.receive() is not None
        while clock.waiting.acquire(blocking=False):
            pass  # The wait for these rows, if there was one, is none of the acks'.
        receiver.ack(1)
        assert stored.acquire(timeout=60)  # The first one is stored at once.
        receiver.ack(2)
        assert clock.waiting.acquire(timeout=60)
        receiver.ack(3)
        receiver.ack(4)
        assert moved == [1]
        receiver.flush()
        assert moved == [1, 4]
        receiver.ack(5)
        assert clock.waiting.acquire(timeout=60)
        receiver.ack(6)
        clock.advance(1)
        assert stored.acquire(timeout=60)
        assert stored.acquire(timeout=60)
        assert moved == [1, 4, 6]
        receiver.ack(7)
    assert moved == [1, 4, 6, 7]


def test_an_ack_that_no_thread_can_be_started_for_changes_nothing(
    full: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Receiver(full, "one", follow=False) as receiver:
        batch = receiver.receive()
        assert batch is not None
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(tm.SurroundingsError, match="can't start new thread"):
                batch.ack()
        assert receiver.pointer == 0
        batch.ack()
        assert receiver.pointer == batch.last_seq
    assert full.consumers()["one"].pointer == batch.last_seq


def test_a_restart_gives_everything_behind_the_pointer_again(full: LogStore) -> None:
    with Receiver(full, "one", follow=False) as receiver:
        received(receiver)
        receiver.ack(1, 10)
        receiver.ack(20, 30)
    with Receiver(full, "one", follow=False) as receiver:
        assert receiver.pointer == 10
        assert received(receiver) == ROWS[10:]


def test_consumers_do_not_know_of_each_other(full: LogStore) -> None:
    with Receiver(full, "one", follow=False) as one, Receiver(full, "two", follow=False) as two:
        assert received(one) == ROWS
        one.ack(1, 100)
        one.flush()
        assert received(two) == ROWS
        assert two.pointer == 0


@pytest.mark.parametrize("seq", [101, 1_000, "1", 1.0, True, None])
def test_what_was_not_given_cannot_be_acked(full: LogStore, seq: object) -> None:
    with Receiver(full, "one", follow=False) as receiver:
        received(receiver)
        with pytest.raises(tm.InvalidInput):
            receiver.ack(seq)  # type: ignore[arg-type]
        assert receiver.pointer == 0


def test_a_range_is_acked_from_its_lower_end_on(full: LogStore) -> None:
    with Receiver(full, "billing") as receiver:
        assert receiver.receive() is not None
        with pytest.raises(tm.InvalidInput, match="not 2 to 1"):
            receiver.ack(2, 1)
        assert receiver.pointer == 0


def test_rows_that_were_only_read_ahead_cannot_be_acked(full: LogStore) -> None:
    with Receiver(full, "one", rows_max=10) as receiver:
        assert receiver.receive() is not None
        with pytest.raises(tm.InvalidInput, match="the last that was given is 10"):
            receiver.ack(11)


@pytest.mark.parametrize(
    ("start", "first"), [("earliest", 1), ("latest", 101), (1, 1), (50, 50), (101, 101)]
)
def test_a_new_consumer_starts_where_it_is_told(full: LogStore, start: int, first: int) -> None:
    with Receiver(full, "one", start=start, follow=False) as receiver:
        assert received(receiver) == ROWS[first - 1 :]


def test_one_that_exists_goes_on_where_it_was(full: LogStore) -> None:
    Receiver(full, "one", start=50).close()
    with Receiver(full, "one", start="earliest", follow=False) as receiver:
        assert received(receiver) == ROWS[49:]


def test_it_may_start_at_a_time(store: LogStore, clock: FakeClock) -> None:
    writer = store.claim()
    times = []
    for number in range(10):
        clock.advance(1)
        times.append(datetime.fromtimestamp(clock.time_ns() / 1e9, UTC))
        append(writer, [b"%d" % number])
    elsewhere = timezone(timedelta(hours=5, minutes=30))
    starts = {
        times[4]: 5,
        times[4].astimezone(elsewhere): 5,
        times[4] + timedelta(microseconds=1): 6,
        times[0] - timedelta(days=9_000): 1,
        times[9] + timedelta(seconds=1): 11,
    }
    for number, (start, first) in enumerate(starts.items()):
        with Receiver(store, f"c{number}", start=start, follow=False) as receiver:
            assert receiver.pointer == first - 1


@pytest.mark.parametrize("start", [0, -1, "first", 1.5, True, None, datetime(2026, 1, 1)])  # noqa: DTZ001
def test_a_start_that_makes_no_sense_is_refused(full: LogStore, start: object) -> None:
    with pytest.raises(tm.InvalidInput):
        Receiver(full, "one", start=start)  # type: ignore[arg-type]
    assert full.consumers() == {}


@pytest.mark.parametrize("options", [{"rows_max": 0}, {"prefetch_bytes": 0}, {"rows_max": True}])
def test_bounds_that_make_no_sense_are_refused(full: LogStore, options: dict[str, int]) -> None:
    with pytest.raises(tm.InvalidInput):
        Receiver(full, "one", **options)  # type: ignore[arg-type]
    assert full.consumers() == {}


def test_a_newer_receiver_fences_the_older(full: LogStore) -> None:
    old = Receiver(full, "one", follow=False)
    received(old)
    old.ack(1, 5)
    old.flush()
    with Receiver(full, "one", follow=False) as new:
        assert new.pointer == 5
        old.ack(6, 20)
        with pytest.raises(tm.Fenced):
            old.flush()
        with pytest.raises(tm.Fenced):
            old.ack(21)
        with pytest.raises(tm.Fenced):
            old.close()
        assert received(new) == ROWS[5:]
        new.ack(6)
    assert full.consumers()["one"].pointer == 6


def test_an_error_in_the_block_counts_for_more_than_a_lost_ack(full: LogStore) -> None:
    def lose_an_ack() -> None:
        with Receiver(full, "one", follow=False) as old:
            received(old)
            Receiver(full, "one").close()
            old.ack(1, 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lose_an_ack()


def test_lag_counts_what_is_behind_the_pointer(full: LogStore) -> None:
    with Receiver(full, "one", start=50, follow=False) as receiver:
        assert receiver.lag == 51
        received(receiver)
        assert receiver.lag == 51
        receiver.ack(50, 60)
        assert receiver.lag == 40
        append(full.claim(), [b"x"] * 5)
        assert receiver.lag == 45


def test_what_is_read_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Shelf().open()
    with Publisher(store) as out:
        for _ in range(50):
            out.send([bytes(10_000)])
    asked = []
    read = MemoryLog.read

    def spy(self: MemoryLog, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        # What is being given this moment is, before the loop below hears of it.
        asked.append((start, receiver._given))
        return read(self, start, rows_max=rows_max, bytes_max=bytes_max)

    monkeypatch.setattr(MemoryLog, "read", spy)
    with Receiver(store, "one", follow=False, prefetch_bytes=50_000) as receiver:
        assert [batch.last_seq for batch in receiver][-1] == 50
    # At most the bound and one frame are ahead of what was given.
    assert max(start - given for start, given in asked) <= 8


def test_closing_ends_whoever_waits(store: LogStore) -> None:
    receiver = Receiver(store, "one")
    with ThreadPoolExecutor(2) as threads:
        loop = threads.submit(lambda: [batch.rows() for batch in receiver])
        waiting = threads.submit(receiver.receive)
        while receiver._reader._thread is None:
            pass
        receiver.close()
        assert loop.result(60) == []
        with pytest.raises(tm.Closed):
            waiting.result(60)
    receiver.close()
    with pytest.raises(tm.Closed):
        receiver.ack(1)
    with pytest.raises(tm.Closed):
        receiver.receive()


def test_rows_trimmed_under_a_receiver_are_an_error(full: LogStore) -> None:
    Receiver(full, "one").close()
    full.trim(50, force=True)
    with Receiver(full, "one") as receiver, pytest.raises(tm.Trimmed) as caught:
        receiver.receive()
    assert caught.value.first == 50
    # What it says helps.
    assert "rows 1 to 49 were trimmed" in str(caught.value)
    assert "log.remove_consumer('one')" in str(caught.value)
    full.remove_consumer("one")
    with Receiver(full, "one") as receiver:
        batch = receiver.receive()
        assert batch is not None
        assert batch.first_seq == 50


def test_missing_rows_are_an_error_after_those_in_front(clock: FakeClock) -> None:
    shelf = Shelf(clock=clock)
    store = shelf.open()
    writer = store.claim()
    for number in range(10):
        append(writer, [b"%d" % number])
    del shelf.frames[6], shelf.lasts[6]
    with Receiver(store, "one") as receiver:
        batch = receiver.receive()
        assert batch is not None
        assert batch.rows() == [b"%d" % number for number in range(6)]
        for _ in range(2):
            with pytest.raises(tm.MissingRows, match="row 7 should be there"):
                receiver.receive()
        batch.ack()  # What was given still counts.
    assert store.consumers()["one"].pointer == 6
