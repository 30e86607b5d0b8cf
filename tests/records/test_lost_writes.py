"""A server that loses its last writes in a crash, though it had confirmed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import copy

import pytest

from tidemill.errors import Fenced
from tidemill.records.address import RecordAddress
from tidemill.records.memory import MemoryStore
from tidemill.records.protocol.enqueueing import enqueue
from tidemill.records.protocol.requests import GetBuffers, ReplaceMetadata, Request, Steps
from tidemill.records.redis_link import RedisLink
from tidemill.records.ring import Ring
from tidemill.records.store import RecordStore


@contextmanager
def lost_writes(url: str, name: str) -> Iterator[None]:
    """What is written to a record in Redis within the block is lost at its end."""
    with closing(RedisLink(RecordAddress.parse(url), 5)) as link:
        before = link.call("HGETALL", f"tidemill:{name}", within_s=5)
        yield
        link.call("HSET", f"tidemill:{name}", *before, within_s=5)


@pytest.mark.parametrize("kind", ["redis"])
def test_what_is_written_next_is_not_taken_for_what_was_lost(
    store: RecordStore, name: str, url: str
) -> None:
    first = store.create(name, b"first")
    assert first is not None
    with lost_writes(url, name):
        lost = store.replace(name, b"lost", first)
        assert lost is not None
    assert store.replace(name, b"next", first) not in (None, lost)
    assert store.replace(name, b"late", lost) is None
    found = store.get(name)
    assert found is not None
    assert found.data == b"next"


class Enqueue:
    """An enqueue that can be stopped before any of its steps."""

    def __init__(self, store: MemoryStore, value: bytes) -> None:
        ring = Ring.on(store, "alerts", lock_ms=60_000)
        call, _ = ring._core.call(value.decode())
        self._driver = ring._core.driver
        self._steps: Steps[int | None] = enqueue(ring._core.memo, call, bytes(1), [value], False)
        self._request: Request = next(self._steps)

    def go_on(self, before: type[Request]) -> None:
        """Up to the next request of a kind, at least one step."""
        while True:
            self._request = self._steps.send(self._driver._perform(self._request))
            if isinstance(self._request, before):
                return

    def end(self) -> int | None:
        try:
            while True:
                self._request = self._steps.send(self._driver._perform(self._request))
        except StopIteration as ended:
            offset: int | None = ended.value
            return offset


@pytest.fixture
def memory() -> MemoryStore:
    store = MemoryStore()
    Ring.on(store, "alerts", capacity=10)
    return store


def test_a_grant_that_was_lost_is_not_that_of_another_client_with_the_same_token(
    memory: MemoryStore,
) -> None:
    before = copy(memory._records["alerts:ring"])
    stale = Enqueue(memory, b"stale")
    stale.go_on(GetBuffers)
    memory._records["alerts:ring"] = before
    live = Enqueue(memory, b"live")
    live.go_on(GetBuffers)
    live.go_on(ReplaceMetadata)
    with pytest.raises(Fenced):
        stale.end()
    assert live.end() == 0
    assert Ring.on(memory, "alerts").get_many(0, 10) == [(0, b"live")]


def test_entries_under_a_grant_that_was_lost_are_not_those_of_another_with_the_same_token(
    memory: MemoryStore,
) -> None:
    before = copy(memory._records["alerts:ring"])
    stale = Enqueue(memory, b"stale")
    stale.go_on(GetBuffers)
    stale.go_on(ReplaceMetadata)
    memory._records["alerts:ring"] = before
    live = Enqueue(memory, b"live")
    assert live.end() == 0
    with pytest.raises(Fenced):
        stale.end()
    assert Ring.on(memory, "alerts").get_many(0, 10) == [(0, b"live")]


def test_entries_after_many_grants_that_were_lost_are_not_those_of_a_later_token(
    memory: MemoryStore,
) -> None:
    before = copy(memory._records["alerts:ring"])
    for _ in range(5):
        Ring.on(memory, "alerts").group("audit").remove()
    stale = Enqueue(memory, b"stale")
    stale.go_on(GetBuffers)
    memory._records["alerts:ring"] = before
    assert Enqueue(memory, b"live").end() == 0
    with pytest.raises(Fenced):
        stale.end()
    assert Ring.on(memory, "alerts").get_many(0, 10) == [(0, b"live")]


def test_what_was_written_under_grants_that_were_lost_keeps_nobody_from_writing(
    memory: MemoryStore,
) -> None:
    before = copy(memory._records["alerts:ring"])
    for value in (b"a", b"b", b"c"):
        assert Enqueue(memory, value).end() is not None
    memory._records["alerts:ring"] = before
    assert Enqueue(memory, b"live").end() == 0
    assert Ring.on(memory, "alerts").get_many(0, 10) == [(0, b"live")]
