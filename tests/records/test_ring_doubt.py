"""A write that may still land is in doubt, whatever becomes of the next attempt."""

from __future__ import annotations

import threading
import time

import pytest

import tidemill as tm
from tidemill.records.memory import MemoryStore
from tidemill.records.protocol.metadata import decode_metadata
from tidemill.records.ring import Ring

OPERATION = "order-42"


class FullThen(MemoryStore):
    """A store that takes long for a commit, and refuses those that follow as `refusal` says: what
    it took comes when it is `late`.
    """

    refusal: tm.TidemillError | None = None
    late: tuple[str, bytes, int] | None = None

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        if self.refusal is None or not name.endswith(":ring"):
            return super().replace(name, data, generation)
        if self.late is not None:
            raise self.refusal
        if decode_metadata(data).grant is not None:
            return super().replace(name, data, generation)
        self.late = (name, data, generation)
        raise tm.OutcomeUnknown("the answer was lost")

    def delete(self, name: str, generation: int) -> bool:
        if self.refusal is None:
            return super().delete(name, generation)
        if self.late is not None:
            raise self.refusal
        self.late = (name, b"", generation)
        raise tm.OutcomeUnknown("the answer was lost")

    def arrive(self) -> None:
        """Do what was thought to be lost."""
        assert self.late is not None
        self.refusal = None
        assert self.replace(*self.late) is not None


@pytest.fixture
def store() -> FullThen:
    return FullThen()


@pytest.fixture
def ring(store: FullThen) -> Ring:
    ring = Ring.on(store, "alerts", capacity=5)
    ring.enqueue(b"precious")
    return ring


REFUSALS = (tm.DiskFull("no room"), tm.NoAccess("a replica"), tm.Closed("closed"))


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda one: type(one).__name__)
def test_entries_whose_commit_may_still_land_are_told_though_the_next_attempt_is_refused(
    store: FullThen, ring: Ring, refusal: tm.TidemillError
) -> None:
    store.refusal = refusal
    with pytest.raises(tm.OutcomeUnknown, match="ask for its outcome") as raised:
        ring.dequeue(operation_id=OPERATION)
    assert raised.value.operation_id == OPERATION
    assert list(raised.value.entries) == [(0, b"precious")]
    assert raised.value.__cause__ is refusal
    store.arrive()
    assert ring.outcome(OPERATION) == tm.Outcome("committed", "dequeue", 0, 1)


def test_an_entry_whose_commit_may_still_land_is_in_doubt_though_the_next_attempt_is_refused(
    store: FullThen, ring: Ring
) -> None:
    store.refusal = tm.DiskFull("no room")
    with pytest.raises(tm.OutcomeUnknown, match="no room") as raised:
        ring.enqueue(b"second", operation_id=OPERATION)
    assert raised.value.operation_id == OPERATION
    store.arrive()
    assert ring.outcome(OPERATION).state == "committed"
    assert ring.info().length == 2


class ClosedMeanwhile(MemoryStore):
    """A store that never answers a commit; at the second the ring is closed by another thread."""

    ring: Ring | None = None
    commits = 0

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        if self.ring is None or decode_metadata(data).grant is not None:
            return super().replace(name, data, generation)
        self.commits += 1
        if self.commits == 2:
            threading.Thread(target=self.ring.close).start()
            deadline_s = time.monotonic() + 30
            while not self.ring._core.driver._is_closed:
                assert time.monotonic() < deadline_s
                time.sleep(0.001)
        raise tm.OutcomeUnknown("no answer")


def test_a_commit_that_may_still_land_is_in_doubt_though_the_ring_is_closed_meanwhile() -> None:
    store = ClosedMeanwhile()
    ring = Ring.on(store, "alerts", capacity=5, lock_wait_s=60)
    group = ring.group("audit", start="latest")
    store.ring = ring
    with pytest.raises(tm.OutcomeUnknown, match="was closed") as raised:
        group.remove()
    assert raised.value.operation_id is not None


def test_a_removal_that_may_still_land_is_in_doubt_though_the_next_attempt_is_refused(
    store: FullThen, ring: Ring
) -> None:
    store.refusal = tm.NoAccess("a replica")
    with pytest.raises(tm.OutcomeUnknown) as raised:
        ring.remove()
    assert raised.value.__cause__ is store.refusal
