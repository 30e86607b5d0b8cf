"""What a pop would take: some rows of several sorted runs, in order. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tidemill.batch import Batch
from tidemill.files.merge.run import Run, merged


class Choice(NamedTuple):
    """Rows that a pop would take, and how far each run would move."""

    batch: Batch
    rows: int
    last: tuple[int, int]  # (key, seq) of the last one
    moves: list[tuple[Run, int]]


def choice_in(run: Run, start: int, stop: int) -> Choice:
    """Rows [start, stop) of a single run."""
    return Choice(run.batch(start, stop), stop - start, run.row(stop - 1), [(run, stop)])


def choose_from(slices: list[tuple[Run, int, int]], rows: int) -> Choice:
    """The first `rows` rows, in order, of these parts of runs, each given as (run, start, stop)."""
    if len(slices) == 1:
        run, start, stop = slices[0]
        return choice_in(run, start, min(stop, start + rows))
    if _ordered(slices) and sum(stop - start for _, start, stop in slices) <= rows:
        batch = Batch.concat([run.batch(start, stop) for run, start, stop in slices])
        run, _, stop = slices[-1]
        moves = [(run, stop) for run, _, stop in slices]
        return Choice(batch, len(batch), run.row(stop - 1), moves)
    run, order = merged(slices, rows)
    lengths = [stop - start for _, start, stop in slices]
    # Every part gives a prefix of itself, so counting its rows among the chosen ones says how far
    # it moves.
    origin = np.repeat(np.arange(len(slices)), lengths)
    taken = np.bincount(origin[order], minlength=len(slices)).tolist()
    moves = [(part, start + n) for (part, start, _), n in zip(slices, taken, strict=True)]
    return Choice(run.batch(0, run.rows), run.rows, run.last, moves)


def _ordered(slices: list[tuple[Run, int, int]]) -> bool:
    """Whether each part ends before the next begins."""
    return all(
        run.row(stop - 1) < following.row(start)
        for (run, _, stop), (following, start, _) in pairwise(slices)
    )
