"""Frames that are read together: what comes out is what reading them one by one gives.

Single items have a short way out of their own. Whatever is not, to the byte, a small item of bytes
that was written through the same handle takes the long one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.files.stored_frames import StoredFrames
from tidemill.batch import DEFAULT, PlainForm, PlainRow, body_schema
from tidemill.files.format.frame_table import Entry
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.merge.merge import Merge
from tidemill.files.merge.pending import Pending, source_of
from tidemill.files.merge.run import Run
from tidemill.limits import INT64_MAX, INT64_MIN

FORM = PlainForm(body_schema(DEFAULT, carried=False))

plain_rows = st.builds(PlainRow, st.integers(INT64_MIN, INT64_MAX), st.binary(max_size=40))
ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=40)


def open_queue(path: Path, **options: object) -> tm.PriorityQueue:
    return tm.PriorityQueue(path, sync="none", maintain_in_background=False, **options)  # type: ignore[arg-type]


def entries_of(queue: tm.PriorityQueue) -> list[Entry]:
    """All frames of a queue with a single bucket, in the order they were written."""
    return list(queue._core.view.index.frames(0))


def facts(runs: list[Run]) -> list[tuple[object, ...]]:
    """Every column of every row."""
    return [
        row
        for run in runs
        for row in zip(
            run.keys.tolist(),
            run.seqs.tolist(),
            run.times_of(0, run.rows).tolist(),
            run.payload.to_pylist(),
            strict=True,
        )
    ]


@given(st.lists(plain_rows, min_size=1, max_size=20))
def test_bodies_of_single_rows_are_decoded_together(rows: list[PlainRow]) -> None:
    bodies: list[tuple[int, int]] = []
    data = b"in front"
    for row in rows:
        body = bytes(FORM.encode([row]).buffer)
        bodies.append((len(data), len(data) + len(body)))
        data += body + b"between"
    found = FORM.decode_ones(data, bodies)
    assert found is not None
    keys, values = found
    values.validate(full=True)
    assert list(zip(keys.tolist(), values.to_pylist(), strict=True)) == rows


@given(plain_rows, st.data())
def test_a_body_that_differs_in_its_metadata_is_not_taken_for_a_plain_one(
    row: PlainRow, data: st.DataObject
) -> None:
    body = bytearray(FORM.encode([row]).buffer)
    metadata_bytes = len(body) - 16 - len(row.value) - -len(row.value) % 8
    at = data.draw(st.integers(0, metadata_bytes - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    assert FORM.decode_ones(bytes(body), [(0, len(body))]) is None


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_a_body_with_another_number_of_rows_is_not_a_single_one(rows: int) -> None:
    schema = body_schema(DEFAULT, carried=False)
    arrays = [pa.array(range(rows), pa.int64()), pa.array([b"ab"] * rows, pa.binary())]
    body = pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes()
    assert FORM.decode_ones(body, [(0, len(body))]) is None


def test_a_body_that_is_cut_off_is_not_a_single_one() -> None:
    body = bytes(FORM.encode([PlainRow(1, b"abc")]).buffer)
    assert [end for end in range(len(body) + 1) if FORM.decode_ones(body, [(0, end)])] == [
        len(body)
    ]


def alike(queue: tm.PriorityQueue) -> None:
    for key in range(40):
        queue.push([(key, b"%02d" % key)])


def of_any_size(queue: tm.PriorityQueue) -> None:
    """Empty ones among them."""
    for key in range(40):
        queue.push([(key, bytes([key]) * (0, 1, 9, 3_000)[key % 4])])


def with_a_large_one(queue: tm.PriorityQueue) -> None:
    for key in range(40):
        queue.push([(key, bytes(5_000 if key == 30 else 3))])


def with_gaps(queue: tm.PriorityQueue) -> None:
    """Takes and a larger frame lie between the single items."""
    for key in range(30):
        queue.push([(key, b"%d" % key)])
        if key % 5 == 0:
            queue.pop(1)
        if key == 17:
            queue.push([(key, bytes(50)) for _ in range(300)])


@pytest.mark.parametrize(
    ("push", "is_short"),
    [(alike, True), (of_any_size, True), (with_a_large_one, False), (with_gaps, False)],
    ids=["alike", "of any size", "with a large one", "with gaps"],
)
def test_frames_read_together_are_what_each_is(
    push: Callable[[tm.PriorityQueue], None], is_short: bool, tmp_path: Path
) -> None:
    with open_queue(tmp_path) as queue:
        push(queue)
        entries = entries_of(queue)
        reader = queue._core.view.reader
        one_by_one = facts([reader.read(entry) for entry in entries])
        assert facts(reader.read_all(entries)) == one_by_one
        ones = reader.read_ones(entries)
        assert (ones is not None) == is_short
        assert ones is None or facts([ones]) == one_by_one
        shuffled = random.Random(3).sample(entries, len(entries))
        assert facts(reader.read_all(shuffled)) == facts([reader.read(one) for one in shuffled])
        ones = reader.read_ones(shuffled)
        assert ones is None or facts([ones]) == facts([reader.read(one) for one in shuffled])
    with open_queue(tmp_path) as queue:
        # What another handle wrote is validated through and through, one by one.
        assert queue._core.view.reader.read_ones(entries) is None
        assert facts(queue._core.view.reader.read_all(entries)) == one_by_one


def test_items_of_a_typed_queue_are_read_one_by_one(tmp_path: Path) -> None:
    with open_queue(tmp_path, schema=pa.schema([("n", pa.int64())])) as queue:
        for key in range(20):
            queue.push([(key, {"n": key})])
        assert queue._core.view.reader.read_ones(entries_of(queue)) is None
        assert queue.pop(-1).rows() == [(key, {"n": key}) for key in range(20)]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("is_cut", [False, True])
def test_damage_among_frames_that_are_read_together_names_its_own(
    rows: int, is_cut: bool, tmp_path: Path
) -> None:
    with open_queue(tmp_path) as queue:
        for key in range(40):
            queue.push([(10 * key, b"<%03d>" % key)] * rows)
        entry = entries_of(queue)[29]
        segment = queue._core.view.segments[entry.segment].path
        with segment.open("r+b") as file:
            if is_cut:
                file.truncate(entry.offset + 100)
            else:
                file.seek(file.read().index(b"<029>"))
                file.write(b"[")
        popped: list[int] = []

        def pop_all() -> None:
            while True:
                popped.extend(queue.pop(rows).keys.to_pylist())

        with pytest.raises(tm.Corrupt) as caught:
            pop_all()
        assert (caught.value.path, caught.value.offset) == (segment, entry.offset)
        # Frames are read ahead, so that damage may show before what comes before it is handed out.
        assert popped == [10 * key for key in range(40) for _ in range(rows)][: len(popped)]
    with open_queue(tmp_path, on_corruption="continue") as queue:
        found = queue.pop(-1).keys.to_pylist()
        assert set(found) >= {10 * key for key in range(29)} - set(popped)
        assert 290 not in found


@pytest.mark.parametrize("damaged", range(1, 12))
def test_all_that_comes_before_damage_is_handed_out(damaged: int, tmp_path: Path) -> None:
    """However many frames are read ahead, and whichever of them is damaged."""
    with open_queue(tmp_path) as queue:
        for key in range(20):
            queue.push([(key, b"<%03d>" % key)])
        (segment,) = (tmp_path / "journal").glob("*.segment")
        with segment.open("r+b") as file:
            file.seek(file.read().index(b"<%03d>" % damaged))
            file.write(b"[")
        popped: list[int] = []
        for _ in range(40):
            with suppress(tm.Corrupt):
                popped += queue.pop().keys.to_pylist()
        assert popped == list(range(damaged))


def test_nothing_is_lost_where_all_of_some_frames_is_deleted(tmp_path: Path) -> None:
    """What two deletes leave nothing of is only seen once it is read, behind windows that stand."""
    with open_queue(tmp_path) as queue:
        for start in range(0, 100, 10):
            queue.push([(start + key, b"") for key in range(10)])
        assert queue.pop(5).keys.to_pylist() == list(range(5))
        for start in range(20, 90, 10):
            assert queue.delete(start, start + 4) == queue.delete(start + 5, start + 9) == 5
        left = [*range(5, 20), *range(90, 100)]
        assert queue.peek(60).keys.to_pylist() == left
        assert queue.pop(60).keys.to_pylist() == left


@pytest.mark.parametrize("rows", [1, 4])
def test_pops_of_any_size_take_small_frames_in_order(rows: int, tmp_path: Path) -> None:
    draw = random.Random(rows)
    model: list[tuple[int, bytes]] = []
    with open_queue(tmp_path) as queue:
        audit = queue.fork("audit")
        for number in range(1_500):
            pairs = sorted((draw.randrange(5_000), b"%d" % number) for _ in range(rows))
            queue.push(pairs)
            model += pairs
            model.sort(key=lambda pair: pair[0])
            if draw.random() < 0.1:
                count = draw.choice([1, 3, 40])
                assert queue.pop(count).rows() == model[:count]
                del model[:count]
            if draw.random() < 0.01:
                low = draw.randrange(5_000)
                queue.delete(low, low + 50)
                model = [pair for pair in model if not low <= pair[0] <= low + 50]
        while model:
            count = draw.choice([1, 2, 7, 300])
            assert queue.pop(count).rows() == model[:count]
            del model[:count]
        assert len(queue) == 0
        keys = audit.pop(-1).keys.to_pylist()
        assert len(keys) == 1_500 * rows
        assert keys == sorted(keys)


@given(ranges, ranges, st.integers(1, 9), st.integers(1, 5_000))
def test_frames_in_order_come_until_one_overlaps_the_next(
    known: list[tuple[int, int]], later: list[tuple[int, int]], frames_max: int, bytes_max: int
) -> None:
    frames = StoredFrames()
    for start, length in known or [(5, 2)]:
        frames.push([start, start + length])
    pending = Pending(frames.all())
    entries = frames.entries.copy()
    pending.push_all([source_of(frames.push([start, start + length])) for start, length in later])
    entries = sorted(frames.entries, key=lambda entry: (entry.key_min, entry.seq_min))
    while pending:
        found = [source.entry for source in pending.pop_in_order(frames_max, bytes_max)]
        assert len(found) <= frames_max
        assert sum(entry.length for entry in found[:-1]) < bytes_max
        expected = []
        for entry, after in zip(entries, [*entries[1:], None], strict=True):
            if after and (entry.key_max, entry.seq_max) >= (after.key_min, after.seq_min):
                break
            expected.append(entry)
        assert found == expected[: len(found)]
        is_full = len(found) == frames_max or sum(one.length for one in found) >= bytes_max
        assert is_full or found == expected
        del entries[: len(found)]
        if not found:
            assert pending.pop().entry == entries.pop(0)
    assert not entries
    assert len(pending) == 0


def test_frames_of_single_items_are_loaded_in_one_go() -> None:
    frames = StoredFrames()
    for key in range(200):
        frames.push([key])
    loads: list[int] = []

    def load_ones(entries: list[Entry]) -> Run:
        loads.append(len(entries))
        runs = [frames.runs[frames.entries.index(entry)] for entry in entries]
        return Run(
            pa.concat_batches([run.body for run in runs]),
            entries[0].seq_min,
            0,
            entries[-1].seq_max,
        )

    merge = Merge(frames.all(), frames.load, load_ones=load_ones)
    found: list[int] = []
    while (choice := merge.choose(3, INT64_MAX)) is not None:
        merge.advance(choice)
        found += choice.batch.keys.to_pylist()
    assert found == list(range(200))
    assert loads == [2, 4, 8, 16, 32, 64, 64, 9]


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize(("rows", "size"), [(1, 40), (1, 15_000), (2, 3_000), (2, 40)])
def test_a_row_that_is_kept_holds_little_of_others(
    rows: int, size: int, is_reopened: bool, tmp_path: Path
) -> None:
    queue = open_queue(tmp_path)
    for key in range(100):
        queue.push([(key, bytes(10_000_000 if key == 80 else size)) for _ in range(rows)])
    if is_reopened:
        queue.close()
        queue = open_queue(tmp_path)
    kept = [queue.pop(rows) for _ in range(100)]
    assert [batch.keys.to_pylist() for batch in kept] == [[key] * rows for key in range(100)]
    held = [batch.to_arrow().get_total_buffer_size() for batch in kept]
    assert max(held[:80] + held[81:]) < max(2 * rows * size, 300_000)
    queue.close()


def test_far_frames_are_not_read_with_their_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies between is read for nothing up to some KB, and not beyond."""
    asked: list[tuple[int, int]] = []
    real = FrameReader._read_neighbours

    def counted(reader: FrameReader, entries: list[Entry], lengths: list[int]) -> object:
        asked.append((entries[0].key_min, sum(lengths)))
        return real(reader, entries, lengths)

    monkeypatch.setattr(FrameReader, "_read_neighbours", counted)
    with open_queue(tmp_path) as queue:
        for key in range(10):
            queue.push([(key, b"a"), (key, b"b")])
            queue.push([(1_000 + key, bytes(20_000)), (1_000 + key, b"")])
        assert queue.pop(20).keys.to_pylist() == [key for key in range(10) for _ in range(2)]
    small = [length for key, length in asked if key < 1_000]
    assert len(small) == 10
    assert max(small) < 1_000
