"""A read is a transaction."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest

import tidemill as tm


class GaveUp(Exception):
    pass


def keys(queue: tm.PriorityQueue | tm.Fork) -> list[int]:
    return list(queue.peek(-1).keys.to_pylist())


def filled(path: Path, count: int = 10) -> tm.PriorityQueue:
    queue = tm.PriorityQueue(path, bucket=tm.Width(3))
    queue.push([(key, b"") for key in range(count)])
    return queue


def test_leaving_a_read_normally_pops(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        with queue.read(4) as read:
            assert read.batch.keys.to_pylist() == [0, 1, 2, 3]
            assert len(queue) == 10
        assert keys(queue) == [4, 5, 6, 7, 8, 9]


def test_an_exception_pops_nothing_and_pushes_nothing(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:

        def consume() -> None:
            with queue.read(4) as read:
                read.push([(0, b"again")])
                raise GaveUp

        with pytest.raises(GaveUp):
            consume()
        assert keys(queue) == list(range(10))
        with queue.read(1):
            pass
        assert keys(queue) == list(range(1, 10))


def test_what_is_peeked_at_during_a_read_is_not_popped_twice(tmp_path: Path) -> None:
    """To look further, a peek merges what overlaps, also the items that the read will pop."""
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"") for key in range(0, 20, 2)])
        queue.push([(key, b"") for key in range(1, 20, 2)])
        with queue.read(3) as read:
            assert read.batch.keys.to_pylist() == [0, 1, 2]
            queue.push([(key, b"") for key in range(5, 25)])
            assert queue.peek(30).keys.to_pylist()[:6] == [0, 1, 2, 3, 4, 5]
        assert len(queue) == 37
        assert keys(queue)[:4] == [3, 4, 5, 5]
        assert queue.pop(-1).keys.to_pylist() == sorted([*range(3, 20), *range(5, 25)])


@pytest.mark.parametrize("seed", range(40))
def test_reads_peeks_and_pushes_in_any_order_pop_each_item_once(tmp_path: Path, seed: int) -> None:
    """In one bucket, where all that is pushed overlaps."""
    dice = random.Random(seed)
    left: list[tuple[int, bytes]] = []
    values = count()
    with tm.PriorityQueue(tmp_path, sync="none") as queue:

        def push() -> None:
            rows = [(dice.randrange(60), b"%06d" % next(values)) for _ in range(dice.randint(1, 8))]
            queue.push(rows)
            left.extend(rows)
            left.sort()

        for _ in range(8):
            push()
        for _ in range(60):
            wanted = dice.randint(1, 12)
            match dice.choice(["push", "pop", "peek", "read", "read"]):
                case "push":
                    push()
                case "pop":
                    assert queue.pop(wanted).rows() == left[:wanted]
                    del left[:wanted]
                case "peek":
                    assert queue.peek(wanted).rows() == left[:wanted]
                case "read":
                    with queue.read(wanted) as read:
                        taken = left[:wanted]
                        assert read.batch.rows() == taken
                        for _ in range(dice.randint(0, 3)):
                            push() if dice.random() < 0.5 else queue.peek(dice.randint(1, 25))
                    left = [row for row in left if row not in taken]
        assert queue.pop(-1).rows() == left


def test_a_read_that_keeps_pops_nothing(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        with queue.read(4) as read:
            read.keep()
        assert keys(queue) == list(range(10))


def test_a_read_that_keeps_still_pushes(tmp_path: Path) -> None:
    with filled(tmp_path, 2) as queue:
        with queue.read(1) as read:
            read.keep()
            assert read.push([(5, b"x")]) == 1
        assert keys(queue) == [0, 1, 5]


def test_pushing_inside_a_read_gives_items_back(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        with queue.read(4) as read:
            assert read.push(read.batch.slice(2)) == 2
        assert keys(queue) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_what_a_read_pushes_and_pops_survives_reopening_together(tmp_path: Path) -> None:
    with filled(tmp_path) as queue, queue.read(9) as read:
        read.push([(100, b"")])
    with tm.PriorityQueue(tmp_path) as queue:
        assert keys(queue) == [9, 100]


def test_a_negative_number_reads_everything(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        with queue.read(-1) as read:
            assert len(read.batch) == 10
        assert len(queue) == 0


def test_exactly_as_many_items_come_back_as_exist_however_many_buckets_they_span(
    tmp_path: Path,
) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(1)) as queue:
        for start in range(5):
            queue.push([(key, b"") for key in range(start, 100, 5)])
        for count in (1, 2, 37):
            with queue.read(count) as read:
                assert len(read.batch) == count
        assert keys(queue) == list(range(40, 100))


def test_an_item_pushed_during_a_read_stays_even_if_its_key_is_smaller(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        with queue.read(4):
            queue.push([(-1, b""), (2, b"new")])
        assert queue.pop(2).rows() == [(-1, b""), (2, b"new")]
        assert keys(queue) == [4, 5, 6, 7, 8, 9]


def test_a_fork_has_one_read_at_a_time(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        other = queue.fork("other")
        with queue.read(2):
            for use in (
                lambda: queue.read().__enter__(),
                queue.pop,
                lambda: queue.delete(0, 9),
                queue.clear,
            ):
                with pytest.raises(tm.ReadInProgress):
                    use()
            # Looking changes nothing, and other forks are not concerned.
            assert queue.peek().keys.to_pylist() == [0]
            assert other.pop(2).keys.to_pylist() == [0, 1]
        assert keys(queue) == [2, 3, 4, 5, 6, 7, 8, 9]
        assert keys(other) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_a_read_that_found_nothing_stands_in_nobodys_way(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        with queue.read(5) as empty:
            queue.push([(1, b"a"), (2, b"b")])
            with queue.read(1) as read:
                assert read.batch.rows() == [(1, b"a")]
            assert len(empty.batch) == 0
            empty.push([(9, b"z")])
        assert keys(queue) == [2, 9]


def test_a_read_can_be_used_again_and_starts_afresh(tmp_path: Path) -> None:
    with filled(tmp_path, 3) as queue:
        read = queue.read(1)
        with read:
            read.push([(50, b"")])
        with read:
            assert read.batch.keys.to_pylist() == [1]
            read.keep()
        with read:
            assert read.batch.keys.to_pylist() == [1]
        assert keys(queue) == [2, 50]


def test_a_read_is_of_use_only_inside_its_block(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        read = queue.read(1)
        with pytest.raises(tm.Closed):
            _ = read.batch
        with read, pytest.raises(tm.ReadInProgress):
            read.__enter__()
        with pytest.raises(tm.Closed):
            read.push([b"x"])
        assert len(queue) == 9


def test_a_fork_made_during_a_read_starts_before_its_pop(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        with queue.read(4):
            fork = queue.fork("early")
        assert keys(fork) == list(range(10))
        assert keys(queue) == list(range(4, 10))


def test_a_fork_with_an_open_read_is_not_removed(tmp_path: Path) -> None:
    with filled(tmp_path) as queue:
        fork = queue.fork("busy")
        with fork.read(1), pytest.raises(tm.ReadInProgress):
            fork.remove()
        fork.remove()


def test_a_queue_closed_during_a_read_has_popped_nothing(tmp_path: Path) -> None:
    with filled(tmp_path) as queue, pytest.raises(tm.Closed), queue.read(4):
        queue.close()
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 10


def test_rewriting_segments_during_a_read_neither_loses_nor_repeats(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, segment_bytes=16 * 1024, maintain_in_background=False) as queue:
        for start in range(50):
            queue.push([(key, bytes(50)) for key in range(start, 1_000, 50)])
        with queue.read(400) as read:
            before = queue.stats().segments
            expected = read.batch.keys.to_pylist()
            for start in range(50):
                queue.push([(2_000 + start, bytes(900))])
            queue._core.maintenance.run_round()
            assert queue.stats().segments != before
        assert expected == list(range(400))
        assert keys(queue)[:600] == list(range(400, 1_000))
        assert len(queue) == 650
