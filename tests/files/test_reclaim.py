"""Disk comes back: segments go when nobody needs them, and what is left of them is carried on."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc
import pytest

import tidemill as tm
from tests.files.small_segments import SEGMENT, queue_at, segments_bytes
from tidemill.files.commit.operation import Retire
from tidemill.files.format.frame_table import Entry
from tidemill.files.upkeep import maintenance, survivors
from tidemill.files.upkeep.carry import carry
from tidemill.files.upkeep.maintenance import choose_rewrites
from tidemill.files.upkeep.segment_facts import SegmentFacts
from tidemill.limits import SEGMENT_BYTES

HALF_AN_HOUR_S = 1800


@pytest.mark.parametrize("forks", [0, 1, 3])
def test_push_and_pop_with_few_keys_and_never_empty_stays_within_four_segments_per_fork(
    tmp_path: Path, forks: int
) -> None:
    dice = random.Random(forks)
    with queue_at(tmp_path) as queue:
        ends = [queue, *(queue.fork(f"f{number}") for number in range(forks))]
        queue.push([(key, bytes(100)) for key in range(11)])
        written = 0
        for _ in range(400):
            queue.push([(dice.randint(0, 10), bytes(100)) for _ in range(20)])
            written += 20 * 100
            for end in ends:
                assert len(end.pop(20)) == 20
            assert len(queue) == 11
            assert segments_bytes(tmp_path) <= 4 * SEGMENT * len(ends)
        # All that was written would have taken much more.
        assert written > 16 * SEGMENT


@pytest.mark.soak
@pytest.mark.parametrize("sync", ["full", "none"])
def test_it_stays_so_for_half_an_hour_with_all_else_by_default(
    tmp_path: Path, sync: Literal["full", "none"]
) -> None:
    """With each mode that is an hour; upkeep has to keep up with pushes that never pause."""
    dice = random.Random(2)
    rows = [(dice.randint(0, 10), dice.randbytes(40)) for _ in range(2_000)]
    most = written = 0
    until = time.monotonic() + HALF_AN_HOUR_S
    with tm.PriorityQueue(tmp_path, sync=sync) as queue:
        audit = queue.fork("audit")
        queue.push(rows)
        while time.monotonic() < until:
            for _ in range(50):
                queue.push(rows)
                assert len(queue.pop(2_000)) == len(audit.pop(2_000)) == 2_000
            written += 50
            most = max(most, segments_bytes(tmp_path))
        assert len(queue) == len(audit) == 2_000
    assert most <= 2 * 4 * SEGMENT_BYTES
    assert written * 2_000 * 40 > 16 * SEGMENT_BYTES


@pytest.mark.slow
def test_it_stays_so_one_item_at_a_time(tmp_path: Path) -> None:
    dice = random.Random(1)
    with queue_at(tmp_path) as queue:
        queue.push([(key, b"x") for key in range(11)])
        for _ in range(5_000):
            queue.push([(dice.randint(0, 10), b"x")])
            assert len(queue.pop()) == 1
            assert segments_bytes(tmp_path) <= 4 * SEGMENT


def test_disk_comes_back_when_the_queue_is_drained(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        for start in range(0, 2_000, 20):
            queue.push([(key, bytes(200)) for key in range(start, start + 20)])
        full = segments_bytes(tmp_path)
        assert full > 12 * SEGMENT
        # It comes back along the way, not only at the end.
        queue.pop(1_000)
        assert segments_bytes(tmp_path) < 0.7 * full
        while len(queue):
            queue.pop(100)
        assert queue.stats().segments == 1
        assert segments_bytes(tmp_path) <= SEGMENT


def test_disk_comes_back_although_it_was_drained_in_another_order(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        for start in range(100):
            queue.push([(key, bytes(200)) for key in range(start, 2_000, 100)])
        full = segments_bytes(tmp_path)
        # Every pop takes a little from every segment, and none of them is emptied early.
        for _ in range(19):
            queue.pop(100)
        assert len(queue) == 100
        assert segments_bytes(tmp_path) < full / 2
        assert queue.pop(-1).keys.to_pylist() == list(range(1_900, 2_000))


def test_a_slow_fork_keeps_its_items_and_nothing_else(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        slow = queue.fork("slow")
        for number in range(1_000):
            queue.push([(number, bytes(500))])
            queue.pop()
            if number % 10:
                slow.pop()
        left = len(slow)
        assert left == 100
        assert segments_bytes(tmp_path) <= 2 * left * 1_000 + 4 * SEGMENT
        assert slow.pop(-1).keys.to_pylist() == list(range(900, 1_000))


def test_removing_the_fork_that_held_it_gives_disk_back(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        idle = queue.fork("idle")
        for number in range(500):
            queue.push([(number, bytes(500))])
            queue.pop()
        assert segments_bytes(tmp_path) > 8 * SEGMENT
        idle.remove()
        assert segments_bytes(tmp_path) <= 2 * SEGMENT


def test_data_stays_while_any_fork_needs_it(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        idle = queue.fork("idle")
        for number in range(500):
            queue.push([(number, str(number).encode() * 100)])
            queue.pop()
    with queue_at(tmp_path) as queue:
        idle = queue.fork("idle")
        assert idle.pop(-1).rows() == [(n, str(n).encode() * 100) for n in range(500)]


def test_tiny_frames_are_merged(tmp_path: Path) -> None:
    with queue_at(tmp_path, segment_bytes=256 * 1024) as queue:
        for number in range(3_000):
            queue.push([(number % 7, b"x")])
        with queue._core.folder.guard:
            frames = sum(
                len(queue._core.folder.index.frames_of_segment(number))
                for number in queue._core.folder.journal.segments
            )
        assert frames < 1_000
        rows = queue.pop(-1)
        assert rows.keys.to_pylist() == sorted(n % 7 for n in range(3_000))
        for key in range(7):
            seqs = rows.seqs.filter(pc.equal(rows.keys, key)).to_pylist()
            assert seqs == sorted(seqs)


def test_the_times_and_numbers_of_items_outlive_their_segments(tmp_path: Path) -> None:
    with queue_at(tmp_path, segment_bytes=64 * 1024) as queue:
        for number in range(20):
            queue.push([(number, b"old")])
            for _ in range(100):
                queue.push([(-2, bytes(400))])
                queue.pop()
            if number == 9:
                first = queue.peek(10).to_arrow()
        assert min(queue._core.folder.journal.segments) > 10
        assert queue.peek(10).to_arrow().equals(first)
    with queue_at(tmp_path) as queue:
        assert queue.peek(10).to_arrow().equals(first)


def test_descending_keys_keep_the_number_of_cuts_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "CUTS_PER_FORK_MAX", 64)
    with queue_at(tmp_path) as queue:
        queue.push([(10**9, b"the bottom of the stack")])
        most = 0
        for number in range(1_200):
            queue.push([(-number, b"x")])
            assert queue.pop().keys.to_pylist() == [-number]
            most = max(most, queue.stats().cuts)
        # One segment's worth may come on top, for only sealed ones are rewritten.
        assert 10 < most < 64 + 3 * SEGMENT // 500
        assert queue.pop(2).values.to_pylist() == [b"the bottom of the stack"]


def test_deletes_that_nothing_needs_any_more_are_forgotten(tmp_path: Path) -> None:
    with queue_at(tmp_path, segment_bytes=16 * 1024) as queue:
        queue.push([(key, b"stays") for key in range(10)])
        for number in range(500):
            queue.push([(100 + number, bytes(200))])
            queue.delete(100 + number - 20, 100 + number - 20)
        # Were they kept, the state that opens each segment would grow without end.
        assert queue.stats().cuts < 150
        assert segments_bytes(tmp_path) < 6 * 16 * 1024
        assert queue.pop(11).keys.to_pylist() == [*range(10), 580]


def test_a_large_state_does_not_make_every_operation_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with queue_at(tmp_path, segment_bytes=16 * 1024) as queue:
        for number in range(300):
            queue.fork(f"a-fork-with-a-name-of-some-length-{number}")
        before = max(queue._core.folder.journal.segments)
        for number in range(100):
            queue.push([(number, b"x")])
        assert max(queue._core.folder.journal.segments) - before < 10


def test_a_drained_queue_whose_fork_lags_is_not_swept_at_every_pop(tmp_path: Path) -> None:
    rounds = 0
    with queue_at(tmp_path) as queue:
        queue.fork("idle")
        for number in range(200):
            queue.push([(number, bytes(500))])
        queue.clear()
        upkeep = queue._core.maintenance
        run_round = upkeep.run_round

        def counted() -> None:
            nonlocal rounds
            rounds += 1
            run_round()

        upkeep.run_round = counted  # type: ignore[method-assign]
        for number in range(20):
            queue.push([(number, b"x")])
            queue.pop()
        assert rounds < 5


def test_upkeep_in_the_background_does_the_same(tmp_path: Path) -> None:
    with queue_at(tmp_path, maintain_in_background=True) as queue:
        for number in range(1_000):
            queue.push([(number % 11, bytes(200))])
            if number > 20:
                queue.pop()
        queue._core.maintenance.run_round()
        assert len(queue) == 21
        assert segments_bytes(tmp_path) <= 5 * SEGMENT


def test_closing_gives_preallocated_disk_back(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a")])
        assert segments_bytes(tmp_path) == 64 * 1024 * 1024
    assert segments_bytes(tmp_path) < 16 * 1024


def test_a_sealed_segment_takes_no_more_disk_than_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends after so many records has most of what was allocated left over."""
    monkeypatch.setattr("tidemill.files.journal.journal.RECORDS_PER_SEGMENT_MAX", 10)
    with queue_at(tmp_path, segment_bytes=1024 * 1024) as queue:
        for key in range(25):
            queue.push([(key, b"")])
        queue._core.maintenance.run_round()
        journal = queue._core.folder.journal
        sealed = [one for one in journal.segments.values() if one is not journal.active]
        assert len(sealed) == 3
        assert [one.path.stat().st_size for one in sealed] == [one.end for one in sealed]
        assert segments_bytes(tmp_path) == queue.stats().disk_bytes
        assert queue.pop(99).keys.to_pylist() == list(range(25))


def test_pushes_wait_a_moment_for_upkeep_that_falls_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not for ever: it may be held up by who pushes, in the middle of a read."""
    go_on = threading.Event()

    def held_up(*args: Any, **options: Any) -> None:
        assert go_on.wait(60)
        carry(*args, **options)

    monkeypatch.setattr("tidemill.files.upkeep.maintenance.carry", held_up)
    monkeypatch.setattr("tidemill.files.journal.journal.RECORDS_PER_SEGMENT_MAX", 20)
    monkeypatch.setattr("tidemill.files.upkeep.segment_facts.TINY_FRAMES_MIN", 8)
    monkeypatch.setattr("tidemill.files.upkeep.maintenance._BEHIND_MAX", 0)
    with queue_at(tmp_path, maintain_in_background=True) as queue:
        keeps_up = queue._core.maintenance._keeps_up
        for _ in range(10_000):
            queue.push([(1, b"")])
            if not keeps_up.is_set():
                break
        pushed = len(queue)
        queue.push([(1, b"")])
        assert not keeps_up.is_set()
        assert len(queue) == pushed + 1
        go_on.set()
        assert keeps_up.wait(60)


def test_pushes_also_wait_for_a_round_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep chose when there was one segment of tiny frames, and then many were sealed."""
    is_under_way, go_on = threading.Event(), threading.Event()

    def held_up(*args: Any, **options: Any) -> None:
        is_under_way.set()
        assert go_on.wait(60)
        carry(*args, **options)

    monkeypatch.setattr("tidemill.files.upkeep.maintenance.carry", held_up)
    monkeypatch.setattr("tidemill.files.journal.journal.RECORDS_PER_SEGMENT_MAX", 20)
    monkeypatch.setattr("tidemill.files.upkeep.segment_facts.TINY_FRAMES_MIN", 8)
    with queue_at(tmp_path, maintain_in_background=True) as queue:
        keeps_up = queue._core.maintenance._keeps_up
        journal = queue._core.folder.journal

        def push_until_sealed() -> None:
            before = journal.active.number
            while journal.active.number == before:
                queue.push([(1, b"")])

        push_until_sealed()
        assert is_under_way.wait(60)
        for _ in range(4):
            push_until_sealed()
            assert keeps_up.is_set()
        push_until_sealed()
        assert not keeps_up.is_set()
        go_on.set()
        assert keeps_up.wait(60)
        assert len(queue.pop(-1)) > 90


@pytest.mark.parametrize(("rows", "loader"), [(1, "_load_ones"), (2, "_load")])
@pytest.mark.parametrize("at_once", [30, 1_000])
def test_tiny_frames_are_rewritten_some_at_a_time(
    rows: int, loader: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes some KB in memory, and there may be a hundred thousand."""
    read_at_once: list[int] = []
    load = getattr(survivors.Survivors, loader)

    def counted(self: survivors.Survivors, entries: list[Entry]) -> object:
        read_at_once.append(len(entries))
        return load(self, entries)

    monkeypatch.setattr(survivors.Survivors, loader, counted)
    monkeypatch.setattr(survivors, "_FRAMES_AT_ONCE", at_once)
    with queue_at(tmp_path, segment_bytes=2**20) as queue:
        order = [key * 37 % 100 for key in range(100)]
        for key in order:
            queue.push([(key, b"%d" % key)] * rows)
        folder = queue._core.folder
        folder.journal.roll()
        carry(folder, 1)
        assert read_at_once == ([30, 30, 30, 10] if at_once == 30 else [100])
        assert queue.pop(-1).rows() == [
            (key, b"%d" % key) for key in range(100) for _ in range(rows)
        ]


def test_single_items_of_several_segments_are_sorted_when_they_are_joined(tmp_path: Path) -> None:
    """Those of one segment are in order already."""
    with queue_at(tmp_path, segment_bytes=2**20) as queue:
        folder = queue._core.folder
        for first in (0, 1):
            for key in range(first, 20, 2):
                queue.push([(key, b"%d" % key)])
            folder.journal.roll()
        carry(folder, 1, 2)
        assert [queue.pop(1).keys.to_pylist() for _ in range(3)] == [[0], [1], [2]]
    with queue_at(tmp_path) as queue:
        assert queue.pop(-1).keys.to_pylist() == list(range(3, 20))


def test_a_segment_begun_while_another_is_retired_does_not_ask_for_it(tmp_path: Path) -> None:
    """A push of another thread may come between the record that retires a segment and its end."""
    with queue_at(tmp_path, maintain_in_background=False) as queue:
        folder = queue._core.folder
        for key in (1, 2):
            queue.push([(key, b"")])
            folder.journal.roll()
        queue._core.maintenance.stop()
        queue.pop()
        folder.commit(Retire([1]))
        folder.journal.roll()
        folder.journal.remove([1])
    with queue_at(tmp_path) as queue:
        assert queue.pop(9).keys.to_pylist() == [2]


def test_a_segment_ends_after_so_many_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.files.journal.journal.RECORDS_PER_SEGMENT_MAX", 10)
    with queue_at(tmp_path, segment_bytes=1024 * 1024) as queue:
        for key in range(25):
            queue.push([(key, b"")])
        # Each begins with two records of state.
        assert queue.stats().segments == 4
    with queue_at(tmp_path, segment_bytes=1024 * 1024) as queue:
        for key in range(25, 35):
            queue.push([(key, b"")])
        # Those that were there before count as well.
        assert queue.stats().segments == 5
        assert queue.pop(99).keys.to_pylist() == list(range(35))


def test_what_was_merged_is_not_rewritten_with_tiny_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.files.folder.folder.TINY_FRAMES_MIN", 4)
    with queue_at(tmp_path, segment_bytes=16 * 1024) as queue:
        queue._core.maintenance.stop()
        folder = queue._core.folder
        for key in range(24):
            queue.push([(key, bytes(400))])
        first = min(folder.journal.segments)
        folder.journal.roll()
        for key in range(24, 32):
            queue.push([(key, bytes(400))])
        before = folder.journal.active
        folder.journal.finish_seals()
        carry(folder, first, apart=True)
        apart = folder.journal.active
        queue.push([(32, b"")])
        assert apart is not before
        assert folder.journal.active is not apart
        assert all(segment.number != first for segment in folder.journal.segments.values())
        assert queue.pop(99).keys.to_pylist() == list(range(33))


def facts(
    number: int, *, bytes_: int = 60_000, frames: int = 4, items: int = 100, alive: int = 100
) -> SegmentFacts:
    return SegmentFacts(number, bytes_, frames, 1, items, alive)


def chosen(
    *segments: SegmentFacts, total: int = 0, live: int = 0, cuts: bool = False
) -> list[list[int]]:
    rewrites = choose_rewrites(
        list(segments),
        total_bytes=total,
        live_bytes=live,
        segment_bytes=64 * 1024,
        too_many_cuts=cuts,
    )
    return [rewrite.segments for rewrite in rewrites]


def test_nothing_is_rewritten_without_need() -> None:
    assert chosen() == []
    assert chosen(facts(1), facts(2), total=120_000, live=120_000) == []


def test_the_emptiest_segment_is_rewritten_when_garbage_outweighs_the_living() -> None:
    assert chosen(facts(1, alive=90), facts(2, alive=10), total=10**6, live=10**5) == [[2]]


def test_segments_of_tiny_frames_are_rewritten_together_as_far_as_they_make_one() -> None:
    full = [facts(number, frames=1_000) for number in range(1, 6)]
    assert chosen(*full) == [[1]]
    third = [facts(number, frames=1_000, bytes_=20_000) for number in range(1, 6)]
    assert chosen(*third) == [[1, 2, 3]]


def test_small_segments_of_about_one_size_are_made_one() -> None:
    halves = [facts(number, bytes_=30_000) for number in (1, 3)]
    assert chosen(facts(2), *halves) == [[1, 3]]
    assert chosen(halves[0], facts(4, bytes_=10_000)) == []
    eighths = [facts(number, bytes_=1_000 * number + 100) for number in range(1, 9)]
    assert chosen(*eighths[:7]) == []
    assert chosen(*eighths) == [[1, 2, 3, 4, 5, 6, 7, 8]]


def test_the_oldest_segment_is_rewritten_when_there_are_too_many_cuts() -> None:
    assert chosen(facts(3), facts(4), cuts=True) == [[3]]


def test_disk_comes_back_where_a_queue_is_only_ever_open_for_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where a process ends before upkeep has come to anything.
    monkeypatch.setattr(maintenance.Maintenance, "_due", lambda _: None)
    with queue_at(tmp_path, maintain_in_background=True) as queue:
        fork = queue.fork("slow")
        for key in range(40):
            queue.push([(key, bytes(4_000))])
    assert segments_bytes(tmp_path) > 5 * SEGMENT
    with queue_at(tmp_path, maintain_in_background=True) as queue:
        queue.clear()
    assert segments_bytes(tmp_path) > 5 * SEGMENT
    with queue_at(tmp_path, maintain_in_background=True) as queue:
        fork = queue.fork("slow")
        assert [key for key, _ in fork.pop(20).rows()] == list(range(20))
    assert segments_bytes(tmp_path) < 4 * SEGMENT
    with queue_at(tmp_path, maintain_in_background=True) as queue:
        assert [key for key, _ in queue.fork("slow").peek(-1).rows()] == list(range(20, 40))
        queue.fork("slow").remove()
    assert segments_bytes(tmp_path) <= SEGMENT
