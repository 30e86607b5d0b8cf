"""Interleaved rounds: every contestant has its turn in each, so that all see the same machine.

    round 1:  ours   floor  peer
    round 2:  floor  peer   ours     the order rotates, so that nobody always follows the same one
    round 3:  peer   ours   floor

A turn gives its figures in seconds per item. Nothing is dropped: a figure is all the time of a turn
over all its items, and the result is the median of the rounds.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Protocol, TypeAlias

from benchmarks.progress import say

Medians: TypeAlias = dict[str, dict[str, float]]  # contestant → metric → seconds


class Contestant(Protocol):
    """Whoever takes turns."""

    @property
    def name(self) -> str: ...

    def turn(self) -> Mapping[str, float]:
        """Prepare fresh data, then time each metric."""

    def close(self) -> None: ...


def interleave(what: str, contestants: Sequence[Contestant], rounds: int) -> Medians:
    """The median of each contestant's metrics; closes the contestants."""
    samples: dict[str, dict[str, list[float]]] = {one.name: {} for one in contestants}
    try:
        for number in range(rounds):
            say(f"{what}: round {number + 1} of {rounds}")
            first = number % len(contestants)
            for contestant in [*contestants[first:], *contestants[:first]]:
                settle()
                for metric, seconds in contestant.turn().items():
                    samples[contestant.name].setdefault(metric, []).append(seconds)
    finally:
        for contestant in contestants:
            contestant.close()
    return {
        name: {metric: median(values) for metric, values in metrics.items()}
        for name, metrics in samples.items()
    }


def settle() -> None:
    """Let nobody pay for the dirty pages and the garbage of the one before."""
    gc.collect()
    os.sync()
