"""Each test of the suite runs once for every implementation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files.fake_clock import FakeClock
from tests.log.contract.implementations import IMPLEMENTATIONS, Bench, Implementation, OnMariaDB
from tidemill.log.contract import LogStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=IMPLEMENTATIONS, ids=str)
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Bench]:
    implementation: Implementation | OnMariaDB = request.param
    if isinstance(implementation, OnMariaDB):
        with implementation.start(request, clock) as bench:
            yield bench
    else:
        with implementation.start(tmp_path, clock) as bench:
            yield bench


@pytest.fixture
def store(bench: Bench) -> LogStore:
    return bench.open()
