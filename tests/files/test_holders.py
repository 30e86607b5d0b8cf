"""Which segments hold which bucket, few or many, against a plain set of pairs."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.files.index import holders
from tidemill.files.index.holders import Holders
from tidemill.limits import INT64_MAX

BUCKETS = st.integers(-12, 12)
SEGMENTS = st.integers(1, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), BUCKETS, SEGMENTS),
        st.tuples(st.just("drop"), st.just(0), SEGMENTS),
    ),
    max_size=80,
)


@settings(max_examples=300)
@given(st.dictionaries(SEGMENTS, st.sets(BUCKETS)), STEPS, st.integers(1, 30))
def test_holders_know_what_a_set_of_pairs_knows(
    given_at_first: dict[int, set[int]], steps: list[tuple[str, int, int]], few_max: int
) -> None:
    with patch.object(holders, "_FEW_MAX", few_max):
        found = Holders((segment, sorted(buckets)) for segment, buckets in given_at_first.items())
        pairs = {(bucket, one) for one, buckets in given_at_first.items() for bucket in buckets}
        _check(found, pairs)
        for step, bucket, segment in steps:
            if step == "hold":
                found.hold(bucket, segment)
                pairs.add((bucket, segment))
            else:
                found.drop(segment)
                pairs = {pair for pair in pairs if pair[1] != segment}
            _check(found, pairs)


def _check(found: Holders, pairs: set[tuple[int, int]]) -> None:
    buckets = sorted({bucket for bucket, _ in pairs})
    assert len(found) == len(buckets)
    assert found.segments() == sorted({segment for _, segment in pairs})
    for bucket in range(-13, 14):
        assert found.of(bucket) == sorted(one for other, one in pairs if other == bucket)
        following = [other for other in buckets if other >= bucket]
        assert found.next_bucket(bucket) == (following[0] if following else None)
    assert found.buckets(-5, 5) == [bucket for bucket in buckets if -5 <= bucket <= 5]


def test_a_million_buckets_take_little_memory() -> None:
    tracemalloc.start()
    try:
        found = Holders(
            (number, list(range(number * 10_000, (number + 1) * 10_000))) for number in range(100)
        )
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 1_000_000
    # Two columns, and the few that have not moved yet.
    assert held < 40 * 2**20


def test_behind_the_greatest_bucket_of_many_there_is_none() -> None:
    greatest = [INT64_MAX - 1, INT64_MAX]
    found = Holders([(1, [*range(10_000), *greatest])])
    assert found.next_bucket(INT64_MAX) == INT64_MAX
    assert found.next_bucket(INT64_MAX + 1) is None


def test_an_end_of_many_buckets_up_to_the_greatest_is_moved_to_its_end(tmp_path: Path) -> None:
    options: dict[str, Any] = {"bucket": tm.Width(1), "sync": "none"}
    with (
        tm.PriorityQueue(tmp_path / "source", **options) as source,
        tm.PriorityQueue(tmp_path / "target") as target,
    ):
        source.push([(INT64_MAX, b"never"), (INT64_MAX - 1, b"hardly ever")])
        source.push([(key, b"") for key in range(5000)])
        assert source.shovel(target) == 5002
        assert target.pop(-1).rows()[-1] == (INT64_MAX, b"never")
