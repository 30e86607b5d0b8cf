"""The order of tests in a parallel run: which worker begins with what.

A run hands each worker the same number of tests, one behind the other as they were collected; who
is done takes from the end of the longest list. Tests of Spark mostly wait, those of faults keep a
core busy, so each kind gets a lane of its own, at whose end quick tests wait to be taken:

    first worker    │ Spark, session by session   │ quick
    others          │ crash states, flips, errors │ quick
    last worker     │ servers, kills, memory      │ quick

So slow tests begin first and never last, and mostly one worker starts Spark and its cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

# Whatever needs another session than the test before it waits for one to end and another to start.
_SESSIONS = ("spark", "free_cluster", "cluster_spark", "half_cluster_spark", "bare_spark")


def arranged(tests: Iterable[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in lanes, one for each of so many workers, each as long as the others."""
    tests = list(tests)
    slow = [test for test in tests if test.get_closest_marker("slow")]
    if workers < 2 or not slow:
        return tests
    lanes: list[list[pytest.Item]] = [[] for _ in range(workers)]
    lanes[0] = sorted([test for test in slow if _is_spark(test)], key=_session)
    faults = [test for test in slow if test.nodeid.startswith("tests/faults/")]
    busy = max(workers - 2, 1)
    for at in range(busy):
        lanes[1 + at] += faults[at::busy]
    taken = {*lanes[0], *faults}
    lanes[-1] += [test for test in slow if test not in taken]
    quick = [test for test in tests if not test.get_closest_marker("slow")]
    return _filled(lanes, quick)


def _filled(lanes: list[list[pytest.Item]], quick: list[pytest.Item]) -> list[pytest.Item]:
    """The lanes one behind the other, made equally long; modules stay together."""
    left = sum(map(len, lanes)) + len(quick)
    for number, lane in enumerate(lanes):
        length = left // (len(lanes) - number)
        room = max(length - len(lane), 0)
        lane.extend(quick[:room])
        del quick[:room]
        left -= len(lane)
    return [test for lane in lanes for test in lane] + quick


def _is_spark(test: pytest.Item) -> bool:
    return test.nodeid.startswith(("tests/spark/", "tests/docs/"))


def _session(test: pytest.Item) -> int:
    """Where among the sessions a test belongs; those that have none come first."""
    asked = getattr(test, "fixturenames", ())
    return next((at for at, name in enumerate(_SESSIONS, 1) if name in asked), 0)
