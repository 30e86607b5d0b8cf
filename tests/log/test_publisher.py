"""The publisher: many senders, groups, futures, and endings of every kind."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.files.fake_clock import FakeClock
from tests.log.contract.writing import read_all
from tidemill.log.contract import LogStore, Reservation, Withdrawn
from tidemill.log.memory import MemoryWriter, Shelf
from tidemill.log.publisher import Publisher
from tidemill.log.sends import Send


@pytest.fixture(params=[1, 4], ids=["1-lane", "4-lanes"])
def shelf(request: pytest.FixtureRequest) -> Shelf:
    return Shelf(lanes=request.param)


@pytest.fixture
def store(shelf: Shelf) -> LogStore:
    return shelf.open()


@pytest.fixture
def out(store: LogStore) -> Iterator[Publisher]:
    with Publisher(store) as out:
        yield out


class Gate:
    """Holds appends up until it is opened; says when one has come."""

    def __init__(self, shelf: Shelf) -> None:
        self.arrived = threading.Semaphore(0)
        self.open = threading.Event()
        shelf.hurdle = self._pass

    def _pass(self, lane: int, reservation: Reservation) -> None:
        self.arrived.release()
        assert self.open.wait(60)

    def wait(self) -> None:
        assert self.arrived.acquire(timeout=60)


class Trouble:
    """Lets appends fail or take their time at random."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._mutex = threading.Lock()

    def __call__(self, lane: int, reservation: Reservation) -> None:
        with self._mutex:
            fails, pause_s = self._draw.random() < 0.2, self._draw.choice((0, 0, 0.0005, 0.002))
        time.sleep(pause_s)
        if fails:
            raise tm.DiskFull("no room")


@pytest.mark.parametrize("seed", range(20))
def test_sends_of_each_thread_keep_their_order_whatever_fails(
    shelf: Shelf, store: LogStore, seed: int
) -> None:
    out = Publisher(store)
    shelf.hurdle = Trouble(seed)
    futures: list[list[Future[tm.Receipt]]] = [[], [], []]

    def work(who: int) -> None:
        for number in range(60):
            futures[who].append(out.send_soon(b"%d-%d" % (who, number)))

    threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.close()
    rows = read_all(store)
    written = 0
    for who, mine in enumerate(futures):
        seqs = [one.result().first for one in mine if one.exception() is None]
        assert seqs == sorted(seqs)
        for number, one in enumerate(mine):
            if one.exception() is None:
                assert rows[one.result().first - 1] == b"%d-%d" % (who, number)
        written += len(seqs)
    assert len(rows) == written


def test_one_row_and_a_batch(out: Publisher, store: LogStore) -> None:
    assert out.send(b"one") == tm.Receipt(1, 1, 1, "buffered")
    assert out.send([b"two", b"three"]) == tm.Receipt(2, 3, 2, "buffered")
    assert out.send(pa.table({"value": [b"four"]})).first == 4
    assert read_all(store) == [b"one", b"two", b"three", b"four"]


def test_a_send_of_nothing_is_a_receipt_of_nothing(out: Publisher, store: LogStore) -> None:
    assert out.send([]) == tm.Receipt(1, 0, 0, "buffered")
    out.send(b"one")
    assert out.send_soon([]).result() == tm.Receipt(2, 1, 0, "buffered")
    assert store.ends().next == 2


def test_many_threads_get_the_numbers_of_their_own_rows(out: Publisher, store: LogStore) -> None:
    def send(who: int) -> list[tuple[int, list[bytes]]]:
        found = []
        for turn in range(40):
            rows = [b"%d-%d-%d" % (who, turn, row) for row in range(turn % 4 + 1)]
            receipt = out.send(rows)
            assert receipt.count == len(rows)
            found.append((receipt.first, rows))
        return found

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(send, range(8)))
    rows = read_all(store)
    assert len(rows) == sum(len(sent) for found in results for _, sent in found)
    for found in results:
        assert [first for first, _ in found] == sorted(first for first, _ in found)
        for first, sent in found:
            assert rows[first - 1 : first - 1 + len(sent)] == sent


def test_sends_that_wait_together_share_frames(shelf: Shelf, store: LogStore) -> None:
    gate = Gate(shelf)
    with Publisher(store) as out:
        busy = [out.send_soon(b"first") for _ in range(1)]
        gate.wait()
        lanes = shelf.lanes
        # The other lanes are kept busy as well, so that what follows has to wait.
        for _ in range(lanes - 1):
            busy.append(out.send_soon(b"busy"))
            gate.wait()
        waiting = [out.send_soon([b"x", b"y"]) for _ in range(100)]
        gate.open.set()
        wait(busy + waiting, 60)
    assert len(shelf.frames) <= 2 * lanes
    assert [one.result().first for one in waiting] == list(range(lanes + 1, lanes + 201, 2))


def test_futures_of_one_thread_are_numbered_in_order(out: Publisher, store: LogStore) -> None:
    futures = [out.send_soon(b"%d" % number) for number in range(500)]
    out.flush()
    assert [future.result(0).first for future in futures] == list(range(1, 501))
    assert read_all(store) == [b"%d" % number for number in range(500)]


def test_futures_that_nobody_looks_at_hold_nobody_up(store: LogStore) -> None:
    with Publisher(store, pending_bytes_max=1_000) as out:
        for _ in range(2_000):
            out.send_soon(bytes(100))
    assert store.ends().next == 2_001


def test_senders_wait_when_too_much_is_on_its_way(shelf: Shelf, store: LogStore) -> None:
    gate = Gate(shelf)
    out = Publisher(store, pending_bytes_max=10_000)
    for _ in range(9):
        out.send_soon(bytes(900))
    gate.wait()
    blocked = threading.Thread(target=out.send_soon, args=(bytes(5_000),))
    blocked.start()
    blocked.join(0.2)
    assert blocked.is_alive()
    gate.open.set()
    blocked.join(60)
    assert not blocked.is_alive()
    out.close()
    assert store.ends().next == 11


def test_one_send_may_be_larger_than_all_that_may_wait(store: LogStore) -> None:
    with Publisher(store, pending_bytes_max=10) as out:
        assert out.send([bytes(1_000)] * 3).count == 3


def test_small_sends_do_not_pass_a_large_one_that_waits_for_room(
    shelf: Shelf, store: LogStore
) -> None:
    gate = Gate(shelf)
    out = Publisher(store, pending_bytes_max=1_000)
    out.send_soon(bytes(400))
    gate.wait()
    with ThreadPoolExecutor(2) as threads:
        large = threads.submit(out.send, bytes(2_000))
        until_s = time.monotonic() + 10
        while out._line.has_room(Send(values=(b"small",))) and time.monotonic() < until_s:
            time.sleep(0.001)
        small = threads.submit(out.send, bytes(400))
        assert not wait([large, small], 0.2).done
        gate.open.set()
        assert (large.result(60).first, small.result(60).first) == (2, 3)
    out.close()


@pytest.mark.parametrize("call", ["send", "flush", "close"])
def test_what_is_called_back_may_use_the_publisher(
    store: LogStore, call: str, shelf: Shelf
) -> None:
    out = Publisher(store)
    done: list[str] = []

    def back(future: Future[tm.Receipt]) -> None:
        if call == "send":
            out.send(b"again")
        elif call == "flush":
            out.send_soon(b"again")
            out.flush()
        else:
            out.close()
        done.append(call)

    futures = []
    gate = Gate(shelf)
    for _ in range(shelf.lanes):
        futures.append(out.send_soon(b"first"))
        futures[-1].add_done_callback(back)
        gate.wait()
    gate.open.set()
    wait(futures, 60)
    out.flush()
    out.close()
    assert done == [call] * shelf.lanes
    assert store.ends().next == (1 if call == "close" else 2) * shelf.lanes + 1


def test_close_writes_what_is_on_its_way_and_refuses_more(shelf: Shelf, store: LogStore) -> None:
    gate = Gate(shelf)
    out = Publisher(store)
    futures = [out.send_soon(b"x") for _ in range(20)]
    closers = [threading.Thread(target=out.close) for _ in range(3)]
    for closer in closers:
        closer.start()
    gate.open.set()
    for closer in closers:
        closer.join(60)
        assert not closer.is_alive()
    assert all(future.done() for future in futures)
    with pytest.raises(tm.Closed):
        out.send(b"y")
    with pytest.raises(tm.Closed):
        out.send_soon(b"y")
    out.close()
    assert store.ends().next == 21


def test_senders_that_wait_for_room_hear_of_the_close(shelf: Shelf, store: LogStore) -> None:
    gate = Gate(shelf)
    out = Publisher(store, pending_bytes_max=100)
    out.send_soon(bytes(50))
    gate.wait()
    with ThreadPoolExecutor(2) as threads:
        blocked = threads.submit(out.send_soon, bytes(50))
        closing = threads.submit(out.close)
        with pytest.raises(tm.Closed):
            blocked.result(60)
        gate.open.set()
        closing.result(60)
    assert store.ends().next == 2


def test_a_fenced_publisher_says_so_to_all_who_wait(shelf: Shelf, store: LogStore) -> None:
    gate = Gate(shelf)
    out = Publisher(store)
    futures = [out.send_soon(b"x") for _ in range(10)]
    gate.wait()
    newer = Publisher(store)
    gate.open.set()
    for future in futures:
        with pytest.raises(tm.Fenced):
            future.result(60)
    with pytest.raises(tm.Fenced):
        out.send(b"x")
    out.close()
    assert newer.send(b"y").first == 1
    newer.close()
    assert read_all(store) == [b"y"]


def test_a_failed_write_fails_its_own_sends_alone(shelf: Shelf, store: LogStore) -> None:
    out = Publisher(store)
    gate = Gate(shelf)
    futures = []
    for number in range(shelf.lanes):
        futures.append(out.send_soon(b"%d" % number))
        gate.wait()
    futures += [out.send_soon(b"late-%d" % number) for number in range(5)]
    failed: list[int] = []

    def fail_the_first(lane: int, reservation: Reservation) -> None:
        if not failed:
            failed.append(reservation.first)
            raise tm.DiskFull("no room")

    # Those that are held up go on; what is gathered next meets the full disk.
    shelf.hurdle = fail_the_first
    gate.open.set()
    out.close()
    ended = [future.exception(60) is None for future in futures]
    assert all(ended[: shelf.lanes])
    assert not all(ended)
    good = [future.result() for future in futures if future.exception() is None]
    assert [receipt.first for receipt in good] == list(range(1, len(good) + 1))
    assert store.ends().next == len(good) + 1


def test_withdrawn_sends_keep_their_order() -> None:
    shelf = Shelf(lanes=4)
    store = shelf.open()
    out = Publisher(store)
    hold = threading.Event()
    arrived = threading.Semaphore(0)

    def hurdle(lane: int, reservation: Reservation) -> None:
        arrived.release()
        if reservation.first == 1 and not hold.is_set():
            assert hold.wait(60)
            raise tm.DiskFull("no room")

    shelf.hurdle = hurdle
    futures = []
    for number in range(4):
        futures.append(out.send_soon(b"%d" % number))
        assert arrived.acquire(timeout=60)
    futures += [out.send_soon(b"%d" % number) for number in range(4, 30)]
    hold.set()
    out.close()
    with pytest.raises(tm.DiskFull):
        futures[0].result()
    assert [future.result().first for future in futures[1:]] == list(range(1, 30))
    assert read_all(store) == [b"%d" % number for number in range(1, 30)]


def test_nothing_is_numbered_while_a_failure_is_on_its_way() -> None:
    shelf = Shelf(lanes=3)
    store = shelf.open()
    out = Publisher(store)
    arrived, failed = threading.Semaphore(0), threading.Semaphore(0)
    may_fail, may_be_told = threading.Event(), threading.Event()

    def hurdle(lane: int, reservation: Reservation) -> None:
        arrived.release()
        if reservation.first == 1 and not may_fail.is_set():
            assert may_fail.wait(60)
            raise tm.DiskFull("no room")

    writer = out._writer
    append = writer.append

    def told_late(*args: Any) -> Any:
        try:
            return append(*args)
        except (tm.DiskFull, Withdrawn):
            failed.release()
            assert may_be_told.wait(60)
            raise

    shelf.hurdle = hurdle
    setattr(writer, "append", told_late)  # noqa: B010
    futures = []
    for row in (b"fails", b"withdrawn"):
        futures.append(out.send_soon(row))
        assert arrived.acquire(timeout=60)
    may_fail.set()
    for _ in range(2):
        assert failed.acquire(timeout=60)
    futures.append(out.send_soon(b"behind it"))
    # Let it be gathered, if anything lets it: nobody has been told of the failure yet.
    wait(futures, 0.2)
    may_be_told.set()
    out.close()
    assert isinstance(futures[0].exception(), tm.DiskFull)
    assert [future.result().first for future in futures[1:]] == [1, 2]
    assert read_all(store) == [b"withdrawn", b"behind it"]


def test_an_interrupted_sender_leaves_the_line(
    shelf: Shelf, store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(shelf)
    out = Publisher(store)
    for _ in range(shelf.lanes):
        out.send_soon(b"busy")
        gate.wait()

    class Interrupted:
        def acquire(self) -> bool:
            raise KeyboardInterrupt

        def locked(self) -> bool:
            return True

        def release(self) -> None:
            pass

    line = out._line
    wait_for = line.wait

    def interrupted_wait(send: object) -> None:
        send.wakeup = Interrupted()  # type: ignore[attr-defined]
        wait_for(send)  # type: ignore[arg-type]

    monkeypatch.setattr(line, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        out.send(b"never")
    monkeypatch.undo()
    gate.open.set()
    out.send(b"last")
    out.close()
    assert read_all(store) == [b"busy"] * shelf.lanes + [b"last"]


def test_a_sender_that_is_interrupted_as_it_wakes_wakes_the_next(
    shelf: Shelf, store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders of one group wake each other; each that is woken here is interrupted at once."""
    gate = Gate(shelf)
    out = Publisher(store)
    for _ in range(shelf.lanes):
        out.send_soon(b"busy")
        gate.wait()
    line = out._line
    wait_for = line.wait
    asleep = threading.Semaphore(0)

    class Interrupted:
        """Sleeps as a lock does, and is interrupted when its send is done."""

        def __init__(self, send: Send) -> None:
            self._send = send
            self._lock = threading.Lock()
            self._lock.acquire()

        def acquire(self) -> bool:
            asleep.release()
            self._lock.acquire()
            if self._send.is_done:
                raise KeyboardInterrupt
            return True

        def locked(self) -> bool:
            return self._lock.locked()

        def release(self) -> None:
            self._lock.release()

    def interrupted_wait(send: Send) -> None:
        send.wakeup = Interrupted(send)  # type: ignore[assignment]
        wait_for(send)

    monkeypatch.setattr(line, "wait", interrupted_wait)
    ends: list[str] = []

    def send(number: int) -> None:
        try:
            out.send(b"%d" % number)
            ends.append("sent")
        except KeyboardInterrupt:
            ends.append("interrupted")

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(20)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert asleep.acquire(timeout=60)
    gate.open.set()
    until_s = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0, until_s - time.monotonic()))
    assert len(ends) == 20
    assert ends.count("interrupted") >= 20 - 2 * shelf.lanes  # those that wrote did not sleep
    assert len(read_all(store)) == shelf.lanes + 20
    monkeypatch.undo()
    out.close()


def test_what_was_sent_soon_may_be_changed_behind_it(shelf: Shelf, store: LogStore) -> None:
    gate = Gate(shelf)
    rows = [b"a", b"b"]
    with Publisher(store) as out:
        for _ in range(shelf.lanes + 1):
            out.send_soon(rows)
        rows[:] = [b"changed"]
        gate.open.set()
    assert read_all(store) == [b"a", b"b"] * (shelf.lanes + 1)


def test_rows_of_every_form_share_a_group(shelf: Shelf, store: LogStore) -> None:
    gate = Gate(shelf)
    with Publisher(store) as out:
        for _ in range(shelf.lanes):
            out.send_soon(b"busy")
            gate.wait()
        forms = [b"a", [b"b", b"c"], pa.table({"value": [b"d"]}), [bytearray(b"e")], b"", [b"f"]]
        futures = [out.send_soon(form) for form in [*forms, bytes(100_000), b"g"]]
        gate.open.set()
        firsts = [future.result().first for future in futures]
    rows = read_all(store)[shelf.lanes :]
    assert rows == [b"a", b"b", b"c", b"d", b"e", b"", b"f", bytes(100_000), b"g"]
    assert firsts == [shelf.lanes + first for first in (1, 2, 4, 5, 6, 7, 8, 9)]


def test_an_interrupt_in_the_middle_of_a_write_ends_the_publisher(
    shelf: Shelf, store: LogStore
) -> None:
    def interrupt(lane: int, reservation: Reservation) -> None:
        raise KeyboardInterrupt

    out = Publisher(store)
    shelf.hurdle = interrupt
    with pytest.raises(KeyboardInterrupt):
        out.send(b"x")
    shelf.hurdle = None
    with pytest.raises(tm.StorageFailed):
        out.send(b"x")
    out.close()
    assert store.ends().next == 1


def test_a_throttled_lane_gathers_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    shelf = Shelf(lanes=1)
    store = shelf.open()
    turns: list[float] = [0.0]
    monkeypatch.setattr(MemoryWriter, "turn_s", lambda self, lane: turns[0])
    out = Publisher(store, clock=clock)
    out.send(b"first")
    turns[0] = 5.0
    futures = [out.send_soon(b"x") for _ in range(50)]
    assert clock.waiting.acquire(timeout=60)
    assert not any(future.done() for future in futures)
    turns[0] = 0.0
    clock.advance(5)
    out.close()
    assert len(shelf.frames) == 2


def test_a_row_that_is_too_large_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryWriter, "frame_bytes_max", 20_000)
    monkeypatch.setattr(MemoryWriter, "frame_bytes_setting", "raise max_allowed_packet")
    store = Shelf().open()
    with Publisher(store) as out:
        with pytest.raises(tm.TooLarge, match="raise max_allowed_packet"):
            out.send([b"small", bytes(30_000)])
        assert out.send([bytes(5_000)] * 20).count == 20
    assert read_all(store) == [bytes(5_000)] * 20


@pytest.mark.parametrize(
    "rows", ["text", [1], [(1, b"a")], [b"a", None], {"n": 1}, 5, [{"key": 1, "value": b"a"}]]
)
def test_bad_rows_leave_no_trace(out: Publisher, store: LogStore, rows: object) -> None:
    with pytest.raises(tm.InvalidInput):
        out.send(rows)
    with pytest.raises(tm.InvalidInput):
        out.send_soon(rows)
    assert out.send(b"good").first == 1


def test_what_a_queue_or_a_log_gave_can_be_sent(out: Publisher, store: LogStore) -> None:
    out.send(tm.Batch.of([(1, b"a"), (2, b"b")]))
    out.send(store.read(1, rows_max=1, bytes_max=100)[0])
    assert read_all(store) == [b"a", b"b", b"a"]


def test_after_a_fork_the_child_is_told(out: Publisher) -> None:
    out.send(b"x")
    pid = os.fork()
    if pid == 0:
        try:
            out.send(b"y")
        except tm.Closed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


class TestProducers:
    """Sends under a producer's number."""

    @pytest.fixture
    def out(self, store: LogStore) -> Iterator[Publisher]:
        with Publisher(store, producer="loader") as out:
            yield out

    def test_the_same_number_is_written_once(self, out: Publisher, store: LogStore) -> None:
        one = out.send([b"a", b"b"], number=1)
        assert out.send([b"a", b"b"], number=1) == one
        assert out.send_soon([b"a", b"b"], number=1).result(60) == one
        two = out.send([b"c"], number=7)
        assert two.first == 3
        assert read_all(store) == [b"a", b"b", b"c"]

    def test_another_publisher_knows_it(self, out: Publisher, store: LogStore) -> None:
        one = out.send([b"a", b"b"], number=5)
        with Publisher(store, producer="loader") as again:
            assert again.send([b"a", b"b"], number=5) == one
            with pytest.raises(tm.ProducerRewound) as caught:
                again.send(b"x", number=4)
            assert caught.value.last == 5
        with Publisher(store, producer="other") as other:
            assert other.send(b"o", number=1).first == 3

    def test_another_content_under_the_same_number_is_refused(self, out: Publisher) -> None:
        out.send([b"a", b"b"], number=5, digest=b"one")
        with pytest.raises(tm.ProducerMismatch):
            out.send([b"a"], number=5)
        with pytest.raises(tm.ProducerMismatch):
            out.send([b"a", b"b"], number=5, digest=b"two")

    def test_a_number_without_rows_is_remembered(self, out: Publisher, store: LogStore) -> None:
        assert out.send([], number=3).count == 0
        with Publisher(store, producer="loader") as again:
            assert again.send([], number=3).count == 0
            with pytest.raises(tm.ProducerRewound):
                again.send([], number=2)

    def test_what_is_numbered_behind_a_failed_send_does_not_pass_it(
        self, shelf: Shelf, out: Publisher, store: LogStore
    ) -> None:
        arrived = threading.Semaphore(0)
        hold = threading.Event()

        def fail(lane: int, reservation: Reservation) -> None:
            arrived.release()
            if reservation.first == 1 and not hold.is_set():
                assert hold.wait(60)
                raise tm.DiskFull("no room")

        shelf.hurdle = fail
        futures = [out.send_soon(b"1", number=1)]
        assert arrived.acquire(timeout=60)
        futures += [out.send_soon(b"%d" % number, number=number) for number in (2, 3, 4)]
        with pytest.raises(tm.InvalidInput, match="on its way already"):
            out.send(b"2", number=2)
        hold.set()
        out.flush()
        for future in futures:
            with pytest.raises(tm.DiskFull):
                future.result(60)
        shelf.hurdle = None
        with pytest.raises(tm.InvalidInput, match="number 1 failed and comes before 5"):
            out.send(b"5", number=5)
        for number in (1, 2, 3, 4):
            assert out.send(b"%d" % number, number=number).first == number
        assert read_all(store) == [b"1", b"2", b"3", b"4"]

    def test_a_number_costs_the_same_however_many_are_on_their_way(
        self, shelf: Shelf, out: Publisher
    ) -> None:
        class Counting(dict[int, Send]):
            looked_at = 0

            def __iter__(self) -> Iterator[int]:
                Counting.looked_at += len(self)
                return super().__iter__()

        gate = Gate(shelf)
        assert out._producer is not None
        out._producer._under_way = Counting()
        for number in range(100):
            out.send_soon(b"x", number=number)
        looked_at = Counting.looked_at
        gate.open.set()
        assert looked_at == 0

    def test_who_waits_for_a_failed_number_may_leave_it_out(
        self, shelf: Shelf, out: Publisher, store: LogStore
    ) -> None:
        def fail(lane: int, reservation: Reservation) -> None:
            raise tm.DiskFull("no room")

        shelf.hurdle = fail
        with pytest.raises(tm.DiskFull):
            out.send(b"1", number=1)
        shelf.hurdle = None
        assert out.send(b"2", number=2).first == 1

    @pytest.mark.parametrize("seed", range(20))
    def test_numbers_are_written_in_order_whatever_fails(
        self, shelf: Shelf, out: Publisher, store: LogStore, seed: int
    ) -> None:
        shelf.hurdle = Trouble(seed)
        number, written = 0, 0
        while number < 100:
            futures = {}
            for one in range(number, 100):
                try:
                    futures[one] = out.send_soon([b"%d" % one] * (one % 4), number=one)
                except tm.InvalidInput:
                    break
            out.flush()
            failed = [one for one, future in futures.items() if future.exception() is not None]
            good = [one for one in futures if one not in failed]
            written += len(good)
            # What failed lies behind all that was written.
            assert not failed or max(good, default=-1) < min(failed)
            number += len(good)
        assert written == 100
        expected = [b"%d" % one for one in range(100) for _ in range(one % 4)]
        assert read_all(store) == expected

    @pytest.mark.parametrize("number", [-1, 2**63, "1", 1.0, True])
    def test_what_is_no_number_is_refused(self, out: Publisher, number: object) -> None:
        with pytest.raises(tm.InvalidInput):
            out.send(b"x", number=number)  # type: ignore[arg-type]


def test_numbers_need_a_producer(out: Publisher) -> None:
    with pytest.raises(tm.InvalidInput):
        out.send(b"x", number=1)
    with pytest.raises(tm.InvalidInput):
        out.send(b"x", digest=b"d")


def test_the_name_of_a_producer_is_checked(store: LogStore) -> None:
    with pytest.raises(tm.InvalidName):
        Publisher(store, producer="../x")
