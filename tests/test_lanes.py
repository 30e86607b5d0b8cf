"""Each worker of a parallel run begins with tests of its own kind, and none is lost or doubled."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.lanes import arranged


class _Test:
    """As much of a collected test as its place depends on."""

    def __init__(self, nodeid: str, *fixturenames: str, slow: bool = True) -> None:
        self.nodeid = nodeid
        self.fixturenames = fixturenames
        self._slow = slow

    def get_closest_marker(self, name: str) -> object:
        return name if self._slow and name == "slow" else None


TESTS = [
    *(_Test(f"tests/aio/{number}", slow=False) for number in range(40)),
    _Test("tests/docs/page"),
    *(_Test(f"tests/faults/{number}") for number in range(8)),
    *(_Test(f"tests/log/{number}") for number in range(5)),
    _Test("tests/spark/1", "tmp_path", "cluster_spark"),
    _Test("tests/spark/2", "spark"),
    _Test("tests/spark/3", "spark", slow=False),
    _Test("tests/spark/4", "half_cluster_spark", "cluster"),
    _Test("tests/spark/5", "spark"),
]


def _lanes(workers: int, tests: list[_Test] = TESTS) -> list[list[str]]:
    """The ids that each worker gets, as xdist deals them out."""
    ids = [test.nodeid for test in arranged(cast(Any, tests), workers)]
    assert sorted(ids) == sorted(test.nodeid for test in tests)
    lanes = []
    for number in range(workers):
        length = len(ids) // (workers - number)
        lanes.append(ids[:length])
        del ids[:length]
    return lanes


def test_a_worker_for_each_kind() -> None:
    spark, faults, others = _lanes(3)
    numbers = [2, 5, 1, 4]  # by session
    assert spark[:5] == ["tests/docs/page", *(f"tests/spark/{number}" for number in numbers)]
    assert faults[:8] == [f"tests/faults/{number}" for number in range(8)]
    assert others[:5] == [f"tests/log/{number}" for number in range(5)]
    for quick in (spark[5:], faults[8:], others[5:]):
        assert all(test.startswith("tests/aio/") or test == "tests/spark/3" for test in quick)


@pytest.mark.parametrize("workers", [2, 4, 5, 8])
def test_any_number_of_workers_begins_with_slow_tests(workers: int) -> None:
    lanes = _lanes(workers)
    assert lanes[0][0] == "tests/docs/page"
    for lane in lanes[1:]:
        assert lane[0].startswith(("tests/faults/", "tests/log/"))


def test_a_run_without_slow_tests_or_workers_stays_as_it_is() -> None:
    quick = [test for test in TESTS if not test.get_closest_marker("slow")]
    for tests, workers in ((quick, 3), (TESTS, 1)):
        assert list(map(id, arranged(cast(Any, tests), workers))) == list(map(id, tests))
