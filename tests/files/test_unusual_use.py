"""Patterns of use that once made memory or cost grow with the queue: each is held to a bound that
can be counted.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.files.counting_fs import CountingFileSystem
from tests.files.stored_frames import StoredFrames
from tidemill.files.index import lately_read
from tidemill.files.merge import cursor
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.frame_reader import _covered
from tidemill.files.merge.merge import Merge
from tidemill.files.state.cut import Cut, Cuts
from tidemill.files.state.state import ForkState
from tidemill.files.upkeep import maintenance, segment_facts
from tidemill.files.upkeep.carry import carry
from tidemill.limits import INT64_MAX, INT64_MIN

MIB = 1024 * 1024


def held_bytes(merge: Merge) -> int:
    late = merge._late
    runs = [*merge._windows, *(run for run, _ in [*merge._loaded, *late.near])]
    runs += [loaded.run for source in late.far if (loaded := source.loaded) is not None]
    if merge._ahead is not None:
        runs.append(merge._ahead.wait())
    return sum(run.nbytes for run in runs) + merge._layers.bytes


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_overlapping_frames_of_few_large_rows_are_not_all_held_in_memory(rows: int) -> None:
    chance = random.Random(rows)
    frames = StoredFrames(value_of=lambda key, seq: bytes(20_000))
    for _ in range(400 // rows):
        frames.push([chance.randrange(10**6) for _ in range(rows)])
    merge = Merge(frames.all(), frames.load, bytes_max=MIB)
    found: list[int] = []
    most = 0
    while (choice := merge.choose(3, INT64_MAX)) is not None:
        most = max(most, held_bytes(merge))
        merge.advance(choice)
        found += choice.batch.keys.to_pylist()
    assert found == sorted(row[0] for row in frames.rows)
    assert most < 2 * MIB


@pytest.mark.parametrize("spread", [10**6, 50])
def test_windows_of_large_rows_do_not_swallow_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: int
) -> None:
    opened: list[Merge] = []

    def small_merge(*given: Any, **options: Any) -> Merge:
        opened.append(Merge(*given, bytes_max=MIB, **options))
        return opened[-1]

    monkeypatch.setattr(cursor, "Merge", small_merge)
    chance = random.Random(spread)
    model: list[int] = []
    with tm.PriorityQueue(tmp_path / "queue", sync="none") as queue:
        for _ in range(300):
            keys = [chance.randrange(spread) for _ in range(3)]
            queue.push([(key, bytes(20_000)) for key in keys])
            model = sorted(model + keys)
            assert queue.pop().keys.to_pylist() == [model.pop(0)]
            assert held_bytes(opened[-1]) < 3 * MIB
        assert queue.pop(-1).keys.to_pylist() == model
    # What is left is 12 MB: more than a merge may hold, so it must have been left on disk.
    assert len(model) == 600


def test_upkeep_of_frames_for_several_audiences_comes_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_facts, "TINY_FRAMES_MIN", 8)
    carries: list[tuple[int, ...]] = []

    def counted(folder: object, *segments: int, apart: bool) -> None:
        carries.append(segments)
        assert len(carries) < 50, "the same rows are rewritten over and over"
        carry(folder, *segments, apart=apart)  # type: ignore[arg-type]

    monkeypatch.setattr(maintenance, "carry", counted)
    with tm.PriorityQueue(
        tmp_path / "queue", bucket=tm.Width(10), sync="none", maintain_in_background=False
    ) as queue:
        forks = [queue.fork(f"f{number}") for number in range(3)]
        for _ in range(20):
            queue.push([(key, b"x") for key in range(40)])
        for bucket in range(4):
            for number, fork in enumerate(forks):
                fork.delete(10 * bucket + number, 10 * bucket + 4 + number)
        queue._core.folder.journal.roll()
        for _ in range(3):
            queue._core.maintenance.run_round()
        assert carries
        settled = len(carries)
        queue._core.maintenance.run_round()
        assert len(carries) == settled
        assert [len(fork) for fork in forks] == [20 * 40 - 20 * 20] * 3
        assert queue.pop(-1).keys.to_pylist() == sorted(list(range(40)) * 20)


def test_buckets_that_are_used_up_are_not_looked_into_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    open_ = Cursor._open

    def counted(self: Cursor, bucket: int, arrived: int) -> Merge:
        opened.append(bucket)
        return open_(self, bucket, arrived)

    monkeypatch.setattr(Cursor, "_open", counted)
    with tm.PriorityQueue(tmp_path / "queue", bucket=tm.Width(10), sync="none") as queue:
        queue.fork("idle")
        queue.push([(key, b"") for key in range(100, 2_000, 10)])
        assert len(queue.pop(185)) == 185
        opened.clear()
        for urgent in (50, 3, 120):
            # Before all that was ever there, before that again, and in the middle of it.
            queue.push([(urgent, b"!")])
            assert queue.peek(2).keys.to_pylist() == [urgent, 1_950]
            assert queue.pop().keys.to_pylist() == [urgent]
        assert len(set(opened)) < 10
        assert queue.pop(-1).keys.to_pylist() == list(range(1_950, 2_000, 10))
        opened.clear()
        assert len(queue.pop()) == len(queue.peek(7)) == 0
        assert opened == []


def test_an_end_that_idles_remembers_no_more_than_so_many_pushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor, "_NEWS_MAX", 8)
    with tm.PriorityQueue(tmp_path / "queue", bucket=tm.Width(10), sync="none") as queue:
        idle = queue.fork("idle")
        queue.push([(500, b"")])
        assert len(idle.peek()) == 1
        keys = [500]
        for number in range(100):
            key = (505, 900 - number)[number % 2]
            queue.push([(key, b"")])
            keys.append(key)
            assert len(idle._cursor._inbox) + len(idle._cursor._below) <= 9
        assert idle.pop(-1).keys.to_pylist() == sorted(keys)


def test_news_are_kept_while_somebody_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor, "_NEWS_MAX", 2)
    choose = Merge.choose
    with tm.PriorityQueue(tmp_path / "queue", bucket=tm.Width(10), sync="none") as queue:
        queue.push([(5, b""), (15, b"")])
        assert len(queue.peek()) == 1

        def push_meanwhile(self: Merge, rows: int, key_max: int) -> object:
            monkeypatch.setattr(Merge, "choose", choose)
            pushing = threading.Thread(
                target=lambda: [queue.push([(key, b"")]) for key in (9, 8, 7, 6)]
            )
            pushing.start()
            pushing.join()
            return choose(self, rows, key_max)

        monkeypatch.setattr(Merge, "choose", push_meanwhile)
        # The second bucket is opened after so many pushes, and is to hear of the next one as well.
        assert queue.peek(2).keys.to_pylist() == [5, 15]
        queue.push([(12, b"")])
        assert queue.pop(-1).keys.to_pylist() == [5, 6, 7, 8, 9, 12, 15]


cuts = st.builds(
    Cut,
    st.just(INT64_MAX),
    st.integers(0, 40),
    st.one_of(st.just(INT64_MIN), st.integers(-5, 25)),
    st.integers(-5, 25),
    st.one_of(st.just(INT64_MAX), st.integers(0, 40)),
)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.lists(cuts, max_size=8))
def test_many_cuts_cover_together_what_each_of_them_covers(
    keys: list[int], made: list[Cut]
) -> None:
    frames = StoredFrames()
    frames.push(keys)
    (run,) = frames.load(frames.entries)
    # A delete covers all rows of its keys, whatever their seq; a take ends at a row.
    made = [cut if cut.is_take else cut._replace(seq=INT64_MAX) for cut in made]
    expected = np.zeros(run.rows, np.bool_)
    for cut in made:
        expected |= cut.mask(run.keys, run.seqs)
    kept, box = Cuts(tuple(made)), ((min(keys), max(keys)), (1, run.seq_max))
    takes, others = kept.takes_touching(0, *box), kept.others_touching(0, *box)
    assert _covered(run, takes, others).tolist() == expected.tolist()


def test_a_delete_looks_at_the_frames_it_reaches_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    touches_box = Cut.touches_box

    def counted(self: Cut, place: int, keys: tuple[int, int], seqs: tuple[int, int]) -> bool:
        looked_at.append(place)
        return touches_box(self, place, keys, seqs)

    monkeypatch.setattr(Cut, "touches_box", counted)
    with tm.PriorityQueue(tmp_path / "queue", sync="none") as queue:
        for start in range(0, 1_000, 10):
            queue.push([(key, b"") for key in range(start, start + 10)])
        assert queue.delete(500, 514) == 15
        assert len(looked_at) < 5
        assert len(queue) == 985


@given(st.sets(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 70), st.integers(0, 10))
def test_ancestors_that_no_frame_needs_are_forgotten_and_no_others(
    places: set[int], oldest: int, beyond: int
) -> None:
    created, *older = sorted(places, reverse=True)
    ancestors = tuple((place, number) for number, place in enumerate([*older, 0]))
    fork = ForkState(99, "audit", created, ancestors, 0, Cuts())
    pruned = ForkState(99, "audit", created, fork.ancestors_since(oldest), 0, Cuts())
    place = max(oldest + beyond, 1)
    assert pruned.identity_at(place) == fork.identity_at(place)
    assert len(pruned.ancestors) <= 1 + sum(one >= oldest for one in older)


def test_forks_that_come_and_go_leave_nothing_in_the_state(tmp_path: Path) -> None:
    with tm.PriorityQueue(
        tmp_path, sync="none", segment_bytes=16 * 1024, maintain_in_background=False
    ) as queue:
        state = queue._core.folder.state
        last: tm.Fork | None = None
        most = 0
        for day in range(16):
            fork = (last or queue).fork(f"day-{day}")
            if last is not None:
                last.remove()
            for key in range(100 * day, 100 * day + 100):
                queue.push([(key, bytes(400))])
                queue.pop()
                # Few items in each segment are left to it, and are carried for it alone.
                if key % 20:
                    fork.delete(key, key)
            if day > 2:
                fork.pop(5)
            last = fork
            ancestors = [len(one.ancestors) for one in state.forks.values()]
            most = max(most, len(state.audiences), *ancestors)
        assert last is not None
        expected = list(range(1300, 1600, 20))
        assert [row[0] for row in last.peek(-1).rows()] == expected
        # Each was needed for a while.
        assert state.next_audience > 10
        assert most < 8
    with tm.PriorityQueue(tmp_path) as queue:
        assert [row[0] for row in queue.fork("day-15").peek(-1).rows()] == expected
        assert len(queue) == 0


def test_many_small_buckets_are_scanned_together_and_no_summary_is_read_for_each(
    tmp_path: Path,
) -> None:
    fs = CountingFileSystem()
    count = 3_000
    with tm.PriorityQueue(
        tmp_path, sync="none", bucket=tm.Width(1), segment_bytes=256 * 1024, file_system=fs
    ) as queue:
        # Behind many small buckets one that is large, and small ones again.
        queue.push([(key, b"a") for key in range(count)])
        queue.push([(count, bytes(100)) for _ in range(2_000)])
        queue.push([(key, b"b") for key in range(count + 1, 2 * count)])
        queue._core.maintenance.run_round()
        summaries = sum(file.stat().st_size for file in tmp_path.rglob("*.summary"))
        before = fs.calls["bytes read.summary"]
        batches = list(queue.scan())
        expected = [*range(count), *[count] * 2_000, *range(count + 1, 2 * count)]
        assert [key for batch in batches for key in batch["key"].to_pylist()] == expected
        assert len(batches) < 60
        queue.pop(500)
        assert summaries < fs.calls["bytes read.summary"] - before < 8 * summaries


def test_a_round_of_upkeep_reads_the_summaries_of_what_is_consumed_alone(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    with tm.PriorityQueue(
        tmp_path,
        sync="none",
        segment_bytes=64 * 1024,
        maintain_in_background=False,
        file_system=fs,
    ) as queue:
        upkeep = queue._core.maintenance
        slow = queue.fork("slow")
        for start in range(0, 40_000, 500):
            queue.push([(key, bytes(40)) for key in range(start, start + 500)])
        upkeep.run_round()
        segments = queue.stats().segments
        summaries = sum(file.stat().st_size for file in tmp_path.rglob("*.summary"))
        assert segments > 20
        # Both ends are at the beginning of it, and nothing else has to be looked at.
        slow.pop(100)
        queue.pop(200)
        before = fs.calls["bytes read.summary"]
        upkeep.run_round()
        assert fs.calls["bytes read.summary"] - before < 4 * summaries / segments
        # What one of them has yet to see stands, whatever the other has consumed.
        queue.pop(20_000)
        upkeep.run_round()
        assert queue.stats().segments >= segments
        slow.pop(20_000)
        upkeep.run_round()
        assert queue.stats().segments < 0.7 * segments
        assert [row[0] for row in slow.peek(-1).rows()] == list(range(20_100, 40_000))
        assert [row[0] for row in queue.peek(-1).rows()] == list(range(20_200, 40_000))


def test_a_scan_of_segments_that_are_gone_still_knows_whom_their_frames_are_for(
    tmp_path: Path,
) -> None:
    with tm.PriorityQueue(
        tmp_path, sync="none", segment_bytes=16 * 1024, maintain_in_background=False
    ) as queue:
        state = queue._core.folder.state
        fork = queue.fork("audit")
        for key in range(300):
            queue.push([(key, bytes(400))])
            queue.pop()
            if key % 20:
                fork.delete(key, key)
        # Behind the last pop, so that it is by their audience alone that the queue leaves them out.
        folder = queue._core.folder
        carry(folder, *list(folder.journal.segments)[:-1])
        assert state.audiences
        of_queue, of_fork = queue.scan(), fork.scan()
        fork.clear()
        for key in range(200):
            queue.push([(key, bytes(400))])
            queue.pop()
            fork.pop()
        queue._core.maintenance.run_round()
        assert of_queue.read_all().num_rows == 0
        assert of_fork.read_all()["key"].to_pylist() == list(range(0, 300, 20))
        queue._core.maintenance.run_round()
        assert not state.audiences


def test_of_the_frames_that_were_read_few_bytes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately_read, "_BYTES_MAX", 64 * 1024)
    with tm.PriorityQueue(
        tmp_path, sync="none", bucket=tm.Width(1), segment_bytes=64 * 1024
    ) as queue:
        # One operation may have any number of frames, and they lie in one segment.
        for start in range(0, 10_000, 1_000):
            queue.push([(key, b"") for key in range(start, start + 1_000)])
        queue._core.maintenance.run_round()
        index = queue._core.folder.index
        for bucket in range(0, 10_000, 500):
            assert len(index.frames(bucket)) == 1
            kept = [entries.nbytes for _, entries in index._lately_read._kept.values()]
            assert kept
            assert sum(kept[:-1]) <= 64 * 1024


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as opened:
        queue: Any = opened  # What is typed asks for Python's own.
        queue.push([(np.int64(key), b"") for key in range(10)])
        assert queue.pop(np.int64(2)).keys.to_pylist() == [0, 1]
        assert queue.pop(-1, key_max=np.int32(3)).keys.to_pylist() == [2, 3]
        assert queue.delete(np.int64(4), np.uint8(5)) == 2
        assert queue.scan(keys=(np.int64(7), None)).read_all().num_rows == 3
        consumer = queue.consumer("one", start="earliest")
        consumer.ack(consumer.read(np.int64(1)).seqs.to_numpy()[0])
        for wrong in (np.float64(2), np.bool_(True), True, "2", None):
            with pytest.raises(tm.InvalidInput):
                queue.pop(wrong)


def test_the_end_of_a_closed_queue_says_so(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        fork = queue.fork("audit")
        assert "0 items" in repr(fork)
    assert repr(fork).endswith(", closed>")


def test_a_queue_stays_where_it_is_when_the_process_goes_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (there, here):
        folder.mkdir()
        monkeypatch.chdir(folder)
        with tm.PriorityQueue("queue", segment_bytes=16 * 1024) as queue:
            queue.push([(99, str(folder).encode())])
    with tm.PriorityQueue("queue") as queue, tm.PriorityQueue("queue", read_only=True) as reader:
        monkeypatch.chdir(there)
        for key in range(8):
            queue.push([(key, bytes(5000))])
        assert len(reader) == 9
    for folder, items in ((here, 9), (there, 1)):
        with tm.PriorityQueue(folder / "queue") as queue:
            assert len(queue) == items
            assert queue.pop(items).rows()[-1] == (99, str(folder).encode())


def test_a_folder_that_begins_in_one_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brief").mkdir()
    monkeypatch.chdir(tmp_path / "brief")
    (tmp_path / "brief").rmdir()
    for make in (tm.PriorityQueue, tm.Log):
        with pytest.raises(tm.InvalidInput, match="which is gone"):
            make("queue")
