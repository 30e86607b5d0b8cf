"""Each test of the suite runs once for every implementation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.files.fake_clock import FakeClock
from tests.log.contract.implementations import (
    IMPLEMENTATIONS,
    AnyImplementation,
    Bench,
    OnPostgres,
    Tiered,
    started,
)
from tidemill.log.contract import LogStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _parameter(implementation: AnyImplementation) -> object:
    marks = [pytest.mark.slow] if isinstance(implementation, (OnPostgres, Tiered)) else []
    if isinstance(implementation, OnPostgres) and implementation.parallelism == 1:
        # One shard is what MySQL shows; several are what a dialect could get wrong.
        marks.append(pytest.mark.soak)
    return pytest.param(implementation, marks=marks, id=str(implementation))


@pytest.fixture(params=map(_parameter, IMPLEMENTATIONS))
def bench(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[Bench]:
    with started(request.param, request, clock) as bench:
        yield bench


@pytest.fixture
def store(bench: Bench) -> LogStore:
    return bench.open()
