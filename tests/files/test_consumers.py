"""Consumers read every item in the order of arrival, and hold back what they have yet to read."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.files.interfering_fs import InterferingFileSystem
from tests.files.small_segments import SEGMENT, queue_at, segments_bytes
from tidemill.files.disk.filesystem import LocalFile, LocalFileSystem
from tidemill.files.folder.folder import Folder
from tidemill.files.merge.cursor import Cursor
from tidemill.files.queue import consumer as consumers
from tidemill.files.sharing import pointers
from tidemill.files.shovel import handover
from tidemill.files.upkeep import carry

WITHIN_S = 60


def reader_at(path: Path) -> tm.PriorityQueue:
    return tm.PriorityQueue(path, read_only=True)


def read_all(consumer: tm.Consumer, rows_max: int = 37) -> list[tuple[int, int]]:
    """(seq, key) of all that is behind the pointer, acked along the way."""
    found: list[tuple[int, int]] = []
    while len(batch := consumer.read(rows_max)):
        assert len(batch) <= rows_max
        found += zip(batch.seqs.to_pylist(), batch.keys.to_pylist(), strict=True)
        assert batch.last is not None
        consumer.ack(batch.last.seq)
    return found


def test_items_come_in_the_order_of_arrival_whatever_was_popped(tmp_path: Path) -> None:
    dice = random.Random(4)
    with queue_at(tmp_path, bucket=tm.Width(10)) as queue:
        audit = queue.fork("audit")
        consumer = queue.consumer("billing")
        pushed: list[tuple[int, int]] = []
        for _ in range(300):
            keys = [dice.randint(0, 60) for _ in range(dice.choice([1, 2, 9]))]
            receipt = queue.push([(key, bytes(300)) for key in keys])
            # Numbers are given in the order of keys within each bucket, and buckets ascend.
            pushed += zip(range(receipt.first, receipt.last + 1), sorted(keys), strict=True)
            queue.pop(dice.choice([0, 3, 6]))
            audit.pop(dice.choice([0, 1]))
        queue.delete(0, 20)
        assert queue.stats().segments > 3
        assert read_all(consumer) == pushed
        assert consumer.pointer == pushed[-1][0]
        queue.push([(5, b"more")])
        assert consumer.read().rows() == [(5, b"more")]


def test_segments_wait_for_consumers_and_go_when_they_have_acked(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        consumer = queue.consumer("slow")
        for number in range(500):
            queue.push([(number % 7, b"%d" % number + bytes(400))])
            queue.pop()
        held = segments_bytes(tmp_path)
        assert held > 6 * SEGMENT
        assert len(queue) == 0
        assert [key for _, key in read_all(consumer, 100)] == [n % 7 for n in range(500)]
        assert segments_bytes(tmp_path) <= 2 * SEGMENT


def test_removing_a_consumer_gives_disk_back(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        consumer = queue.consumer("idle")
        for number in range(500):
            queue.push([(number, bytes(400))])
            queue.pop()
        assert segments_bytes(tmp_path) > 6 * SEGMENT
        consumer.remove()
        assert queue.consumers() == {}
        assert segments_bytes(tmp_path) <= 2 * SEGMENT
        with pytest.raises(tm.Closed):
            consumer.read()


def test_what_only_a_consumer_needs_is_carried_and_no_fork_sees_it(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        queue.push([(1_000 + number, b"stays") for number in range(5)])
        consumer = queue.consumer("late")
        receipt = queue.push([(number, b"popped") for number in range(10)])
        assert len(queue.pop(10)) == 10
        for _ in range(100):
            queue.push([(1, bytes(400))])
            queue.pop()
        carry.carry(queue._core.folder, 1)
        assert 1 not in queue._core.folder.journal.segments
        assert frozenset() in queue._core.folder.state.audiences.values()
        assert queue.peek(-1).keys.to_pylist() == list(range(1_000, 1_005))
        assert queue.scan().read_all()["key"].to_pylist() == list(range(1_000, 1_005))
        batch = consumer.read(10)
        assert batch.seqs.to_pylist() == list(range(receipt.first, receipt.last + 1))
        assert batch.values.to_pylist() == [b"popped"] * 10
        assert len(read_all(consumer)) == 110
    with queue_at(tmp_path) as queue:
        assert queue.pop(-1).keys.to_pylist() == list(range(1_000, 1_005))


def test_a_pointer_lasts_and_moves_forward_only(tmp_path: Path) -> None:
    with queue_at(tmp_path, sync="full") as queue:
        with queue.consumer("billing") as consumer:
            queue.push([(1, b"a"), (2, b"b"), (3, b"c")])
            consumer.ack(2)
            consumer.ack(1)
            consumer.ack(-5)
            assert consumer.pointer == 2
            for wrong in (4, True, "2", None):
                with pytest.raises(tm.InvalidInput):
                    consumer.ack(wrong)  # type: ignore[arg-type]
            for many in (0, -1, 1.5):
                with pytest.raises(tm.InvalidInput):
                    consumer.read(many)  # type: ignore[arg-type]
        with pytest.raises(tm.Closed):
            consumer.ack(3)
    with queue_at(tmp_path) as queue:
        assert queue.consumers() == {"billing": 2}
        with queue.consumer("billing", start="earliest") as consumer:
            assert consumer.read().rows() == [(3, b"c")]


@pytest.mark.parametrize(("start", "first"), [("latest", 4), ("earliest", 1), (2, 2), (99, 4)])
def test_a_new_consumer_begins_where_it_is_told(tmp_path: Path, start: object, first: int) -> None:
    with queue_at(tmp_path) as queue:
        queue.push([(1, b""), (2, b""), (3, b"")])
        consumer = queue.consumer("new", start=start)  # type: ignore[arg-type]
        queue.push([(0, b"")])
        assert consumer.read().seqs.to_pylist() == list(range(first, 5))


@pytest.mark.parametrize("start", [0, -1, True, "yesterday", None, 1.0])
def test_a_beginning_that_makes_no_sense_leaves_no_trace(tmp_path: Path, start: object) -> None:
    with queue_at(tmp_path) as queue:
        with pytest.raises(tm.InvalidInput):
            queue.consumer("new", start=start)  # type: ignore[arg-type]
        for name in ("", "../up", ".hidden", "a/b", 5):
            with pytest.raises(tm.InvalidName):
                queue.consumer(name)  # type: ignore[arg-type]
        assert queue.consumers() == {}
        assert not (tmp_path / "consumers").exists()


def test_one_handle_at_a_time_uses_a_consumer(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue, reader_at(tmp_path) as reader:
        consumer = queue.consumer("billing")
        with pytest.raises(tm.Locked, match="billing"):
            reader.consumer("billing")
        consumer.close()
        reader.consumer("billing").close()
        assert reader.consumers() == {"billing": 0}


def test_a_reader_process_moves_a_pointer_and_the_owner_gives_disk_back(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        queue.consumer("billing").close()
        for number in range(400):
            queue.push([(number % 5, b"%d" % number + bytes(400))])
            queue.pop()
        assert segments_bytes(tmp_path) > 6 * SEGMENT
        pid = os.fork()
        if not pid:
            reader = reader_at(tmp_path)
            consumer = reader.consumer("billing")
            found = read_all(consumer)
            os._exit(0 if [seq for seq, _ in found] == list(range(1, 401)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert queue.consumers() == {"billing": 400}
        queue._core.maintenance.run_round()
        assert segments_bytes(tmp_path) <= 2 * SEGMENT
        # The process is gone, and with it its lock.
        assert queue.consumer("billing").pointer == 400


def test_a_consumer_raises_in_the_child_of_a_fork(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        consumer = queue.consumer("billing")
        queue.push([(1, b"a")])
        pid = os.fork()
        if not pid:
            for use in (consumer.read, lambda: consumer.ack(1), consumer.remove, queue.consumers):
                try:
                    use()
                    os._exit(1)
                except tm.Closed:
                    pass
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        consumer.ack(1)
        assert queue.consumers() == {"billing": 1}


def test_a_pointer_behind_the_end_goes_back_with_it(tmp_path: Path) -> None:
    """Without syncs, a power cut may take items that a consumer had acked."""
    with queue_at(tmp_path) as queue:
        consumer = queue.consumer("billing")
        queue.push([(1, b"kept")])
        queue.sync()
        end = queue._core.folder.journal.active.end
        queue.push([(2, b"lost"), (3, b"lost")])
        consumer.ack(3)
    with open(tmp_path / "journal" / f"{1:016d}.segment", "r+b") as file:
        file.truncate(end)
    (tmp_path / "journal" / f"{1:016d}.spine").unlink()
    (tmp_path / "head").unlink()  # After a power cut it is that of another boot.
    with reader_at(tmp_path) as reader, reader.consumer("billing") as consumer:
        assert len(consumer.read()) == 0
    with queue_at(tmp_path) as queue:
        assert queue.consumers() == {"billing": 1}
        queue.push([(4, b"new"), (5, b"new")])
        with queue.consumer("billing") as consumer:
            assert consumer.read().rows() == [(4, b"new"), (5, b"new")]


@pytest.mark.parametrize("damage", ["scribbled", "cut off"])
def test_a_pointer_that_cannot_be_read_holds_back_everything(tmp_path: Path, damage: str) -> None:
    with queue_at(tmp_path) as queue:
        with queue.consumer("billing") as consumer:
            queue.push([(1, b"a"), (2, b"b")])
            consumer.ack(2)
        data = b"x" * 64 if damage == "scribbled" else b"TMCP"
        (tmp_path / "consumers" / "billing").write_bytes(data)
        assert queue.consumers() == {"billing": 0}
        with queue.consumer("billing") as consumer:
            assert consumer.read().rows() == [(1, b"a"), (2, b"b")]
            consumer.ack(1)
        assert queue.consumers() == {"billing": 1}


def test_a_torn_pointer_leaves_the_one_before(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        path = tmp_path / "consumers" / "billing"
        with queue.consumer("billing") as consumer:
            queue.push([(key, b"") for key in range(9)])
            for seq in range(1, 10):
                before = path.read_bytes()
                consumer.ack(seq)
                after = path.read_bytes()
                for length in range(1, 32):
                    start = (seq + 1) % 2 * 32
                    torn = bytearray(before.ljust(64, b"\0"))
                    torn[start : start + length] = after[start : start + length]
                    path.write_bytes(torn)
                    assert queue.consumers()["billing"] in (seq - 1, seq)
                path.write_bytes(after)


def test_a_consumer_that_begins_while_disk_is_given_back_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins between the owner's look at the pointers and the end of a segment."""
    with queue_at(tmp_path) as queue:
        for number in range(100):
            queue.push([(number, bytes(400))])
        queue.pop(60)
        folder = queue._core.folder
        first = int(folder.index.frames_of_segment(2).rows["seq_min"].min())
        assert first < 61
        begun: list[tm.Consumer] = []
        look = pointers.read_pointers

        def read(fs: LocalFileSystem, path: Path) -> dict[str, int]:
            found = look(fs, path)
            if not begun:
                begun.append(queue.consumer("new", start=10))
            return found

        monkeypatch.setattr(pointers, "read_pointers", read)
        carry.carry(folder, 2)
        # What was gone before it began is gone, and nothing else.
        assert [seq for seq, _ in read_all(begun[0])] == list(range(first, 101))


def test_shovels_leave_consumers_what_they_have_yet_to_read(tmp_path: Path) -> None:
    with queue_at(tmp_path / "from") as source, queue_at(tmp_path / "to") as target:
        here, there = source.consumer("here"), target.consumer("there")
        for number in range(200):
            source.push([(number, bytes(400))])
        target.push([(1, b"old")])
        target.clear()
        assert source.shovel(target) == 200
        assert len(read_all(here)) == 200
        assert [key for _, key in read_all(there)] == [1, *range(200)]


def test_a_consumer_that_begins_while_segments_are_handed_over_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins, and an item is pushed, between the shovel's look at the pointers and its roll."""
    detach = handover._detach
    begun: list[tm.Consumer] = []

    def late(folder: Folder, cursor: Cursor) -> handover.Lot:
        begun.append(reader.consumer("billing"))
        assert source.push([(99, b"precious")]).first == 201
        return detach(folder, cursor)

    monkeypatch.setattr(handover, "_detach", late)
    with queue_at(tmp_path / "from") as source, queue_at(tmp_path / "to") as target:
        for number in range(200):
            source.push([(number, bytes(400))])
        with reader_at(tmp_path / "from") as reader:
            # What was there when the shovel began is moved, and perhaps what came meanwhile.
            assert source.shovel(target) in (200, 201)
            assert read_all(begun[0]) == [(201, 99)]
        assert len(source) + len(target) == 201


def test_a_removal_that_was_broken_off_is_finished_by_whoever_comes_next(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        queue.push([(1, b"a")])
        with queue.consumer("billing", start="earliest") as billing:
            billing.ack(1)
        # As a kill leaves it between the two steps of `remove_pointer`.
        os.truncate(tmp_path / "consumers" / "billing", 0)
        assert queue.consumers() == {}
        with queue.consumer("billing", start="earliest") as again:
            assert read_all(again) == [(1, 1)]
        assert queue.consumers() == {"billing": 1}


@pytest.mark.parametrize("call", ["truncate", "unlink"])
def test_a_removal_that_fails_keeps_nobody_out(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk says no")

    with queue_at(tmp_path) as queue:
        billing = queue.consumer("billing")
        queue.push([(1, b"a")])
        with monkeypatch.context() as failing:
            failing.setattr(LocalFile if call == "truncate" else LocalFileSystem, call, fail)
            with pytest.raises(tm.StorageFailed, match="the disk says no"):
                billing.remove()
        with pytest.raises(tm.Closed):
            billing.read()
        again = queue.consumer("billing")
        assert len(again.read()) == (1 if call == "truncate" else 0)
        again.remove()
        assert queue.consumers() == {}


def test_of_threads_that_make_one_consumer_one_has_it(tmp_path: Path) -> None:
    together = threading.Barrier(2)

    class Slow(LocalFileSystem):
        def link(self, source: Path, target: Path) -> None:
            if target.name == "billing":
                together.wait(WITHIN_S)
            super().link(source, target)

    outcomes: list[object] = []

    def make() -> None:
        try:
            outcomes.append(queue.consumer("billing"))
        except tm.TidemillError as error:
            outcomes.append(type(error))

    with queue_at(tmp_path, file_system=Slow()) as queue:
        threads = [threading.Thread(target=make) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
        assert tm.Locked in outcomes
        assert [type(one) for one in outcomes].count(tm.Consumer) == 1
        assert os.listdir(tmp_path / "consumers") == ["billing"]


def test_what_a_crash_left_of_a_consumer_is_swept_away_by_the_next_owner(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        for name in ("billing", "audit"):
            queue.consumer(name).close()
    folder = tmp_path / "consumers"
    (folder / ".search.4711-0").write_bytes(b"TMCP")
    os.truncate(folder / "audit", 0)
    (folder / ".lock").touch()  # as a log has it
    with queue_at(tmp_path) as queue:
        assert sorted(os.listdir(folder)) == [".lock", "billing"]
        assert queue.consumers() == {"billing": 0}


def test_a_consumer_is_made_although_an_owner_sweeps_meanwhile(tmp_path: Path) -> None:
    class Swept(LocalFileSystem):
        turns = 0

        def link(self, source: Path, target: Path) -> None:
            if target.name == "billing" and self.turns < 2:
                self.turns += 1
                assert pointers.sweep_pointers(self, tmp_path) == [source.name]
            super().link(source, target)

    fs = Swept()
    with queue_at(tmp_path, file_system=fs) as queue:
        queue.consumer("billing")
        assert fs.turns == 2
        assert os.listdir(tmp_path / "consumers") == ["billing"]


def test_names_of_consumers_differ_by_more_than_case(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        queue.consumer("billing")
        with pytest.raises(tm.InvalidName, match="differs from the existing 'billing' by case"):
            queue.consumer("Billing")
        assert os.listdir(tmp_path / "consumers") == ["billing"]


def test_a_consumer_follows_pushes_of_many_threads(tmp_path: Path) -> None:
    with queue_at(tmp_path, maintain_in_background=True) as queue, reader_at(tmp_path) as reader:
        consumer = reader.consumer("billing")

        def push(thread: int) -> None:
            for number in range(150):
                queue.push([(number, b"%d %d" % (thread, number) + bytes(300))])
                queue.pop()

        threads = [threading.Thread(target=push, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        found: list[tuple[int, int]] = []
        while any(thread.is_alive() for thread in threads):
            found += read_all(consumer)
        found += read_all(consumer)
        assert [seq for seq, _ in found] == list(range(1, 451))
        consumer.close()


def test_a_consumer_that_comes_before_the_owner_does_not_stand_behind_the_end(
    tmp_path: Path,
) -> None:
    """A power cut took items that need not be synced; the pointer was."""
    with queue_at(tmp_path) as queue:
        queue.push([(key, b"old") for key in range(1, 6)])
        queue.consumer("billing").close()
    fs = LocalFileSystem()
    file = fs.open(tmp_path / "consumers" / "billing", write=True)
    pointers.move(file, 10, sync=True)
    file.close()
    with reader_at(tmp_path) as reader:
        billing = reader.consumer("billing")
        assert billing.pointer == 5
        with queue_at(tmp_path) as queue:
            queue.push([(key, b"new") for key in range(6, 14)])
            assert [key for _, key in read_all(billing)] == list(range(6, 14))


def test_what_was_consumed_before_a_shovel_reaches_no_consumer(tmp_path: Path) -> None:
    source, target = queue_at(tmp_path / "source"), queue_at(tmp_path / "target")
    with source, target:
        billing = target.consumer("billing")
        for key in range(100):
            source.push([(key, bytes(2_000))])
        source.pop(30)
        assert source.shovel(target) == 70
        assert [key for _, key in read_all(billing)] == list(range(30, 100))


def test_items_of_any_size_are_read_in_batches_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow cannot hold more than 2 GiB in a column of a batch, and items may have 64 MiB."""
    monkeypatch.setattr(consumers, "READ_BYTES_MAX", 20_000)
    with queue_at(tmp_path) as queue:
        billing = queue.consumer("billing")
        for key in range(40):
            queue.push([(key, bytes(3_000)), (key, b"")])
        queue.push([(40, bytes(30_000))])
        queue.push([(41, b"")])
        # What nobody acks is not read again, and more than the bound is not read behind it.
        counts = [len(billing.read(rows_max)) for rows_max in (1, 3, 1_000, 1_000, 1_000)]
        assert counts == [1, 3, 12, 14, 14]
        # Rows that upkeep has moved lie in frames whose numbers overlap.
        queue.delete(3, 20)
        carry.carry(queue._core.folder, min(queue._core.folder.journal.segments))
        found: list[int] = []
        while len(batch := billing.read(1_000)):
            size = sum(len(value) for _, value in batch.rows())
            assert size < 20_000 + 3_000 or len(batch) == 1
            found += batch.seqs.to_pylist()
            billing.ack(found[-1])
        assert found == list(range(1, 83))


def test_a_consumer_goes_on_when_an_owner_adds_a_column(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    with queue_at(tmp_path, schema=schema) as queue:
        queue.push([(key, {"n": key}) for key in range(5)])
    with reader_at(tmp_path) as reader:
        billing = reader.consumer("billing", start="earliest")
        assert len(billing.read(2)) == 2  # The others are in memory by now.
        billing.ack(1)
        with queue_at(tmp_path, schema=pa.schema([*schema, ("city", pa.string())])) as queue:
            queue.push([(9, {"n": 9, "city": "Oslo"})])
            found = billing.read(10)
            assert found.seqs.to_pylist() == [2, 3, 4, 5, 6]
            assert [row["city"] for _, row in found.rows()] == [None] * 4 + ["Oslo"]


def test_a_consumer_that_is_removed_meanwhile_has_the_pointer_it_had_or_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([b"a", b"b"])
        at, has_acted = 0, True
        while has_acted:
            at += 1
            consumer = queue.consumer("brief", start="earliest")
            consumer.ack(2)
            fs = InterferingFileSystem(at, consumer.remove)
            assert pointers.read_pointers(fs, tmp_path) in ({"brief": 2}, {})
            has_acted = fs.looks >= at
    assert at > 3
    assert not caplog.records
