"""Making and opening a ring, with crashes and strangers in the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm
from tests.services.mariadb import MariaDB
from tidemill.limits import NAME_LENGTH_MAX, RING_GROUPS_MAX, RING_OUTCOMES_KEPT
from tidemill.records.memory import MemoryStore
from tidemill.records.protocol import creation
from tidemill.records.protocol.geometry import Geometry
from tidemill.records.protocol.lock import Call
from tidemill.records.protocol.metadata import METADATA_BYTES_MAX, Metadata
from tidemill.records.protocol.requests import (
    CreateMetadata,
    GetBuffers,
    GetMetadata,
    ReplaceMetadata,
    Request,
    Steps,
    WriteBuffers,
)
from tidemill.records.ring import Ring
from tidemill.records.store import Record
from tidemill.shown import shown


def _call() -> Call:
    return Call(b"o" * 16, b"n" * 16, lock_ms=100, patience_s=1.0)


def _perform(store: MemoryStore, request: Request) -> Any:
    name = creation.metadata_name("alerts")
    match request:
        case GetMetadata():
            return store.get(name)
        case CreateMetadata():
            return store.create(name, request.data)
        case ReplaceMetadata():
            return store.replace(name, request.data, request.generation)
        case GetBuffers():
            return store.get_many(request.names)
        case WriteBuffers():
            return store.write_many(request.writes)
    raise AssertionError(request)


def _run(store: MemoryStore, steps: Steps[Any], steps_max: int) -> bool:
    """Do so many steps of it; whether that was all."""
    try:
        request = next(steps)
        for _ in range(steps_max):
            request = steps.send(_perform(store, request))
    except StopIteration:
        return True
    steps.close()
    return False


def _end(store: MemoryStore, steps: Steps[Metadata], request: Request) -> Metadata:
    while True:
        try:
            request = steps.send(_perform(store, request))
        except StopIteration as ended:
            found: Metadata = ended.value
            return found


@pytest.mark.parametrize("buffers", [None, "elsewhere"])
def test_a_crash_at_any_step_of_making_a_ring_leaves_one_that_can_be_opened(
    buffers: str | None,
) -> None:
    crashes = 0
    shape = Geometry.plan(10, 2, 1_000)
    for steps_max in range(10):
        store = MemoryStore()
        made = creation.make_ring("alerts", b"ringring", shape, buffers, _call())
        if _run(store, made, steps_max):
            break
        crashes += 1
        apart = None if buffers is None else (store, buffers)
        ring = Ring.on(store, "alerts", capacity=10, slots_per_record=2, buffers=apart)
        assert ring.enqueue(b"one") == 0
        again = Ring.on(store, "alerts", buffers=apart)
        assert again.capacity == 10
        assert again.dequeue() == (0, b"one")
    assert crashes >= 2


def test_two_who_make_a_ring_at_the_same_time_have_the_same() -> None:
    store = MemoryStore()
    first = creation.make_ring("alerts", b"ring-one", Geometry.plan(10, 2, 1_000), None, _call())
    second = creation.make_ring("alerts", b"ring-two", Geometry.plan(10, 2, 1_000), None, _call())
    requests = [next(first), next(second)]
    found = [_end(store, first, requests[0]), _end(store, second, requests[1])]
    assert found[0].ring == found[1].ring == b"ring-one"


class Unanswered(MemoryStore):
    """A store that gives no answer to writes."""

    attempts = 0

    def create(self, name: str, data: bytes) -> int | None:
        self.attempts += 1
        assert self.attempts < 100, "a store in trouble is besieged"
        raise tm.OutcomeUnknown("no answer")


def test_making_a_ring_whose_writes_are_not_answered_ends_with_patience() -> None:
    store = Unanswered()
    with pytest.raises(tm.OutcomeUnknown, match="whether ring 'alerts' was made"):
        Ring.on(store, "alerts", capacity=10, lock_wait_s=0.1)
    assert store.attempts > 1


def test_a_ring_is_what_it_was_made_as() -> None:
    store = MemoryStore()
    Ring.on(store, "alerts", capacity=10, slots_per_record=4)
    assert Ring.on(store, "alerts").info().slots_per_record == 4
    with pytest.raises(tm.GeometryMismatch, match="a capacity of 10, not of 11"):
        Ring.on(store, "alerts", capacity=11)
    with pytest.raises(tm.GeometryMismatch, match="4 slots to a record, not 5"):
        Ring.on(store, "alerts", slots_per_record=5)


def test_more_slots_than_entries_are_as_many_as_entries() -> None:
    store = MemoryStore()
    assert Ring.on(store, "alerts", capacity=3).info().slots_per_record == 3
    assert Ring.on(store, "alerts", capacity=3, slots_per_record=100).capacity == 3


@pytest.mark.parametrize("capacity", [1, 2, 7, 101])
def test_the_capacity_is_exactly_what_was_asked_for(capacity: int) -> None:
    ring = Ring.on(MemoryStore(), "alerts", capacity=capacity)
    for start in (0, capacity, 2 * capacity):
        assert [ring.enqueue(number) for number in range(capacity)] == list(
            range(start, start + capacity)
        )
        with pytest.raises(tm.QueueFull, match=f"holds {capacity} of {capacity}"):
            ring.enqueue(b"one too many")
        assert [value for _, value in ring.dequeue_many(1_000)] == list(range(capacity))


def test_a_ring_that_is_not_there_is_not_made_without_a_capacity() -> None:
    with pytest.raises(tm.NotAQueue, match="give a capacity to make it"):
        Ring.on(MemoryStore(), "alerts")


def test_a_record_of_somebody_else_is_not_taken_for_a_ring() -> None:
    store = MemoryStore()
    store.create("alerts:ring", b"shopping list")
    with pytest.raises(tm.Corrupt, match="does not look like that of a ring"):
        Ring.on(store, "alerts", capacity=10)
    kept = store.get("alerts:ring")
    assert kept is not None
    assert kept.data == b"shopping list"


def test_buffers_in_another_store_are_found_and_no_others() -> None:
    store, buffers = MemoryStore(), MemoryStore("elsewhere")
    ring = Ring.on(store, "alerts", capacity=10, buffers=(buffers, "data"))
    ring.enqueue_many([b"one", {"two": 2}])
    assert list(store._records) == ["alerts:ring"]
    assert Ring.on(store, "alerts", buffers=(buffers, "data")).dequeue() == (0, b"one")
    with pytest.raises(tm.GeometryMismatch, match="in another store: name that as `buffers`"):
        Ring.on(store, "alerts")
    with pytest.raises(tm.GeometryMismatch, match="than the one given as `buffers`"):
        Ring.on(store, "alerts", buffers=(MemoryStore(), "data"))
    Ring.on(store, "other", capacity=10)
    with pytest.raises(tm.GeometryMismatch, match="open it without `buffers`"):
        Ring.on(store, "other", buffers=(buffers, "data"))


class Overtaken(MemoryStore):
    """A store of metadata in which something happens right after it was first read."""

    meanwhile: Callable[[], object] | None = None

    def get(self, name: str) -> Record | None:
        found = super().get(name)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return found


def test_a_ring_that_is_removed_while_it_is_opened_is_gone_or_made_anew() -> None:
    store, buffers = Overtaken(), MemoryStore("elsewhere")
    apart = (buffers, "data")

    def make() -> Ring:
        return Ring.on(store, "alerts", capacity=10, buffers=apart)

    def make_another() -> None:
        ring.remove()
        make().enqueue(b"another")

    ring = make()
    store.meanwhile = ring.remove
    with pytest.raises(tm.NotAQueue, match="there is no ring"):
        Ring.on(store, "alerts", buffers=apart)
    ring = make()
    store.meanwhile = ring.remove
    ring = make()
    assert ring.enqueue(b"one") == 0
    store.meanwhile = make_another
    assert Ring.on(store, "alerts", buffers=apart).dequeue() == (0, b"another")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity must be a whole number from 1"),
        ({"capacity": True}, "capacity must be a whole number from 1"),
        ({"capacity": 2.5}, "capacity must be a whole number from 1"),
        ({"capacity": 10, "slots_per_record": 0}, "slots_per_record must be a whole number"),
        ({"capacity": 10, "lock_ms": 0}, "lock_ms is from 1"),
        ({"capacity": 10, "lock_ms": "soon"}, "lock_ms is a whole number"),
        ({"capacity": 10, "lock_wait_s": -1}, "lock_wait_s is a number of seconds from 0 on"),
        ({"capacity": 10, "lock_wait_s": math.nan}, "lock_wait_s is a number of seconds"),
        ({"capacity": 10, "lock_wait_s": "soon"}, "lock_wait_s is a number of seconds"),
        ({"capacity": 10**6, "slots_per_record": 50_000}, "leaves no room for an entry"),
    ],
)
def test_measures_that_make_no_sense_are_refused_and_leave_no_trace(
    options: dict[str, Any], message: str
) -> None:
    store = MemoryStore(record_bytes_max=10_000)
    with pytest.raises(tm.InvalidInput, match=message):
        Ring.on(store, "alerts", **options)
    assert store._records == {}


@pytest.mark.parametrize("measure", [0, True, 10.0, "10", [10], 10**5_000], ids=shown)
@pytest.mark.parametrize("what", ["capacity", "slots_per_record"])
def test_measures_that_make_no_sense_are_refused_also_where_the_ring_is_there(
    what: str, measure: Any
) -> None:
    store = MemoryStore()
    Ring.on(store, "alerts", capacity=10)
    with pytest.raises(tm.InvalidInput, match=f"{what} must be a whole number from 1"):
        Ring.on(store, "alerts", **{what: measure})


def test_a_ring_is_made_only_where_its_metadata_will_always_fit() -> None:
    store = MemoryStore(record_bytes_max=METADATA_BYTES_MAX)
    ring = Ring.on(store, "alerts", capacity=5, slots_per_record=1)
    for _ in range(RING_OUTCOMES_KEPT):
        ring.enqueue(b"x", overwrite=True)
    for number in range(1, RING_GROUPS_MAX):
        ring.group(f"g{number:0{NAME_LENGTH_MAX - 1}}")
    ring.group("default").remove()
    ring.group("g" * NAME_LENGTH_MAX)
    kept = store.get("alerts:ring")
    assert kept is not None
    assert len(kept.data) == METADATA_BYTES_MAX  # so that it is no more than needed, either
    small = MemoryStore(record_bytes_max=METADATA_BYTES_MAX - 1)
    with pytest.raises(tm.InvalidInput, match="raise what the server takes"):
        Ring.on(small, "alerts", capacity=5, slots_per_record=1)
    assert small._records == {}
    # Buffers may lie where records are small.
    Ring.on(store, "apart", capacity=5, slots_per_record=1, buffers=(small, "apart"))


@pytest.mark.slow
def test_a_mysql_that_takes_short_packets_only_makes_no_ring(
    mariadb: MariaDB, database: str
) -> None:
    [[before]] = mariadb.execute("SELECT @@GLOBAL.max_allowed_packet")
    mariadb.execute("SET GLOBAL max_allowed_packet = 5120")
    try:
        with pytest.raises(tm.InvalidInput, match="max_allowed_packet"):
            tm.Ring(mariadb.url(database, "alerts"), capacity=5, slots_per_record=1)
    finally:
        mariadb.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_name_outside_the_grammar_is_refused() -> None:
    with pytest.raises(tm.InvalidName):
        Ring.on(MemoryStore(), "../alerts", capacity=10)
