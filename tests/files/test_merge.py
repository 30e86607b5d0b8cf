"""The merge of one bucket against `sorted`: whatever overlaps, arrives late or exceeds memory."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import tidemill as tm
from tests.files.stored_frames import StoredFrames
from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.merge.choice import Choice
from tidemill.files.merge.late import Late
from tidemill.files.merge.layers import Layers
from tidemill.files.merge.merge import Merge
from tidemill.files.merge.pending import Loaded, source_of
from tidemill.files.merge.run import Run
from tidemill.files.merge.sorted_ahead import SortedAhead
from tidemill.limits import INT64_MAX, INT64_MIN

near = st.integers(-20, 20)
keys = st.one_of(near, near, st.sampled_from([INT64_MIN, INT64_MAX]))
batches = st.lists(keys, min_size=1, max_size=12)
memory = st.sampled_from([0, 1, 200, 1_000, 4_000, 128 * 1024 * 1024])


def rows_of(batch: tm.Batch) -> list[tuple[int, int, bytes]]:
    return [
        (key, seq, value)
        for (key, value), seq in zip(batch.rows(), batch.seqs.to_pylist(), strict=True)
    ]


def take(merge: Merge, count: int, key_max: int = INT64_MAX) -> list[tuple[int, int, bytes]]:
    choice = merge.choose(count, key_max)
    if choice is None:
        return []
    rows = rows_of(choice.batch)
    assert choice.last == rows[-1][:2]
    merge.advance(choice)
    return rows


@given(st.lists(batches, max_size=12), st.lists(st.integers(1, 30), min_size=1), memory)
def test_overlapping_frames_come_out_sorted(
    pushed: list[list[int]], counts: list[int], bytes_max: int
) -> None:
    frames = StoredFrames()
    for batch in pushed:
        frames.push(batch)
    merge = Merge(frames.all(), frames.load, bytes_max=bytes_max)
    expected = sorted(frames.rows)
    position = 0
    while position < len(expected):
        count = counts[position % len(counts)]
        assert take(merge, count) == expected[position : position + count]
        position += count
    assert merge.choose(1, INT64_MAX) is None
    assert merge.is_empty


@given(st.lists(batches, min_size=4, max_size=40), st.lists(st.integers(1, 30), min_size=1), memory)
def test_many_small_frames_are_joined_and_come_out_sorted(
    pushed: list[list[int]], counts: list[int], bytes_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.files.merge.merge._SMALL_RUNS_MAX", 2)
        patch.setattr("tidemill.files.merge.merge._SMALL_ROWS", 40)
        patch.setattr("tidemill.files.merge.loader._SHORT_RUNS_MIN", 2)
        frames = StoredFrames()
        for batch in pushed:
            frames.push(batch)
        merge = Merge(frames.all(), frames.load, bytes_max=bytes_max)
        taken: list[tuple[int, int, bytes]] = []
        while rows := take(merge, counts[len(taken) % len(counts)]):
            taken += rows
        assert taken == sorted(frames.rows)
        assert merge.is_empty


@given(st.lists(batches, max_size=12), keys, memory)
def test_nothing_above_the_greatest_key_allowed_is_chosen(
    pushed: list[list[int]], key_max: int, bytes_max: int
) -> None:
    frames = StoredFrames()
    for batch in pushed:
        frames.push(batch)
    merge = Merge(frames.all(), frames.load, bytes_max=bytes_max)
    expected = sorted(frames.rows)
    allowed = [row for row in expected if row[0] <= key_max]
    assert take(merge, 1_000, key_max) == allowed
    assert take(merge, 1_000) == expected[len(allowed) :]


class MergeAgainstSorted(RuleBasedStateMachine):
    """A list that is sorted anew for every question, against a merge that never sorts it all."""

    @initialize(pushed=st.lists(batches, max_size=8), bytes_max=memory)
    def open(self, pushed: list[list[int]], bytes_max: int) -> None:
        self.begin(pushed, bytes_max)

    def begin(self, pushed: list[list[int]], bytes_max: int) -> None:
        self.frames = StoredFrames()
        for batch in pushed:
            self.frames.push(batch)
        self.merge = Merge(self.frames.all(), self.frames.load, bytes_max=bytes_max)
        self.model = sorted(self.frames.rows)
        self.choice: Choice | None = None

    @rule(batch=batches, is_held=st.booleans())
    def push(self, batch: list[int], is_held: bool) -> None:
        entry = self.frames.push(batch)
        self.merge.add([source_of(entry, self.frames.load([entry])[0] if is_held else None)])
        self.model = sorted({*self.model, *self.frames.rows[-len(batch) :]})
        self.choice = None

    @rule(count=st.integers(1, 25), key_max=st.one_of(st.just(INT64_MAX), keys))
    def choose(self, count: int, key_max: int) -> None:
        self.choice = self.merge.choose(count, key_max)
        found = [] if self.choice is None else rows_of(self.choice.batch)
        assert found == [row for row in self.model if row[0] <= key_max][:count]

    @rule()
    def advance(self) -> None:
        """Consume what was last chosen; a read may be given up instead, so this is a step apart."""
        if self.choice is not None:
            self.merge.advance(self.choice)
            self.model = self.model[len(self.choice.batch) :]
            self.choice = None

    @rule()
    def drain(self) -> None:
        found = []
        while rows := take(self.merge, 7):
            found += rows
        assert found == self.model
        self.model = []
        self.choice = None

    @invariant()
    def emptiness_is_known(self) -> None:
        if hasattr(self, "merge") and self.merge.is_empty:
            assert not self.model


class LayersAgainstSorted(MergeAgainstSorted):
    """The same where there are more frames that overlap than memory holds, if not by far."""

    @initialize(
        pushed=st.lists(st.lists(near, min_size=6, max_size=12), min_size=10, max_size=14),
        bytes_max=st.sampled_from([2_000, 4_000]),
    )
    def open(self, pushed: list[list[int]], bytes_max: int) -> None:
        self.begin(pushed, bytes_max)


@pytest.mark.slow
def test_pushes_choices_and_takes_in_any_order_agree_with_sorted() -> None:
    run_state_machine_as_test(MergeAgainstSorted)


@pytest.mark.slow
def test_they_do_so_too_with_several_layers_and_many_late_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "merge.WINDOW_ROWS": 5,
        "quantiles._STRIDE_MIN": 1,
        "late._NEAR_RUNS_MAX": 2,
        "late._JOINED_ROWS_MAX": 6,
        "late._JOINED_PART": 1,
        "merge._REFINED_ROWS": 4,
    }.items():
        monkeypatch.setattr(f"tidemill.files.merge.{name}", value)
    layers: list[int] = []
    aheads: list[int] = []
    begin, sort = Layers.begin, SortedAhead.__init__

    def counted(self: Layers, limits: Sequence[tuple[int, int]]) -> None:
        layers.append(len(limits))
        begin(self, limits)

    def sorted_ahead(self: SortedAhead, parts: list[tuple[Run, int, int]]) -> None:
        aheads.append(len(parts))
        sort(self, parts)

    monkeypatch.setattr(Layers, "begin", counted)
    monkeypatch.setattr(SortedAhead, "__init__", sorted_ahead)
    for machine in (MergeAgainstSorted, LayersAgainstSorted):
        run_state_machine_as_test(machine)
    assert sum(count > 2 for count in layers) > 10
    assert len(aheads) > 10


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("joined_rows_max", [0, 60, 10_000])
def test_frames_pushed_between_pops_come_out_in_their_places(
    monkeypatch: pytest.MonkeyPatch, seed: int, joined_rows_max: int
) -> None:
    """Many pushes have few rows each among the windows: these are joined, or merged into them."""
    monkeypatch.setattr("tidemill.files.merge.merge.WINDOW_ROWS", 100)
    monkeypatch.setattr("tidemill.files.merge.merge._REFINED_ROWS", 50)
    monkeypatch.setattr("tidemill.files.merge.late._NEAR_RUNS_MAX", 3)
    monkeypatch.setattr("tidemill.files.merge.late._JOINED_ROWS_MAX", joined_rows_max)
    monkeypatch.setattr("tidemill.files.merge.late._JOINED_PART", 4)
    joined: list[int] = []
    refused: list[int] = []
    join = Late.join

    def noted(self: Late, limit: tuple[int, int]) -> list[Loaded] | None:
        runs = len(self.near)
        rest = join(self, limit)
        (refused if rest is None else joined).append(runs)
        return rest

    monkeypatch.setattr(Late, "join", noted)
    chance = random.Random(seed)
    frames = StoredFrames()

    def some_keys() -> list[int]:
        return [chance.randrange(500) for _ in range(30)]

    for _ in range(60):
        frames.push(some_keys())
    bytes_max = 20 * frames.entries[0].length
    merge = Merge(frames.all(), frames.load, bytes_max=bytes_max)
    model = sorted(frames.rows)
    for _ in range(60):
        count = chance.randrange(1, 60)
        assert take(merge, count) == model[:count]
        del model[:count]
        merge.add([source_of(frames.push(some_keys()))])
        model = sorted(model + frames.rows[-30:])
    while rows := take(merge, 77):
        assert rows == model[:77]
        del model[:77]
    assert not model
    assert max(joined if joined_rows_max else refused) > 1


def test_a_pass_reads_each_frame_once_for_many_windows() -> None:
    frames = StoredFrames()
    for number in range(40):
        frames.push(list(range(number, 4_000, 40)))
    # Memory for half of the rows, as layers keep them.
    merge = Merge(frames.all(), frames.load, bytes_max=40 * frames.entries[0].length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.files.merge.merge.WINDOW_ROWS", 100)
        found: list[tuple[int, int, bytes]] = []
        while len(found) < 1_000 and (rows := take(merge, 50)):
            found += rows
        assert found == sorted(frames.rows)[:1_000]
        assert frames.loads <= 50
        while rows := take(merge, 50):
            found += rows
    assert found == sorted(frames.rows)
    assert frames.loads <= 200


def test_frames_that_begin_further_on_do_not_make_layers_smaller() -> None:
    """Only what overlaps counts, however many frames are in the bucket."""
    frames = StoredFrames()
    for number in range(100):
        frames.push(list(range(number, 10_000, 100)))
    for number in range(2_000):
        frames.push([20_000 + number])
    merge = Merge(frames.all(), frames.load, bytes_max=60 * frames.entries[0].length)
    found: list[tuple[int, int, bytes]] = []
    while len(found) < 8_000 and (rows := take(merge, 100)):
        found += rows
    assert found == sorted(frames.rows)[:8_000]
    assert frames.loads <= 500


def test_a_merge_that_is_dropped_gives_its_memory_back_at_once() -> None:
    """It may hold tens of megabytes, which must not wait for the collector of cycles."""
    frames = StoredFrames()
    for number in range(40):
        frames.push(list(range(number, 4_000, 40)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.files.merge.merge.WINDOW_ROWS", 100)
        merge = Merge(frames.all(), frames.load, bytes_max=40 * frames.entries[0].length)
        assert take(merge, 50)
        merge.add([source_of(frames.push([1_000, 2_000, 3_000]))])
        assert take(merge, 500)
    assert merge._ahead is not None
    assert len(merge._layers)
    known = weakref.ref(merge)
    gc.disable()
    try:
        del merge
        assert known() is None
    finally:
        gc.enable()


def test_a_frame_that_overlaps_no_other_is_handed_out_without_a_copy() -> None:
    frames = StoredFrames()
    frames.push([1, 2, 3])
    frames.push([4, 5, 6])
    merge = Merge(frames.all(), frames.load)
    choice = merge.choose(3, INT64_MAX)
    assert choice is not None
    stored = frames.runs[0].body.column(1).buffers()[2]
    assert choice.batch.payload.column(0).buffers()[2].address == stored.address


def test_frames_that_are_not_needed_yet_are_not_read() -> None:
    frames = StoredFrames()
    for start in range(0, 1_000, 10):
        frames.push(list(range(start, start + 10)))
    merge = Merge(frames.all(), frames.load)
    merge.choose(5, INT64_MAX)
    assert frames.loads < 5


def test_what_is_above_the_greatest_key_allowed_is_not_read() -> None:
    frames = StoredFrames()
    for start in range(0, 1_000, 10):
        frames.push(list(range(start, start + 10)))
    merge = Merge(frames.all(), frames.load)
    choice = merge.choose(1_000, 14)
    assert choice is not None
    assert len(choice.batch) == 15
    assert frames.loads <= 3


@pytest.mark.parametrize("bytes_max", [1_000, 100_000])
def test_more_frames_than_memory_holds_are_merged_in_windows(bytes_max: int) -> None:
    frames = StoredFrames()
    for _ in range(50):
        frames.push(list(range(0, 2_000, 10)))
    merge = Merge(frames.all(), frames.load, bytes_max=bytes_max)
    found = []
    while rows := take(merge, 777):
        found += rows
    assert found == sorted(frames.rows)
    # Each frame was read again for later windows, which is the price of the bound.
    assert frames.loads > 50


def test_many_frames_that_came_late_are_not_all_held_in_memory() -> None:
    frames = StoredFrames()
    for _ in range(10):
        frames.push(list(range(0, 2_000, 10)))
    bytes_max = 20 * frames.entries[0].length
    at_once: list[int] = []

    def load(entries: list[Entry]) -> list[Run]:
        at_once.append(sum(entry.length for entry in entries))
        return frames.load(entries)

    merge = Merge(frames.all(), load, bytes_max=bytes_max)
    found = take(merge, 77)
    for number in range(200):
        merge.add([source_of(frames.push(list(range(number % 10, 2_000, 10))))])
    later = []
    while rows := take(merge, 77):
        later += rows
    assert later == sorted(set(frames.rows) - set(found))
    assert max(at_once) <= bytes_max // 2


def test_payloads_of_any_type_are_merged_with_their_keys() -> None:
    frames = StoredFrames(
        pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]),
        lambda key, seq: {"id": seq, "tags": [str(key)] * (seq % 3)},
    )
    for batch in ([5, 1, 9], [2, 5, 8], [0, 5]):
        frames.push(batch)
    merge = Merge(frames.all(), frames.load)
    found = take(merge, 100)
    assert [row[:2] for row in found] == sorted(row[:2] for row in frames.rows)
    for key, seq, payload in found:
        assert payload == {"id": seq, "tags": [str(key)] * (seq % 3)}  # type: ignore[comparison-overlap]


def test_rows_pushed_before_all_others_do_not_pile_up_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_max = 64 * 1024
    opened: list[Merge] = []

    def small_merge(
        frames: FrameList, load: Callable[[list[Entry]], list[Run]], **options: Any
    ) -> Merge:
        opened.append(Merge(frames, load, bytes_max=bytes_max, **options))
        return opened[-1]

    monkeypatch.setattr("tidemill.files.merge.cursor.Merge", small_merge)
    monkeypatch.setattr("tidemill.files.merge.merge._REFINED_ROWS", 64)
    model: list[int] = []
    with tm.PriorityQueue(tmp_path / "queue", sync="none") as queue:
        for number in range(1_000):
            keys = range(100_000 - 10 * number, 100_010 - 10 * number)
            queue.push([(key, b"x" * 40) for key in keys])
            model = [*keys, *model]
            # A peek makes room as well as a pop does.
            assert queue.peek().keys.to_pylist() == model[:1]
            if number % 3:
                assert queue.pop().keys.to_pylist() == [model.pop(0)]
            assert sum(window.nbytes for window in opened[-1]._windows) < 2 * bytes_max
        # Opening anew costs a look at every frame there is: it is to be rare.
        assert 1 < len(opened) < 50
        assert queue.pop(-1).keys.to_pylist() == model


def test_what_is_held_at_the_far_end_does_not_have_a_long_queue_read() -> None:
    frames = StoredFrames()
    rows, backlog = 400, 300

    def push() -> Entry:
        first = len(frames.entries) * rows
        return frames.push(list(range(first, first + rows)))

    for _ in range(backlog):
        push()
    # Held is a quarter of that at most: 10 frames.
    merge = Merge(frames.all(), frames.load, bytes_max=40 * frames.entries[0].length)
    most = 0
    for number in range(backlog):
        entry = push()
        merge.add([source_of(entry, frames.load([entry])[0])])
        before = frames.loads
        assert [key for key, _, _ in take(merge, rows)] == [
            *range(number * rows, (number + 1) * rows)
        ]
        most = max(most, frames.loads - before)
    assert most <= 10
