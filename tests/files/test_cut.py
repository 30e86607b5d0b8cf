"""Cuts against brute force: what is covered never depends on how they are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import Corrupt
from tidemill.files.format.frame_table import ENTRY, FrameList
from tidemill.files.state.cut import Cut, Cuts, cover_all, pack_cut, unpack_cut
from tidemill.limits import INT64_MAX, INT64_MIN

numbers = st.integers(-6, 6)
any_key = st.one_of(numbers, st.sampled_from([INT64_MIN, INT64_MAX]))


def covers(cut: Cut, key: int, seq: int) -> bool:
    """The definition, word for word."""
    return seq <= cut.arrived and cut.low <= key and (key, seq) <= (cut.high, cut.seq)


@st.composite
def histories(draw: st.DrawFn) -> list[Cut]:
    """Cuts as a fork makes them: each behind the others, `arrived` never falling."""
    cuts = []
    place = arrived = 0
    for _ in range(draw(st.integers(0, 8))):
        place += draw(st.integers(1, 3))
        arrived += draw(st.integers(0, 4))
        high = draw(any_key)
        if draw(st.booleans()):
            cuts.append(Cut(place, arrived, INT64_MIN, high, draw(st.integers(0, 20))))
        else:
            low = draw(any_key.filter(high.__ge__))
            cuts.append(Cut(place, arrived, low, high, INT64_MAX))
    return cuts


@st.composite
def frames(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """(place, rows in order) of a frame whose keys rise and whose seqs follow one another."""
    keys = sorted(draw(st.lists(any_key, min_size=1, max_size=5)))
    first = draw(st.integers(1, 20))
    return draw(st.integers(0, 24)), [(key, first + at) for at, key in enumerate(keys)]


def box(rows: list[tuple[int, int]]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(least and greatest key, least and greatest seq)."""
    return (rows[0][0], rows[-1][0]), (rows[0][1], rows[-1][1])


def listed(many: list[tuple[int, list[tuple[int, int]]]]) -> FrameList:
    """The frames as the index has them."""
    table = np.zeros(len(many), ENTRY)
    for at, (place, rows) in enumerate(many):
        (table["key_min"][at], table["key_max"][at]), seqs = box(rows)
        table["seq_min"][at], table["seq_max"][at] = seqs
        table["offset"][at] = place
    return FrameList(table, np.zeros(len(many), np.int64))


def brute(cuts: list[Cut], place: int, rows: list[tuple[int, int]]) -> list[bool]:
    """Which rows any cut behind the frame covers."""
    return [any(cut.place > place and covers(cut, *row) for cut in cuts) for row in rows]


@given(histories(), st.integers(0, 30))
def test_no_cut_reaches_beyond_what_is_said_to_be_their_reach(history: list[Cut], seq: int) -> None:
    cuts = Cuts()
    for cut in history:
        cuts.add(cut)
    reach = cuts.reach(seq)
    made_since = [(cut.high, cut.seq) for cut in history if cut.arrived >= seq]
    assert reach == max(made_since, default=(INT64_MIN, 0))


@given(histories(), frames())
def test_the_cuts_that_are_kept_cover_what_all_of_them_covered(
    cuts: list[Cut], frame: tuple[int, list[tuple[int, int]]]
) -> None:
    place, rows = frame
    touching = Cuts(tuple(cuts)).touching(place, *box(rows))
    assert brute(touching, place, rows) == brute(cuts, place, rows)


@given(histories(), frames())
def test_no_cut_that_cannot_touch_a_frame_is_named(
    cuts: list[Cut], frame: tuple[int, list[tuple[int, int]]]
) -> None:
    place, rows = frame
    for cut in Cuts(tuple(cuts)).touching(place, *box(rows)):
        assert cut.touches_box(place, *box(rows))


@given(histories(), st.lists(frames(), max_size=6))
def test_frames_are_touched_if_a_cut_is_named_for_them(
    cuts: list[Cut], many: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    kept = Cuts(tuple(cuts))
    named = [bool(kept.touching(place, *box(rows))) for place, rows in many]
    assert kept.touched(listed(many)).tolist() == named


@given(histories(), st.lists(frames(), max_size=6))
def test_a_frame_counts_as_covered_only_if_every_row_is(
    cuts: list[Cut], many: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    found = Cuts(tuple(cuts)).covered(listed(many))
    for is_covered, (place, rows) in zip(found.tolist(), many, strict=True):
        if is_covered:
            assert all(brute(cuts, place, rows))
        # The other way round, one cut that covers the whole frame is always found.
        keys, seqs = box(rows)
        whole = any(
            cut.place > place
            and cut.arrived >= seqs[1]
            and cut.low <= keys[0]
            and (cut.high, cut.seq) >= (keys[1], seqs[1])
            for cut in cuts
        )
        assert is_covered == whole


@given(histories(), frames())
def test_a_mask_is_the_definition(
    cuts: list[Cut], frame: tuple[int, list[tuple[int, int]]]
) -> None:
    _, rows = frame
    keys = np.array([key for key, _ in rows], np.int64)
    seqs = np.array([seq for _, seq in rows], np.int64)
    for cut in cuts:
        assert cut.mask(keys, seqs).tolist() == [covers(cut, *row) for row in rows]


@given(histories())
def test_keeping_all_cuts_and_restoring_them_changes_nothing(cuts: list[Cut]) -> None:
    kept = Cuts(tuple(cuts))
    everything = kept.all()
    assert Cuts(tuple(everything)).all() == everything
    assert kept.copy().all() == everything
    kept.keep_if([True] * len(everything))
    assert kept.all() == everything


@given(histories())
def test_a_copy_goes_its_own_way(cuts: list[Cut]) -> None:
    parent = Cuts(tuple(cuts))
    before = parent.all()
    twin = parent.copy()
    twin.add(cover_all(1_000, 1_000))
    assert parent.all() == before
    assert len(twin) == 1


def test_popping_the_same_few_keys_for_ever_keeps_few_cuts() -> None:
    cuts = Cuts()
    random = np.random.default_rng(1)
    for number in range(1, 5_000):
        cuts.add(Cut(number, number, INT64_MIN, int(random.integers(0, 11)), number))
    assert len(cuts) <= 11


def test_the_cut_of_a_clear_covers_everything_that_arrived_and_nothing_later() -> None:
    cut = cover_all(9, 5)
    keys = np.array([INT64_MIN, 0, INT64_MAX, 0])
    assert cut.mask(keys, np.array([1, 3, 5, 6])).tolist() == [True, True, True, False]


@given(st.integers(0, 2**32 - 1), any_key, any_key, st.integers(0, INT64_MAX))
def test_a_cut_survives_being_written_down(fork: int, low: int, high: int, rows: int) -> None:
    cut = Cut(7, INT64_MAX, low, high, 5)
    assert unpack_cut(pack_cut(fork, cut, rows), 7) == (fork, cut, rows)


@pytest.mark.parametrize("rows", [-1, 4, INT64_MAX])
def test_a_cut_of_more_items_than_had_arrived_is_corrupt(rows: int) -> None:
    with pytest.raises(Corrupt, match="of the 3 items"):
        unpack_cut(pack_cut(0, Cut(7, 3, 0, 9, 5), rows), 7)


def test_a_cut_of_the_wrong_length_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        unpack_cut(b"short", 0)
