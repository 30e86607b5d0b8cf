"""Rows divided among tasks, by frames and evenly by rows and bytes. Pure.

    frames    │ 1 … 900 │ 901 … 1000 │ 1001 … 9000                    │
    tasks     │ 1 … 1000             │ 1001 … 5000   │ 5001 … 9000    │

A task begins where a frame does, as far as that leaves the tasks about equal; a frame that is much
larger than a task's share is read by several, each of which hands on its own rows of it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tidemill.batch import Layout

TASK_BYTES = 64 * 1024 * 1024  # about what a task reads, unless told otherwise
TASK_ROWS = 1_000_000  # ... and how many rows
TASKS_MAX = 100_000
_NEAR = 0.25  # of a share: how far a cut may move to fall between two frames


def plan(
    layout: Layout,
    start: int,
    end: int,
    *,
    tasks_min: int | None = None,
    task_rows_max: int | None = None,
    task_bytes: int = TASK_BYTES,
    task_rows: int = TASK_ROWS,
) -> list[tuple[int, int]]:
    """Ranges [first, last) that together are the rows from `start` up to `end`, in order.

    >>> plan(Layout.of([(1, 500, 9), (501, 500, 9)]), 1, 1001, tasks_min=2)
    [(1, 501), (501, 1001)]
    >>> plan(Layout.of([(1, 1000, 9)]), 1, 1001, task_rows_max=400)
    [(1, 334), (334, 667), (667, 1001)]
    >>> plan(Layout.of([]), 7, 7)
    []
    """
    span = end - start
    if span <= 0:
        return []
    tasks = max(
        1,
        -(-int(layout.sizes.sum()) // task_bytes),
        -(-int(layout.rows.sum()) // task_rows),
        tasks_min or 1,
    )
    cuts = _cuts(layout, start, end, min(tasks, span, TASKS_MAX))
    edges = [start, *cuts, end]
    ranges: list[tuple[int, int]] = []
    for low, high in pairwise(edges):
        parts = -(-(high - low) // task_rows_max) if task_rows_max else 1
        inner = [low + (high - low) * part // parts for part in range(parts + 1)]
        ranges += pairwise(inner)
    return ranges


def _cuts(layout: Layout, start: int, end: int, tasks: int) -> list[int]:
    """Where to divide the rows into so many tasks: increasing, strictly between start and end."""
    if tasks == 1:
        return []
    if not len(layout.firsts):
        layout = Layout.of([(start, end - start, 0)])
    # Where each frame begins and what comes before it, as parts of the whole.
    places = np.clip(layout.firsts, start, end)
    weights = _shares(layout)
    lengths = np.diff(np.append(layout.firsts, max(end, int(layout.firsts[-1]) + 1)))
    inside = np.diff(np.append(places, end))
    weights = weights * inside / np.maximum(lengths, 1)
    before = np.concatenate([[0.0], np.cumsum(weights)])
    places = np.append(places, end)
    if before[-1] <= 0:
        before, places = np.array([0.0, 1.0]), np.array([start, end])
    before /= before[-1]
    share = 1 / tasks
    wanted = np.arange(1, tasks) * share
    cuts = np.interp(wanted, before, places).astype(np.int64)
    # The nearest beginning of a frame, if it is near enough.
    above = np.clip(before.searchsorted(wanted), 1, len(before) - 1)
    nearest = np.where(wanted - before[above - 1] < before[above] - wanted, above - 1, above)
    is_near = np.abs(before[nearest] - wanted) <= _NEAR * share
    cuts = np.where(is_near, places[nearest], cuts)
    # Each task has a row at least, also where all the bytes are in one.
    steps = np.arange(tasks - 1)
    cuts = np.maximum.accumulate(np.maximum(cuts, start + 1) - steps) + steps
    cuts = np.minimum(cuts, end - (tasks - 1) + steps)
    return cuts.tolist()


def _shares(layout: Layout) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What each frame takes of all there is to do, where rows and bytes count alike."""
    rows = layout.rows / max(int(layout.rows.sum()), 1)
    sizes = layout.sizes / max(int(layout.sizes.sum()), 1)
    return rows + sizes
