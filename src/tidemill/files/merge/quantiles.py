"""Where to divide what several runs hold together, by samples: no run is looked through. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemill.files.merge.run import Run

_STRIDE_MIN = 16  # rows of a long run for each sample


def quantiles(runs: Sequence[Run], rows: int, count: int) -> list[tuple[int, int]]:
    """So many rows, or fewer, each a (key, seq), between which the runs hold about `rows` rows.

    Every run gives one row in `stride` as a sample, so that long runs and short ones count alike.
    """
    # What a run has beyond its last sample is not counted, so that samples lie close; short runs
    # would not be counted at all.
    average = sum([len(run) for run in runs]) // len(runs)
    stride = max(min(max(rows // len(runs) // 4, _STRIDE_MIN), average // 2), 1)
    samples = [run.sample(stride) for run in runs if len(run) >= stride]
    total = sum([len(keys) for keys, _ in samples])
    ranks = [max(number * rows // stride, 1) - 1 for number in range(1, count + 1)]
    ranks = sorted({rank for rank in ranks if rank < total})
    if not ranks:
        return []
    keys = np.concatenate([keys for keys, _ in samples])
    seqs = np.concatenate([seqs for _, seqs in samples])
    limits = []
    for rank, key in zip(ranks, np.partition(keys, ranks)[ranks].tolist(), strict=True):
        among = rank - int(np.count_nonzero(keys < key))
        limits.append((key, int(np.partition(seqs[keys == key], among)[among])))
    return limits
