"""Removing a ring on a store that loses answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

import tidemill as tm
from tests.services.redis import Redis
from tidemill.records.address import RecordAddress
from tidemill.records.memory import MemoryStore
from tidemill.records.redis_link import RedisLink
from tidemill.records.ring import Ring
from tidemill.records.store import Record


class LosingRemovals(MemoryStore):
    """A store in which a deletion of a ring's own record is not answered: it is done, or not, or
    later, in the order of `lost`.
    """

    def __init__(self, lost: list[str]) -> None:
        super().__init__()
        self._lost = lost
        self._late: list[int] = []

    def delete(self, name: str, generation: int) -> bool:
        if not name.endswith(":ring") or not self._lost:
            while self._late:
                super().delete(name, self._late.pop())
            return super().delete(name, generation)
        match self._lost.pop(0):
            case "answer":
                super().delete(name, generation)
            case "late":
                self._late.append(generation)
        raise tm.OutcomeUnknown("the answer was lost")


@pytest.mark.parametrize("lost", [["answer"], ["request"], ["request", "answer"], ["late"]])
def test_a_lost_answer_to_a_removal_leaves_no_record(lost: list[str]) -> None:
    store = LosingRemovals(lost)
    ring = Ring.on(store, "alerts", capacity=100, slots_per_record=3)
    ring.enqueue_many([b"a"] * 100)
    ring.remove()
    assert not lost
    assert store._records == {}


def test_a_removal_that_is_never_answered_ends_with_patience() -> None:
    ring = Ring.on(LosingRemovals(["request"] * 100), "alerts", capacity=9, lock_wait_s=0.1)
    with pytest.raises(tm.OutcomeUnknown):
        ring.remove()
    assert ring.info().length == 0


class AwayAfterwards(MemoryStore):
    """A store that is away, for so many calls, when it has deleted a ring's own record. Every other
    deletion that it does not answer is done.
    """

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._calls = calls
        self._is_gone = False

    def get_many(self, names: Sequence[str]) -> list[Record | None]:
        self._fail()
        return super().get_many(names)

    def delete(self, name: str, generation: int) -> bool:
        if self._is_gone and self._calls % 2:
            super().delete(name, generation)
            self._calls -= 1
            raise tm.OutcomeUnknown("the answer was lost")
        self._fail()
        is_deleted = super().delete(name, generation)
        self._is_gone |= name.endswith(":ring")
        return is_deleted

    def _fail(self) -> None:
        if self._is_gone and self._calls:
            self._calls -= 1
            raise tm.Unavailable("the store is away")


def test_a_removal_waits_for_a_store_that_is_away_before_the_entries_are_gone() -> None:
    store = AwayAfterwards(calls=5)
    ring = Ring.on(store, "alerts", capacity=100, slots_per_record=1)
    ring.enqueue_many([b"a"] * 100)
    ring.remove()
    assert store._records == {}


def test_a_removal_says_what_is_left_in_a_store_that_stays_away() -> None:
    store = AwayAfterwards(calls=10_000)
    ring = Ring.on(store, "alerts", capacity=100, slots_per_record=1, lock_wait_s=0.1)
    ring.enqueue_many([b"a"] * 100)
    with pytest.raises(
        tm.Unavailable, match="is gone, but records of its entries are left"
    ) as told:
        ring.remove()
    assert store._records
    for name in store._records:
        assert name.rpartition(":")[0] + ":" in str(told.value)


class Apart:
    """Two databases of a Redis: one for the metadata of a ring, one for its buffers."""

    def __init__(self, redis: Redis, name: str) -> None:
        self.metadata = f"redis://127.0.0.1:{redis.port}/3/{name}"
        self.buffers = f"redis://127.0.0.1:{redis.port}/4/{name}"

    def keys(self, url: str, *, flushed: bool = False) -> int:
        with closing(RedisLink(RecordAddress.parse(url), 5)) as link:
            if flushed:
                link.call("FLUSHDB", within_s=5)
            return int(link.call("DBSIZE", within_s=5))


@pytest.fixture
def apart(redis: Redis) -> Apart:
    """A ring with an entry, the only one in its databases."""
    made = Apart(redis, "apart")
    for url in (made.metadata, made.buffers):
        made.keys(url, flushed=True)
    with tm.Ring(made.metadata, capacity=10, buffers=made.buffers) as ring:
        ring.enqueue(b"x")
    return made


def test_a_ring_whose_buffers_were_lost_says_so_and_can_be_removed(apart: Apart) -> None:
    assert apart.keys(apart.buffers, flushed=True) == 0
    with pytest.raises(tm.GeometryMismatch, match="or that one has lost them"):
        tm.Ring(apart.metadata, buffers=apart.buffers)
    tm.Ring.remove_at(apart.metadata, buffers=apart.buffers)
    assert apart.keys(apart.metadata) == 0
    with tm.Ring(apart.metadata, capacity=5, buffers=apart.buffers) as ring:
        assert ring.enqueue(b"y") == 0


def test_a_ring_is_removed_without_being_opened_and_so_are_the_buffers_that_are_named(
    apart: Apart,
) -> None:
    with pytest.raises(tm.NotAQueue, match="there is no ring 'other'"):
        tm.Ring.remove_at(apart.metadata.replace("apart", "other"))
    assert apart.keys(apart.buffers) == 2  # that of the entry, and the one that says whose it is
    tm.Ring.remove_at(apart.metadata)
    assert (apart.keys(apart.metadata), apart.keys(apart.buffers)) == (0, 2)
    with tm.Ring(apart.metadata, capacity=10, buffers=apart.buffers) as ring:
        ring.enqueue(b"x")
    tm.Ring.remove_at(apart.metadata, buffers=apart.buffers)
    assert (apart.keys(apart.metadata), apart.keys(apart.buffers)) == (0, 2)


def test_a_ring_with_everything_in_one_store_is_removed_whole(redis: Redis) -> None:
    url = Apart(redis, "whole").metadata
    Apart(redis, "whole").keys(url, flushed=True)
    with tm.Ring(url, capacity=10, slots_per_record=1) as ring:
        ring.enqueue_many([b"x"] * 9)
    with pytest.raises(tm.GeometryMismatch, match="in the same store"):
        tm.Ring.remove_at(url, buffers=url)
    tm.Ring.remove_at(url)
    assert Apart(redis, "whole").keys(url) == 0
