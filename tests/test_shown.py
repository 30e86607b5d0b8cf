"""Whatever takes numbers refuses one of more digits than Python shows like any other."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm

HUGE = 10**5_000

OF_A_LOG: dict[str, Callable[[Any], object]] = {
    "rows to read": lambda log: log.read(1, rows_max=-HUGE),
    "where to read": lambda log: log.read(-HUGE),
    "rows of a batch": lambda log: log.receiver("one", rows_max=-HUGE),
    "rows read ahead": lambda log: log.receiver("one", prefetch_bytes=-HUGE),
    "where to receive": lambda log: log.receiver("one", start=-HUGE),
    "a consumer": lambda log: log.receiver(HUGE),
    "a row that is acked": lambda log: log.receiver("one").ack(HUGE),
    "the last row that is acked": lambda log: log.receiver("one").ack(1, -HUGE),
    "rows to trim": lambda log: log.trim(before=-HUGE),
    "an age": lambda log: log.trim(older_than=HUGE),
    "bytes to keep": lambda log: log.trim(bytes_max=-HUGE),
    "bytes on their way": lambda log: log.publisher(pending_bytes_max=-HUGE),
    "a number of a producer": lambda log: log.publisher(producer="p").send([b"a"], number=HUGE),
}
OF_A_RING: dict[str, Callable[[Any], object]] = {
    "an offset": lambda ring: ring.get(-HUGE),
    "offsets": lambda ring: ring.get_many(0, -HUGE),
    "how many": lambda ring: ring.dequeue_many(-HUGE),
    "an operation": lambda ring: ring.enqueue(b"a", operation_id=HUGE),
    "a start": lambda ring: ring.group("one", start=HUGE),
    "a capacity": lambda ring: tm.Ring(f"memory:{uuid.uuid4()}", capacity=HUGE),
    "slots": lambda ring: tm.Ring(f"memory:{uuid.uuid4()}", capacity=3, slots_per_record=HUGE),
    "milliseconds": lambda ring: tm.Ring(f"memory:{uuid.uuid4()}", capacity=3, lock_ms=HUGE),
}
OF_COUNTERS: dict[str, Callable[[Any], object]] = {
    "a delta": lambda counters: counters.upsert("visits", HUGE),
    "deltas": lambda counters: counters.upsert_many(["visits"], HUGE),
    "a name": lambda counters: counters.get(HUGE),
    "an expiry": lambda counters: counters.update_ttl("visits", HUGE),
    "a buffer": lambda counters: tm.Counters("node-2", buffer_max=-HUGE),
    "an interval": lambda counters: tm.Counters("node-2", sync_ms=HUGE),
}


@pytest.mark.parametrize("call", OF_A_LOG.values(), ids=OF_A_LOG.keys())
def test_a_log_refuses_what_cannot_be_shown(call: Callable[[Any], object]) -> None:
    with tm.Log(f"memory:{uuid.uuid4()}") as log, pytest.raises(tm.TidemillError):
        call(log)


@pytest.mark.parametrize("call", OF_A_RING.values(), ids=OF_A_RING.keys())
def test_a_ring_refuses_what_cannot_be_shown(call: Callable[[Any], object]) -> None:
    with tm.Ring(f"memory:{uuid.uuid4()}", capacity=3) as ring, pytest.raises(tm.TidemillError):
        call(ring)


@pytest.mark.parametrize("call", OF_COUNTERS.values(), ids=OF_COUNTERS.keys())
def test_counters_refuse_what_cannot_be_shown(
    call: Callable[[Any], object], tmp_path: Path
) -> None:
    with tm.Counters("node-1", path=tmp_path) as counters, pytest.raises(tm.TidemillError):
        call(counters)
