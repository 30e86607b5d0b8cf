"""Moving what is left at an end to another queue."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.files.readers.listing import list_records
from tidemill.files.shovel.remainder import Remainder
from tidemill.files.state.state import ROOT
from tidemill.files.upkeep.carry import carry

SEGMENT_BYTES = 16 * 1024
WITHIN_S = 120


class Pair:
    """Two queues side by side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[tm.PriorityQueue] = []

    def queue(self, name: str, **options: object) -> tm.PriorityQueue:
        options = {"maintain_in_background": False, "segment_bytes": SEGMENT_BYTES, **options}
        queue = tm.PriorityQueue(self._folder / name, **options)  # type: ignore[arg-type]
        self._open.append(queue)
        return queue

    def close(self) -> None:
        for queue in self._open:
            queue.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def rows(end: tm.PriorityQueue | tm.Fork) -> list[tuple[int, bytes]]:
    return end.peek(-1).rows()


def test_everything_is_moved_by_key_and_equal_keys_in_order(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(5, b"was here")])
    source.push([(5, b"first"), (9, b""), (-3, b"least")])
    source.push([(5, b"second")])
    source.push([(2**62, b"far")])
    assert source.shovel(target) == 5
    assert len(source) == 0
    assert rows(source) == []
    assert rows(target) == [
        (-3, b"least"),
        (5, b"was here"),
        (5, b"first"),
        (5, b"second"),
        (9, b""),
        (2**62, b"far"),
    ]


def test_what_was_moved_is_there_after_closing_and_opening(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(0, b"old")])
    expected = [(key, bytes(300)) for key in range(200)]
    source.push(expected)
    assert source.shovel(target) == 200
    pair.close()
    source, target = pair.queue("source"), pair.queue("target")
    assert len(source) == 0
    assert rows(target) == [(0, b"old"), *expected]


def test_items_get_seqs_and_times_of_the_destination(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    source.push([(key, b"") for key in range(5)])
    last = target.push([(100, b"old")]).last
    before = target.peek().times[0].as_py()
    source.shovel(target)
    moved = target.pop(5)
    assert moved.seqs.to_pylist() == list(range(last + 1, last + 6))
    assert all(time >= before for time in moved.times.to_pylist())


def test_an_empty_end_moves_nothing(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    next_seq = target.stats().next_seq
    assert source.shovel(target) == 0
    source.push([b"a"])
    source.pop()
    assert source.shovel(target) == 0
    assert (len(target), target.stats().next_seq) == (0, next_seq)


def test_consumed_and_deleted_items_are_not_moved(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(99, b"")])
    for start in range(5):
        source.push([(key, bytes(100)) for key in range(start, 60, 5)])
    source.pop(7)
    source.delete(20, 29)
    source.push([(3, b"late")])
    assert source.shovel(target) == 60 - 7 - 10 + 1
    expected = [3, *range(7, 20), *range(30, 60), 99]
    assert target.pop(-1).keys.to_pylist() == expected


def test_every_fork_of_the_destination_gets_the_items(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    one = target.fork("one")
    target.push([(1, b"")])
    one.clear()
    source.push([(2, b""), (0, b"")])
    source.shovel(target)
    assert [key for key, _ in rows(target)] == [0, 1, 2]
    assert [key for key, _ in rows(one)] == [0, 2]


def test_shoveling_a_fork_touches_that_fork_only(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    source.push([(key, b"") for key in range(10)])
    one, two = source.fork("one"), source.fork("two")
    source.pop(2)
    one.pop(5)
    assert one.shovel(target) == 5
    assert (len(source), len(one), len(two)) == (8, 0, 10)
    assert [key for key, _ in rows(target)] == [5, 6, 7, 8, 9]
    source.push([(42, b"")])
    assert (len(source), len(one), len(two)) == (9, 1, 11)
    assert [key for key, _ in rows(source)] == [*range(2, 10), 42]


def test_the_queue_itself_leaves_its_forks_alone(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    source.push([(key, b"") for key in range(10)])
    fork = source.fork("fork")
    assert source.shovel(target) == 10
    assert [key for key, _ in rows(fork)] == list(range(10))


def test_buckets_and_segments_of_another_size_do_not_matter(pair: Pair) -> None:
    source = pair.queue("source", bucket=tm.Width(7))
    target = pair.queue("target", bucket=tm.Shift(2), segment_bytes=64 * 1024)
    expected = [(key, str(key).encode()) for key in range(-500, 500)]
    shuffled = random.Random(1).sample(expected, len(expected))
    for start in range(0, len(shuffled), 50):
        source.push(shuffled[start : start + 50])
    assert source.shovel(target) == 1000
    assert rows(target) == expected


def test_a_destination_with_newer_columns_takes_older_rows(pair: Pair) -> None:
    old = pa.schema([("city", pa.string())])
    new = pa.schema([("city", pa.string()), ("rank", pa.int32())])
    source = pair.queue("source", schema=old)
    target = pair.queue("target", schema=new)
    source.push([(1, {"city": "Oslo"})])
    assert source.shovel(target) == 1
    assert target.pop().rows() == [(1, {"city": "Oslo", "rank": None})]


def test_small_frames_arrive_as_few_large_ones(pair: Pair) -> None:
    source = pair.queue("source", segment_bytes=1 << 20)
    target = pair.queue("target", segment_bytes=1 << 20)
    target.push([(0, b"")])
    for key in range(500):
        source.push([(key, b"value")])
    source.shovel(target)
    folder = target._core.folder
    assert len(folder.index.frames_of_segment(folder.journal.active.number)) == 2
    assert [key for key, _ in rows(target)] == [0, *range(500)]


def test_large_items_are_moved_a_few_at_a_time(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    # The first frame is small on average, but its first rows are not.
    sizes = [3000] * 5 + [0] * 500
    source.push([(key, bytes(size)) for key, size in enumerate(sizes)])
    source.push([(key, bytes(40_000)) for key in (3, 1000)])
    target.push([(2000, b"")])
    assert source.shovel(target) == 507
    assert len(target.stats().forks) == 0
    assert [len(value) for _, value in rows(target)][:6] == [3000, 3000, 3000, 3000, 40_000, 3000]


REFUSED: dict[str, tuple[type[Exception], Callable[[tm.PriorityQueue, Pair], object]]] = {
    "itself": (tm.InvalidInput, lambda source, _: source),
    "a fork of another": (tm.InvalidInput, lambda _, pair: pair.queue("target").fork("f")),
    "a path": (tm.InvalidInput, lambda _, pair: "target"),
    "nothing": (tm.InvalidInput, lambda _, pair: None),
    "other columns": (
        tm.SchemaMismatch,
        lambda _, pair: pair.queue("target", schema=pa.schema([("n", pa.int64())])),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_destination_is_refused_and_leaves_no_trace(pair: Pair, what: str) -> None:
    error, make = REFUSED[what]
    source = pair.queue("source")
    source.push([(1, b"a")])
    destination = make(source, pair)
    before = source.stats()
    with pytest.raises(error):
        source.shovel(destination)  # type: ignore[arg-type]
    assert source.stats() == before
    assert source.pop().rows() == [(1, b"a")]


def test_a_closed_queue_and_a_removed_fork_are_refused(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    source.push([(1, b"a")])
    fork = source.fork("fork")
    fork.remove()
    with pytest.raises(tm.ForkRemoved):
        fork.shovel(target)
    target.close()
    with pytest.raises(tm.Closed):
        source.shovel(target)
    assert rows(source) == [(1, b"a")]
    source.close()
    with pytest.raises(tm.Closed):
        source.shovel(pair.queue("target"))


def test_a_fork_cannot_be_poured_into_its_own_queue(pair: Pair) -> None:
    source = pair.queue("source")
    source.push([(1, b"a")])
    with pytest.raises(tm.InvalidInput, match="come from"):
        source.fork("fork").shovel(source)
    assert len(source) == 1


def test_an_end_that_is_being_read_is_refused(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    source.push([(1, b"a"), (2, b"b")])
    with source.read(1), pytest.raises(tm.ReadInProgress):
        source.shovel(target)
    assert source.shovel(target) == 1


def test_nobody_takes_from_an_end_while_it_is_shoveled(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    source.push([(1, b"a")])
    target.push([(9, b"z")])
    refused = []

    def take_meanwhile(_owner: object, _needed: int) -> None:
        for take in (source.pop, source.clear, lambda: source.delete(0, 9)):
            with pytest.raises(tm.ReadInProgress):
                take()
            refused.append(take)
        source.push([(0, b"meanwhile")])

    monkeypatch.setattr(target._core.room, "reserve", take_meanwhile)
    assert source.shovel(target) == 1
    assert len(refused) == 3
    assert rows(source) == [(0, b"meanwhile")]
    assert rows(target) == [(1, b"a"), (9, b"z")]


def test_what_is_pushed_meanwhile_stays_even_if_it_shares_a_frame(pair: Pair) -> None:
    source = pair.queue("source")
    source.push([(key, b"old") for key in (1, 2, 3)])
    source.pop(1)
    folder = source._core.folder
    cursor = folder.cursors[ROOT]
    remainder = Remainder(folder, cursor, chunk_bytes=1 << 20)
    source.push([(key, b"new") for key in (0, 2, 9)])
    first = folder.journal.active.number
    source.push([(50, bytes(20_000))])
    carry(folder, first)
    with cursor.lock:
        chunk = remainder.choose()
        assert chunk is not None
        assert [row for body in chunk.bodies for row in tm.Batch.of(body).rows()] == [
            (2, b"old"),
            (3, b"old"),
        ]
        remainder.consume(chunk)
        assert remainder.choose() is None
    assert [(key, value[:3]) for key, value in rows(source)] == [
        (0, b"new"),
        (2, b"new"),
        (9, b"new"),
        (50, bytes(3)),
    ]


def test_upkeep_between_choosing_and_consuming_loses_and_repeats_nothing(pair: Pair) -> None:
    source = pair.queue("source")
    source.push([(key, bytes(1000)) for key in range(12)])
    folder = source._core.folder
    cursor = folder.cursors[ROOT]
    remainder = Remainder(folder, cursor, chunk_bytes=4_000)
    first = folder.journal.active.number
    source.push([(50, bytes(20_000))])
    seen: list[int] = []
    while (chunk := remainder.choose()) is not None:
        seen += [key for body in chunk.bodies for key in body["key"].to_pylist()]
        if len(seen) > 3 and first in folder.journal.segments:
            carry(folder, first)
        remainder.consume(chunk)
    assert seen == list(range(12))
    assert [key for key, _ in rows(source)] == [50]


def test_a_full_destination_stops_it_and_what_was_moved_is_consumed(pair: Pair) -> None:
    source = pair.queue("source", segment_bytes=1 << 20)
    target = pair.queue("target", bytes_max=256 * 1024, segment_bytes=None)
    for start in range(0, 600, 20):
        source.push([(key, bytes(1000)) for key in range(start, start + 20)])
    with pytest.raises(tm.QueueFull) as caught:
        source.shovel(target)
    moved = len(target)
    assert 50 < moved < 600
    assert caught.value.__notes__ == [f"{moved} items had been moved to {target.path} by then"]
    assert target.pop(-1).keys.to_pylist() == list(range(moved))
    # Room again: the rest follows.
    with pytest.raises(tm.QueueFull):
        source.shovel(target)
    more = len(target)
    assert target.pop(-1).keys.to_pylist() == list(range(moved, moved + more))
    assert source.pop(-1).keys.to_pylist() == list(range(moved + more, 600))


def test_damage_in_the_source_is_set_aside_if_so_told(pair: Pair, tmp_path: Path) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(0, b"")])
    for key in range(1, 6):
        source.push([(key, b"payload %d" % key)])
    source.close()
    path = next((tmp_path / "source" / "journal").glob("*.segment"))
    data = bytearray(path.read_bytes())
    data[data.index(b"payload 3")] ^= 1
    path.write_bytes(data)
    source = pair.queue("source", on_corruption="continue")
    assert source.shovel(target) == 4
    assert [key for key, _ in rows(target)] == [0, 1, 2, 4, 5]
    assert source.stats().quarantined == 1


def test_opposing_shovels_end_and_lose_nothing(pair: Pair) -> None:
    left = pair.queue("left", sync="none", maintain_in_background=True)
    right = pair.queue("right", sync="none", maintain_in_background=True)
    expected = [(key % 97, b"%d" % key) for key in range(6_000)]
    for start in range(0, 6_000, 100):
        (left if start % 200 else right).push(expected[start : start + 100])
    start_line = threading.Barrier(3)

    def pour(source: tm.PriorityQueue, target: tm.PriorityQueue) -> int:
        start_line.wait()
        return sum(source.shovel(target) for _ in range(15))

    def push_on() -> int:
        start_line.wait()
        for key in range(200):
            left.push([(key, b"pushed %d" % key)])
        return 200

    with ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(pour, left, right),
            pool.submit(pour, right, left),
            pool.submit(push_on),
        ]
        assert all(job.result(WITHIN_S) > 0 for job in jobs)
    found = [*left.pop(-1).rows(), *right.pop(-1).rows()]
    pushed = [(key, b"pushed %d" % key) for key in range(200)]
    assert sorted(found) == sorted([*expected, *pushed])


def fill(queue: tm.PriorityQueue, start: int, stop: int, step: int = 10) -> list[int]:
    """Overlapping pushes over several segments; returns the keys in order."""
    for first in range(start, stop, step):
        queue.push([(key, b"%d" % key + bytes(200)) for key in range(first, first + 2 * step, 2)])
    return [key for key, _ in rows(queue)]


def segments(path: Path) -> dict[int, Path]:
    """The files of a journal by what they are on disk."""
    return {file.stat().st_ino: file for file in (path / "journal").glob("*.segment")}


def reopened(pair: Pair, *names: str) -> list[tm.PriorityQueue]:
    pair.close()
    return [pair.queue(name) for name in names]


def test_an_empty_destination_gets_the_segments_themselves(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    expected = fill(source, 0, 600)
    files = segments(source.path)
    assert len(files) > 5
    active = source._core.folder.journal.active.path
    assert source.shovel(target) == len(expected)
    assert [key for key, _ in rows(target)] == expected
    assert files.keys() < segments(target.path).keys()
    assert not files.keys() & segments(source.path).keys()
    assert not active.exists()
    assert (len(source), source.stats().segments) == (0, 1)
    source, target = reopened(pair, "source", "target")
    assert [key for key, _ in rows(target)] == expected
    assert len(source) == 0


def test_segments_are_handed_over_without_reading_items(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    expected = fill(source, 0, 400)
    with monkeypatch.context() as patched:
        for core in (source._core, target._core):
            patched.setattr(core.folder.reader, "read", None)
        assert source.shovel(target) == len(expected)
    assert [key for key, _ in rows(target)] == expected


def test_consumed_rows_stay_consumed_in_every_fork_of_the_destination(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(1, b"")])
    one = target.fork("one")
    two = one.fork("two")
    for end in (target, one, two):
        end.clear()
    fill(source, 0, 600)
    source.pop(33)
    source.delete(100, 199)
    source.push([(5, b"late"), (150, b"late")])
    source.pop(2)
    expected = [key for key, _ in rows(source)]
    assert source.shovel(target) == len(expected)
    for end in (target, one, two):
        assert [key for key, _ in rows(end)] == expected
        assert len(end) == len(expected)
    one.pop(10)
    two.delete(300, 400)
    three = two.fork("three")
    found = {end: [key for key, _ in rows(end)] for end in (target, one, two, three)}
    assert found[one] == expected[10:]
    assert found[three] == [key for key in expected if not 300 <= key <= 400]
    (target,) = reopened(pair, "target")
    again: list[tm.PriorityQueue | tm.Fork] = [target]
    again += [target.fork(name) for name in target.forks()]
    assert [[key for key, _ in rows(end)] for end in again] == list(found.values())
    assert [len(end) for end in again] == [len(keys) for keys in found.values()]


def test_seqs_go_on_and_times_are_of_now_also_without_copying(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(key, b"") for key in range(50)])
    last = target.pop(-1)
    fill(source, 0, 600)
    source.pop(7)
    order = source.peek(-1)
    source.shovel(target)
    moved = target.peek(-1)
    assert min(moved.seqs.to_pylist()) > max(last.seqs.to_pylist())
    assert min(moved.times.to_pylist()) >= max(last.times.to_pylist())
    shifts = {
        new - old for new, old in zip(moved.seqs.to_pylist(), order.seqs.to_pylist(), strict=True)
    }
    assert len(shifts) == 1
    before = target.stats().next_seq
    assert before > max(moved.seqs.to_pylist())
    assert target.push([b"next"]).first == before
    (target,) = reopened(pair, "target")
    assert target.peek(len(moved)).seqs.to_pylist() == moved.seqs.to_pylist()
    assert target.stats().next_seq == before + 1


def test_the_same_items_can_be_handed_over_again_and_again(pair: Pair) -> None:
    queues = [pair.queue(name) for name in ("a", "b", "c")]
    expected = fill(queues[0], 0, 300)
    draw = random.Random(5)
    at = 0
    for turn in range(12):
        target = draw.choice([one for one in range(3) if one != at])
        assert queues[at].shovel(queues[target]) == len(expected)
        at = target
        if turn % 3 == 0:
            queues = reopened(pair, "a", "b", "c")
        queues[at].push([(turn, b"%d" % turn + bytes(300))])
        queues[at].pop(2)
        expected = sorted([*expected, turn])[2:]
        assert [key for key, _ in rows(queues[at])] == expected
        queues[at]._core.maintenance.run_round()
        assert [key for key, _ in rows(queues[at])] == expected


def test_carried_frames_and_frames_of_removed_forks_are_handed_over(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    fork = source.fork("fork")
    fill(source, 0, 300)
    source.pop(20)
    fork.delete(200, 250)
    folder = source._core.folder
    for number in sorted(folder.journal.segments)[:3]:
        carry(folder, number)
    assert folder.state.audiences
    fork.remove()
    expected = source.peek(-1)
    # A fork of the destination has the number that the removed one had.
    other = target.fork("other")
    assert source.shovel(target) == len(expected)
    for end in (target, other):
        assert end.peek(-1).rows() == expected.rows()
    (target,) = reopened(pair, "target")
    assert target.peek(-1).rows() == target.fork("other").peek(-1).rows() == expected.rows()
    folder = target._core.folder
    for number in sorted(folder.journal.segments)[:-1]:
        carry(folder, number)
    assert not folder.state.adopted.keys() & folder.journal.segments.keys()
    assert target.peek(-1).rows() == expected.rows()


def test_summaries_of_adopted_segments_can_be_made_again(pair: Pair, tmp_path: Path) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(0, b"")])
    target.pop()
    fill(source, 0, 300)
    source.pop(5)
    source.shovel(target)
    expected = target.peek(-1)
    assert expected.rows()
    for open_first in (True, False):
        if not open_first:
            target.close()
        for summary in (tmp_path / "target" / "journal").glob("*.summary"):
            summary.unlink()
        if not open_first:
            target = pair.queue("target")
        again = target.peek(-1)
        assert again.rows() == expected.rows()
        assert again.seqs == expected.seqs
        assert again.times == expected.times


def test_a_segment_in_the_place_of_an_adopted_one_is_damage(pair: Pair, tmp_path: Path) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    fill(source, 0, 300)
    source.shovel(target)
    adopted = sorted(target._core.folder.state.adopted)
    target.close()
    journal = tmp_path / "target" / "journal"
    one, other = (journal / f"{number:016d}.segment" for number in adopted[:2])
    one.rename(journal / "x")
    other.rename(one)
    (journal / "x").rename(other)
    for summary in journal.glob("*.summary"):
        summary.unlink()
    with pytest.raises(tm.Corrupt, match="belongs at place"):
        pair.queue("target")


DIFFERENT: dict[str, dict[str, object]] = {
    "bucket": {"bucket": tm.Width(50)},
    "segments": {"segment_bytes": 2 * SEGMENT_BYTES},
    "too little room": {"bytes_max": 8 * SEGMENT_BYTES},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_does_not_fit_is_copied(pair: Pair, what: str) -> None:
    source, target = pair.queue("source"), pair.queue("target", **DIFFERENT[what])
    fill(source, 0, 600)
    if what == "too little room":
        with pytest.raises(tm.QueueFull):
            source.shovel(target)
    else:
        source.shovel(target)
        assert len(source) == 0
    assert len(target) > 0
    assert not target._core.folder.state.adopted


def test_between_file_systems_items_are_copied(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    expected = fill(source, 0, 600)

    def no_link(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", str(source))

    monkeypatch.setattr(target._core.folder.fs, "link", no_link)
    assert source.shovel(target) == len(expected)
    assert [key for key, _ in rows(target)] == expected
    assert not list((target.path / "journal").glob("*.adopted"))
    source, target = reopened(pair, "source", "target")
    assert (len(source), len(target)) == (0, len(expected))


def test_whoever_waits_for_items_gets_those_that_were_handed_over(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    expected = fill(source, 0, 600)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(target.pop, 1, wait_s=WITHIN_S)
        assert source.shovel(target) == len(expected)
        assert waiting.result(WITHIN_S).keys.to_pylist() == expected[:1]


def test_a_scan_goes_on_over_segments_that_were_handed_over(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    expected = fill(source, 0, 600)
    scan = source.scan()
    first = scan.read_next_batch()
    source.shovel(target)
    keys = [*first["key"].to_pylist(), *(key for one in scan for key in one["key"].to_pylist())]
    assert keys == expected
    assert [key for key, _ in rows(target)] == expected


def test_queues_handed_over_by_many_threads_lose_nothing(pair: Pair) -> None:
    left = pair.queue("left", sync="none", maintain_in_background=True)
    right = pair.queue("right", sync="none", maintain_in_background=True)
    expected = fill(left, 0, 2_000)
    stop = threading.Event()
    popped: list[list[int]] = [[], []]

    def pour(source: tm.PriorityQueue, target: tm.PriorityQueue) -> None:
        for _ in range(40):
            try:
                source.shovel(target)
            except tm.ReadInProgress:
                pass

    def pop(queue: tm.PriorityQueue, found: list[int]) -> None:
        while not stop.is_set():
            try:
                found += queue.pop(3).keys.to_pylist()
            except tm.ReadInProgress:
                pass

    with ThreadPoolExecutor(4) as pool:
        poppers = [pool.submit(pop, left, popped[0]), pool.submit(pop, right, popped[1])]
        pourers = [pool.submit(pour, left, right), pool.submit(pour, right, left)]
        try:
            for job in pourers:
                job.result(WITHIN_S)
        finally:
            stop.set()
        for job in poppers:
            job.result(WITHIN_S)
    found = [
        *popped[0],
        *popped[1],
        *left.pop(-1).keys.to_pylist(),
        *right.pop(-1).keys.to_pylist(),
    ]
    assert sorted(found) == expected


def test_the_records_of_adopted_segments_are_listed_as_they_stand_here(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(0, b"")])
    target.pop()
    expected = fill(source, 0, 300)
    source.shovel(target)
    assert target._core.folder.state.adopted
    records = list(list_records(target.path))
    assert {record.kind for record in records} == {"state", "frame"}
    frames = [record.details for record in records if record.kind == "frame"]
    assert min(frame["first_seq"] for frame in frames) == 2
    assert max(frame["last_seq"] for frame in frames) == 1 + len(expected)


def test_the_doctor_finds_nothing_wrong_with_adopted_segments(pair: Pair) -> None:
    source, target = pair.queue("source"), pair.queue("target")
    target.push([(0, b"")])
    target.pop()
    fill(source, 0, 300)
    source.pop(5)
    source.delete(100, 120)
    carry(source._core.folder, min(source._core.folder.journal.segments))
    source.shovel(target)
    adopted = target._core.folder.state.adopted
    assert adopted
    target.push([(7, b"own")])
    for is_closed in (False, True):
        if is_closed:
            pair.close()
        for queue in (source, target):
            report = tm.doctor.verify(queue.path)
            assert report.is_healthy, report.findings
    # One of them is damaged: it is found, and nothing else is.
    path = target.path / "journal" / f"{max(adopted):016d}.segment"
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) - 100] ^= 1
    path.write_bytes(data)
    report = tm.doctor.verify(target.path)
    assert not report.is_healthy
    assert {finding.path for finding in report.findings} == {path}
