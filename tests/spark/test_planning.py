"""Rows divided among tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.batch import Layout
from tidemill.spark.source.planning import plan

frames = st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 10**8)), max_size=40)


def laid_out(sizes: list[tuple[int, int]], first: int) -> Layout:
    rows = np.array([rows for rows, _ in sizes], np.int64)
    firsts = first + np.cumsum(rows) - rows
    return Layout(firsts, rows, np.array([size for _, size in sizes], np.int64))


@given(
    frames,
    st.integers(1, 10**12),
    st.integers(0, 10_000),
    st.integers(0, 60_000),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 10_000),
)
def test_every_row_is_in_one_task_and_the_options_hold(
    sizes: list[tuple[int, int]],
    first: int,
    start_behind: int,
    length: int,
    tasks_min: int | None,
    task_rows_max: int | None,
) -> None:
    layout = laid_out(sizes, first)
    start, end = first + start_behind, first + start_behind + length
    ranges = plan(layout, start, end, tasks_min=tasks_min, task_rows_max=task_rows_max)
    edges = [start, *(high for _, high in ranges)]
    assert [low for low, _ in ranges] == edges[:-1]
    assert edges[-1] == end
    assert all(low < high for low, high in ranges)
    if task_rows_max is not None:
        assert all(high - low <= task_rows_max for low, high in ranges)
    assert len(ranges) >= min(tasks_min or 1, length)


@given(frames.filter(lambda sizes: len(sizes) > 0), st.integers(2, 20))
def test_tasks_are_about_equal(sizes: list[tuple[int, int]], tasks: int) -> None:
    layout = laid_out(sizes, 1)
    total = int(layout.rows.sum())
    if total < 100 * tasks:
        return
    ranges = plan(layout, 1, total + 1, tasks_min=tasks)
    weights = layout.rows / total + layout.sizes / max(int(layout.sizes.sum()), 1)
    ends = np.append(layout.firsts, total + 1)
    before = np.interp(
        [low for low, _ in ranges] + [total + 1], ends, np.append(0, weights.cumsum())
    )
    shares = np.diff(before) / weights.sum()
    # A cut moves by a quarter of a share at most, and to the next row.
    row = float((weights / layout.rows).max()) / weights.sum()
    assert shares.max() <= 1.5 / len(ranges) + 2 * row


def test_a_task_begins_where_a_frame_does() -> None:
    layout = laid_out([(1_000, 40_000)] * 10, 1)
    assert plan(layout, 1, 10_001, tasks_min=5) == [
        (1, 2_001),
        (2_001, 4_001),
        (4_001, 6_001),
        (6_001, 8_001),
        (8_001, 10_001),
    ]


def test_large_rows_weigh_as_many_small_ones() -> None:
    # The first frame has a tenth of the rows and nearly all of the bytes.
    layout = laid_out([(100, 10**9), (900, 10_000)], 1)
    ranges = plan(layout, 1, 1_001, tasks_min=4)
    assert sum(low < 100 for low, _ in ranges) > sum(low >= 101 for low, _ in ranges)


@pytest.mark.parametrize("length", [0, 1])
def test_nothing_and_one_row(length: int) -> None:
    layout = laid_out([(1, 10)] * length, 1)
    assert plan(layout, 1, 1 + length, tasks_min=8) == [(1, 2)] * length
