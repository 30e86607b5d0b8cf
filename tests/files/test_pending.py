"""Frames that wait to be loaded, and samples of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.files.stored_frames import StoredFrames
from tidemill.files.merge import pending
from tidemill.files.merge.pending import Pending, Source

starts = st.lists(st.integers(0, 300), min_size=1, max_size=80)


@given(starts, st.lists(st.integers(0, 300), max_size=20), st.integers(0, 40), st.integers(0, 300))
def test_a_sample_is_spread_over_the_frames_that_begin_before_a_key(
    known: list[int], later: list[int], popped: int, key: int
) -> None:
    frames = StoredFrames()
    for start in known:
        frames.push([start])
    waiting = Pending(frames.all())
    for start in later:
        entry = frames.push([start])
        waiting.push(Source(entry.key_min, entry.seq_min, entry))
    gone = {waiting.pop().entry for _ in range(min(popped, len(waiting)))}
    within = [one for one in frames.entries if one not in gone and one.key_min <= key]
    assert waiting.count_until(key) == len(within)
    for count in (0, 1, 3, 1_000):
        sample = [source.entry for source in waiting.sample(count, key)]
        assert len(set(sample)) == len(sample)
        assert set(sample) <= set(within)
        assert len(sample) >= min(count, len(within))
        assert len(sample) <= 2 * count
    assert len(waiting) == len(frames.entries) - len(gone)


def test_frames_that_are_not_unpacked_yet_are_in_the_sample_too() -> None:
    frames = StoredFrames()
    for start in range(3 * pending.CHUNK_FRAMES):
        frames.push([start])
    sample = [source.key for source in Pending(frames.all()).sample(6, 10**6)]
    assert sorted(sample)[-1] >= 2 * pending.CHUNK_FRAMES
    assert len(sample) == 6
