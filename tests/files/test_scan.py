"""A scan gives the items as they stood when it was asked for, in order, and takes none."""

from __future__ import annotations

import gc
import os
import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.files.small_segments import queue_at
from tidemill.files.upkeep.carry import carry
from tidemill.limits import INT64_MAX, INT64_MIN


def segments_on_disk(path: Path) -> int:
    return len(list((path / "journal").glob("*.segment")))


def test_a_scan_is_what_a_pop_of_everything_would_give(tmp_path: Path) -> None:
    dice = random.Random(5)
    with queue_at(tmp_path, bucket=tm.Width(50)) as queue:
        for _ in range(200):
            queue.push([(dice.randint(-100, 200), dice.randbytes(40)) for _ in range(20)])
            queue.pop(7)
        queue.delete(-20, 3)
        table = queue.scan().read_all()
        assert table.schema.names == ["seq", "key", "time", "value"]
        assert table.equals(pa.Table.from_batches([queue.peek(-1).to_arrow()]))
        assert len(queue) == table.num_rows > 1_000


def test_a_scan_is_bounded_by_keys_and_columns(tmp_path: Path) -> None:
    with queue_at(tmp_path, bucket=tm.Width(10)) as queue:
        queue.push([(key, b"%d" % key) for key in range(100)])
        found = queue.scan(keys=(15, 31), columns=["value", "key"]).read_all()
        assert found.column_names == ["value", "key"]
        assert found["key"].to_pylist() == list(range(15, 32))
        assert found["value"].to_pylist() == [b"%d" % key for key in range(15, 32)]
        assert queue.scan(keys=(None, 2), columns=["key"]).read_all()["key"].to_pylist() == [
            0,
            1,
            2,
        ]
        assert queue.scan(keys=(98, None), columns=["seq"]).read_all()["seq"].to_pylist() == [
            99,
            100,
        ]
        assert queue.scan(keys=(INT64_MIN, INT64_MAX)).read_all().num_rows == 100
        assert queue.scan(keys=(200, 300)).read_all().num_rows == 0


def test_columns_of_a_typed_payload_are_projected(tmp_path: Path) -> None:
    schema = pa.schema([("city", pa.string()), ("size", pa.int32())])
    with queue_at(tmp_path, schema=schema) as queue:
        for start in range(3):
            queue.push([(key, {"city": f"c{key}", "size": start}) for key in range(start, 9, 3)])
        # Interleaved frames, so that rows are merged.
        found = queue.scan(columns=["size", "time"]).read_all()
        assert found["size"].to_pylist() == [0, 1, 2] * 3
        assert queue.scan(columns=["key"]).read_all()["key"].to_pylist() == list(range(9))


@pytest.mark.parametrize(
    "options",
    [
        {"columns": ["nothing"]},
        {"columns": []},
        {"columns": "key"},
        {"columns": ["key", "key"]},
        {"keys": (2, 1)},
        {"keys": (1,)},
        {"keys": 1},
        {"keys": ("a", "b")},
        {"keys": (0, 2**63)},
    ],
)
def test_a_scan_that_makes_no_sense_is_refused(tmp_path: Path, options: object) -> None:
    with queue_at(tmp_path) as queue, pytest.raises(tm.InvalidInput):
        queue.scan(**options)  # type: ignore[arg-type]


def test_an_empty_queue_gives_an_empty_scan(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        table = queue.scan().read_all()
        assert (table.num_rows, table.column_names) == (0, ["seq", "key", "time", "value"])


def test_what_happens_later_does_not_show(tmp_path: Path) -> None:
    with queue_at(tmp_path, bucket=tm.Width(100)) as queue:
        queue.push([(key, bytes(200)) for key in range(0, 1_000, 2)])
        before = queue.peek(-1).to_arrow()
        scan = queue.scan()
        first = scan.read_next_batch()
        queue.push([(key, b"late") for key in range(1, 1_000, 2)])
        queue.pop(700)
        for number in range(300):
            queue.push([(number, bytes(500))])
            queue.pop()
        rest = scan.read_all()
        assert (
            pa.Table.from_batches([first, *rest.to_batches()])
            .combine_chunks()
            .equals(pa.Table.from_batches([before]))
        )


def test_segments_stay_until_the_scan_is_done_and_then_go(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        queue.push([(key, bytes(200)) for key in range(50)])
        for key in range(1_000):
            queue.push([(key, bytes(200))])
        kept = segments_on_disk(tmp_path)
        scan = queue.scan()
        queue.clear()
        assert queue.stats().segments == 1
        assert segments_on_disk(tmp_path) >= kept
        assert scan.read_all().num_rows == 1_050
        assert segments_on_disk(tmp_path) == 1


@pytest.mark.parametrize("batches", [0, 1])
def test_segments_go_when_nobody_refers_to_the_scan_any_more(tmp_path: Path, batches: int) -> None:
    with queue_at(tmp_path, bucket=tm.Width(10)) as queue:
        for key in range(1_000):
            queue.push([(key, bytes(200))])
        scan = queue.scan()
        for _ in range(batches):
            scan.read_next_batch()
        queue.clear()
        assert segments_on_disk(tmp_path) > 1
        scan.close()
        del scan
        gc.collect()
        assert segments_on_disk(tmp_path) == 1


def test_two_scans_hold_the_same_segments(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        for key in range(500):
            queue.push([(key, bytes(200))])
        one, two = queue.scan(), queue.scan()
        queue.clear()
        assert one.read_all().num_rows == 500
        assert segments_on_disk(tmp_path) > 1
        assert two.read_all().num_rows == 500
        assert segments_on_disk(tmp_path) == queue.stats().segments


def test_closing_ends_scans_and_gives_their_disk_back(tmp_path: Path) -> None:
    queue = queue_at(tmp_path, bucket=tm.Width(10))
    for key in range(500):
        queue.push([(key, bytes(200))])
    scan = queue.scan()
    scan.read_next_batch()
    queue.clear()
    left = queue.stats().segments
    assert segments_on_disk(tmp_path) > left
    queue.close()
    assert segments_on_disk(tmp_path) == left
    with pytest.raises(tm.Closed):
        scan.read_next_batch()


def test_a_crash_while_a_scan_holds_segments_leaves_no_trace(tmp_path: Path) -> None:
    pid = os.fork()
    if not pid:
        queue = queue_at(tmp_path)
        for key in range(500):
            queue.push([(key, bytes(200))])
        scan = queue.scan()
        queue.clear()
        assert scan is not None
        os._exit(segments_on_disk(tmp_path) - queue.stats().segments)
    held = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert held > 1
    with queue_at(tmp_path) as queue:
        assert (len(queue), segments_on_disk(tmp_path)) == (0, queue.stats().segments)


def test_a_fork_scans_what_it_has_left(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        queue.push([(key, b"") for key in range(10)])
        audit = queue.fork("audit")
        queue.pop(4)
        audit.delete(3, 6)
        # Carried frames have an audience, and other ends do not see them.
        for _ in range(300):
            queue.push([(-1, bytes(500))])
            queue.pop()
            audit.pop()
        assert queue.scan(columns=["key"]).read_all()["key"].to_pylist() == list(range(4, 10))
        assert audit.scan(columns=["key"]).read_all()["key"].to_pylist() == [0, 1, 2, 7, 8, 9]
        audit.remove()
        with pytest.raises(tm.ForkRemoved):
            audit.scan()


def test_a_scan_of_large_items_comes_in_small_batches(tmp_path: Path) -> None:
    with queue_at(tmp_path, segment_bytes=8 * 1024 * 1024) as queue:
        for start in range(4):
            queue.push([(key, bytes(1024 * 1024)) for key in range(start, 40, 4)])
        batches = list(queue.scan())
        assert [key for batch in batches for key in batch["key"].to_pylist()] == list(range(40))
        assert max(batch.nbytes for batch in batches) < 12 * 1024 * 1024


def test_large_items_next_to_each_other_do_not_come_in_one_batch_with_all_others(
    tmp_path: Path,
) -> None:
    with queue_at(tmp_path) as queue:
        queue.push([(100 + key, b"small") for key in range(20_000)])
        for key in range(48):
            queue.push([(key, bytes(1024 * 1024))])
        batches = list(queue.scan())
    assert [key for batch in batches for key in batch["key"].to_pylist()] == [
        *range(48),
        *range(100, 20_100),
    ]
    assert max(batch.nbytes for batch in batches) < 16 * 1024 * 1024


@pytest.mark.parametrize("mode", ["abort", "continue"])
def test_a_damaged_frame_raises_or_is_set_aside(tmp_path: Path, mode: str) -> None:
    with queue_at(tmp_path, on_corruption=mode) as queue:
        for key in range(5):
            queue.push([(key, b"x" * 50)])
        entry = queue._core.folder.index.frames_of_segment(1)[2]
        with open(tmp_path / "journal" / f"{1:016d}.segment", "r+b") as file:
            file.seek(entry.offset + 64 + entry.length - 100)
            file.write(b"damaged")
        scan = queue.scan(columns=["key"])
        if mode == "continue":
            assert scan.read_all()["key"].to_pylist() == [0, 1, 3, 4]
            assert (len(queue), queue.stats().quarantined) == (4, 1)
        else:
            with pytest.raises(tm.Corrupt) as raised:
                scan.read_all()
            assert raised.value.offset == entry.offset


def test_a_scan_raises_in_the_child_of_a_fork(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        queue.push([(1, b"a")])
        scan = queue.scan()
        pid = os.fork()
        if not pid:
            for use in (scan.read_next_batch, queue.scan):
                try:
                    use()
                    os._exit(1)
                except tm.Closed:
                    pass
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert scan.read_all().num_rows == 1


@pytest.mark.slow
def test_scans_beside_pushes_pops_and_upkeep_are_each_one_moment(tmp_path: Path) -> None:
    """Every push adds two items that sum to zero, and every pop takes such a pair."""
    failures: list[str] = []
    done = threading.Event()
    with queue_at(tmp_path, maintain_in_background=True, bucket=tm.Width(64)) as queue:

        def scan() -> None:
            scans = 0
            while not done.is_set() or not scans:
                scans += 1
                table = queue.scan().read_all()
                keys, seqs = table["key"].to_pylist(), table["seq"].to_pylist()
                values = [int(value) for value in table["value"].to_pylist()]
                if sum(values) or list(zip(keys, seqs, strict=True)) != sorted(
                    zip(keys, seqs, strict=True)
                ):
                    failures.append(f"{len(values)} items")

        threads = [threading.Thread(target=scan) for _ in range(3)]
        for thread in threads:
            thread.start()
        dice = random.Random(2)
        for number in range(1_500):
            key = dice.randrange(200)
            padding = b"0" * 400
            queue.push([(key, padding + b"%d" % number), (key, b"-" + padding + b"%d" % number)])
            if number > 50:
                assert len(queue.pop(2)) == 2
        done.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_scan_knows_for_whom_frames_were_when_it_began(tmp_path: Path) -> None:
    """Whatever becomes of the forks and of the state meanwhile."""
    options = {"segment_bytes": 1 << 16, "bucket": tm.Width(10), "maintain_in_background": False}
    target = tm.PriorityQueue(tmp_path / "target", **options)  # type: ignore[arg-type]
    source = tm.PriorityQueue(tmp_path / "source", **options)  # type: ignore[arg-type]
    with source, target:
        fork = target.fork("all")
        for key in range(0, 200, 10):
            target.push([(one, bytes(2_000)) for one in range(key, key + 10)])
        for key in range(1, 200, 2):
            target.delete(key, key)
        folder = target._core.folder
        for number in sorted(folder.journal.segments)[:-1]:
            carry(folder, number, apart=False)
        assert folder.state.audiences
        scan = target.scan(columns=["key"])
        first = scan.read_next_batch()
        target.clear()
        fork.clear()
        source.push([(1_000, bytes(2_000)) for _ in range(100)])
        assert source.shovel(target) == 100
        assert not folder.state.audiences
        keys = first["key"].to_pylist() + scan.read_all()["key"].to_pylist()
        assert keys == list(range(0, 200, 2))
