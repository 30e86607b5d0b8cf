"""What a ring does for its users, on a store in memory."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tidemill as tm
from tests.records.history import Called, History, Result, check, drained
from tidemill.limits import INT64_MAX, RING_GROUPS_MAX, RING_OUTCOMES_KEPT
from tidemill.records.memory import MemoryStore
from tidemill.records.protocol.block import decode_block
from tidemill.records.protocol.enqueueing import enqueue
from tidemill.records.protocol.lock import Call
from tidemill.records.protocol.metadata import Grant, decode_metadata
from tidemill.records.protocol.requests import Now, Steps, Wait
from tidemill.records.ring import Ring
from tidemill.records.store import OneByOne, Record


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def ring(store: MemoryStore) -> Ring:
    return Ring.on(store, "alerts", capacity=10, slots_per_record=3)


class TestValues:
    @pytest.mark.parametrize("value", ["text", b"bytes", bytearray(b"b"), {"a": 1}, 5, None])
    def test_one_value_is_not_taken_apart_into_many(self, ring: Ring, value: Any) -> None:
        with pytest.raises(tm.InvalidInput, match="takes a list of values, not a"):
            ring.enqueue_many(value)
        assert ring.info().length == 0

    def test_many_that_do_not_fit_are_counted_in_the_message(self, ring: Ring) -> None:
        ring.enqueue_many(range(9))
        with pytest.raises(tm.QueueFull, match="holds 9 of 10 entries, too many for 2 more; take"):
            ring.enqueue_many([b"x", b"y"])

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"\0\xff",
            None,
            True,
            0,
            -1,
            2**70,
            1.5,
            "",
            "grüße 🌊",
            [],
            [1, [None]],
            {"a": {"b": [1]}},
        ],
    )
    def test_a_value_comes_back_as_it_was(self, ring: Ring, value: Any) -> None:
        ring.enqueue(value)
        found = ring.dequeue()
        assert found is not None
        assert (found.value, type(found.value)) == (value, type(value))

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ((1, 2), "tuple is neither"),
            ({1: "a"}, "must be a string, not 1"),
            ({10**5_000: "a"}, "must be a string, not a value of type int"),
            ({"a": {2}}, "set is not"),
            ({"a": b"x"}, "within an entry of a ring is what JSON can say; bytes is not"),
            (math.nan, "cannot be said in JSON"),
            ("\ud800", "cannot be said in JSON"),
            (object(), "object is neither"),
        ],
    )
    def test_a_value_that_would_come_back_different_is_refused(
        self, ring: Ring, value: Any, message: str
    ) -> None:
        with pytest.raises(tm.InvalidInput, match=message):
            ring.enqueue_many([b"good", value])
        assert ring.info().tail == 0

    def test_a_value_that_is_nested_too_deep_is_refused(self, ring: Ring) -> None:
        value: list[Any] = []
        for _ in range(100):
            value = [value]
        with pytest.raises(tm.InvalidInput, match="deep"):
            ring.enqueue(value)

    def test_every_entry_up_to_the_largest_fits_whatever_lies_beside_it(self) -> None:
        ring = Ring.on(
            MemoryStore(record_bytes_max=10_000), "alerts", capacity=9, slots_per_record=3
        )
        most = ring.info().entry_bytes_max
        assert most > 250
        ring.enqueue_many([b"x" * most] * 9)
        assert [len(entry.value) for entry in ring.dequeue_many(9)] == [most] * 9
        with pytest.raises(tm.TooLarge, match="fewer slots_per_record"):
            ring.enqueue(b"x" * (most + 1))
        assert ring.info().fence == 2


class TestOrder:
    def test_first_in_first_out_and_offsets_only_grow(self, ring: Ring) -> None:
        assert ring.dequeue() is None
        assert [ring.enqueue(number) for number in range(7)] == list(range(7))
        assert ring.dequeue_many(3) == [(0, 0), (1, 1), (2, 2)]
        assert ring.enqueue_many([7, 8, 9, 10, 11]) == 7
        assert ring.dequeue_many(100) == [(number, number) for number in range(3, 12)]
        assert ring.dequeue() is None
        assert ring.enqueue(b"next") == 12

    def test_a_batch_goes_in_whole_or_not_at_all(self, ring: Ring) -> None:
        ring.enqueue_many(list(range(8)))
        with pytest.raises(tm.QueueFull, match="8 of 10"):
            ring.enqueue_many([b"a", b"b", b"c"])
        assert ring.info().length == 8
        with pytest.raises(tm.TooLarge, match="11 entries never fit into a ring of 10"):
            ring.enqueue_many([b"a"] * 11)
        with pytest.raises(tm.InvalidInput, match="at least one value"):
            ring.enqueue_many([])

    def test_overwriting_drops_the_oldest_and_counts_them(self, ring: Ring) -> None:
        ring.enqueue_many(list(range(10)))
        assert ring.enqueue_many([10, 11], overwrite=True) == 10
        assert ring.enqueue_many(list(range(12, 22)), overwrite=True) == 12
        info = ring.info()
        assert (info.head, info.tail, info.overwritten) == (12, 22, 12)
        assert [value for _, value in ring.dequeue_many(100)] == list(range(12, 22))

    def test_a_circular_log_goes_around_many_times(self, store: MemoryStore) -> None:
        ring = Ring.on(store, "log", capacity=7, slots_per_record=2)
        for number in range(200):
            ring.enqueue(number, overwrite=True)
            kept = range(max(0, number - 6), number + 1)
            assert [value for _, value in ring.get_many(0, 1_000)] == list(kept)
        assert len(store._records) == ring.info().records + 1

    def test_more_than_the_spare_records_hold_is_not_overwritten_at_once(self) -> None:
        ring = Ring.on(MemoryStore(), "log", capacity=5_000, slots_per_record=10)
        with pytest.raises(tm.TooLarge, match="at most 1000 can"):
            ring.enqueue_many([b"x"] * 1_001, overwrite=True)
        ring.enqueue_many([b"x"] * 5_000)
        assert ring.enqueue_many([b"y"] * 1_000, overwrite=True) == 5_000

    def test_large_batches_pass_through_many_records(self) -> None:
        ring = Ring.on(MemoryStore(), "bulk", capacity=10_000, slots_per_record=30)
        values = [b"%d" % number for number in range(9_000)]
        ring.enqueue_many(values[:5_000])
        ring.enqueue_many(values[5_000:])
        assert [entry.value for entry in ring.dequeue_many(9_000)] == values


class TestReading:
    def test_an_offset_outside_is_nothing(self, ring: Ring) -> None:
        ring.enqueue_many([b"a", b"b", b"c"])
        ring.dequeue()
        assert [ring.get(offset) for offset in range(5)] == [
            None,
            (1, b"b"),
            (2, b"c"),
            None,
            None,
        ]
        with pytest.raises(tm.InvalidInput, match="from 0 on"):
            ring.get(-1)

    def test_reading_takes_no_lock(self, ring: Ring, store: MemoryStore) -> None:
        ring.enqueue(b"a")
        stick = _stuck(store, "alerts")
        assert ring.get(0) == (0, b"a")
        assert ring.info().locked
        assert stick


class TestGroups:
    def test_each_group_gets_every_entry_and_the_slowest_says_what_is_full(
        self, ring: Ring
    ) -> None:
        audit = ring.group("audit")
        ring.enqueue_many(list(range(10)))
        assert len(ring.dequeue_many(10)) == 10
        with pytest.raises(tm.QueueFull):
            ring.enqueue(b"more")
        assert audit.dequeue_many(4) == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert ring.enqueue_many([10, 11, 12, 13]) == 10
        assert ring.info().groups == {"default": 4, "audit": 10}
        assert ring.get(3) is None
        assert ring.get(4) == (4, 4)

    def test_a_group_begins_with_the_oldest_or_with_the_next(self, ring: Ring) -> None:
        ring.enqueue_many([0, 1, 2])
        ring.dequeue()
        assert ring.group("a").dequeue() == (1, 1)
        latest = ring.group("b", start="latest")
        ring.enqueue(3)
        assert latest.dequeue() == (3, 3)

    def test_a_removed_group_raises_also_when_its_name_is_used_again(self, ring: Ring) -> None:
        old = ring.group("audit")
        ring.enqueue(b"a")
        ring.dequeue()
        assert ring.info().length == 1
        old.remove()
        assert ring.info().length == 0
        old.remove()
        with pytest.raises(tm.GroupRemoved):
            old.dequeue()
        ring.group("audit")
        with pytest.raises(tm.GroupRemoved):
            old.dequeue()

    def test_the_own_end_of_a_ring_can_be_given_up(self, ring: Ring) -> None:
        default = ring.group("default")
        with pytest.raises(tm.InvalidInput, match="the last group"):
            default.remove()
        ring.group("audit")
        default.remove()
        with pytest.raises(tm.GroupRemoved):
            ring.dequeue()
        assert ring.info().groups == {"audit": 0}

    def test_groups_survive_and_are_bounded(self, ring: Ring, store: MemoryStore) -> None:
        for number in range(RING_GROUPS_MAX - 1):
            ring.group(f"g{number}")
        with pytest.raises(tm.InvalidInput, match="at most"):
            ring.group("one-more")
        with pytest.raises(tm.InvalidName, match="by case alone"):
            ring.group("G0")
        assert len(Ring.on(store, "alerts").info().groups) == RING_GROUPS_MAX
        assert not ring.info().locked

    def test_overwriting_moves_the_slow_groups_on(self, ring: Ring) -> None:
        audit = ring.group("audit")
        ring.enqueue_many(list(range(10)))
        ring.dequeue_many(8)
        ring.enqueue_many([10, 11, 12], overwrite=True)
        assert audit.dequeue() == (3, 3)
        assert ring.dequeue() == (8, 8)


def _stuck(store: MemoryStore, name: str, *, lock_ms: int = 60_000) -> bytes:
    """Have a client take the lock and never come back; the nonce of its grant."""
    ring = Ring.on(store, name, lock_ms=lock_ms)
    call, _ = ring._core.call("stuck")

    steps = enqueue(ring._core.memo, call, bytes(1), [b"never"], True)
    request = next(steps)
    while True:
        answer = ring._core.driver._perform(request)
        state = decode_metadata(_metadata(store, name).data)
        if state.grant is not None and state.grant.nonce == call.nonce:
            steps.close()
            return call.nonce
        request = steps.send(answer)


def _metadata(store: MemoryStore, name: str) -> Record:
    record = store.get(f"{name}:ring")
    assert record is not None
    return record


class TestLocks:
    def test_a_live_lock_is_waited_for_and_then_told(self, store: MemoryStore, ring: Ring) -> None:
        ring.enqueue(b"a")
        _stuck(store, "alerts")
        impatient = Ring.on(store, "alerts", lock_wait_s=0.05)
        began = time.monotonic()
        with pytest.raises(tm.Locked, match="locked by another client"):
            impatient.dequeue()
        assert 0.04 < time.monotonic() - began < 30
        assert impatient.get(0) == (0, b"a")

    @pytest.mark.parametrize("has_clock", [True, False])
    def test_waiting_long_enough_always_sees_an_expiry(self, has_clock: bool) -> None:
        store = MemoryStore() if has_clock else MemoryStore(clock_us=None)
        ring = Ring.on(store, "alerts", capacity=10, lock_wait_s=30)
        ring.enqueue(b"a")
        _stuck(store, "alerts", lock_ms=50)
        assert ring.dequeue() == (0, b"a")
        assert ring.outcome("stuck") == tm.Outcome("aborted")

    def test_who_has_just_come_outlasts_a_lock_whose_age_nobody_tells(self) -> None:
        # A lock for each: whoever stands still for long enough sees one expire, however impatient.
        held, short = MemoryStore(clock_us=None), MemoryStore(clock_us=None)
        for store, lock_ms in ((held, 60_000), (short, 300)):
            Ring.on(store, "alerts", capacity=10)
            _stuck(store, "alerts", lock_ms=lock_ms)
        with pytest.raises(tm.Locked):
            Ring.on(held, "alerts", lock_ms=10, lock_wait_s=0.03).enqueue(b"a")
        assert Ring.on(short, "alerts", lock_ms=10).enqueue(b"a") == 0

    def test_who_does_not_wait_finds_a_free_lock_whoever_had_it_before(
        self, store: MemoryStore
    ) -> None:
        one = Ring.on(store, "alerts", capacity=10, lock_wait_s=0)
        other = Ring.on(store, "alerts", lock_wait_s=0)
        assert [ring.enqueue(b"a") for ring in (one, other, one, other)] == [0, 1, 2, 3]
        _stuck(store, "alerts")
        assert one.outcome("stuck").state == "running"
        locked = _metadata(store, "alerts")
        freed = decode_metadata(locked.data).released().encode()
        assert store.replace("alerts:ring", freed, locked.generation) is not None
        assert one.enqueue(b"a") == 4

    def test_impatient_calls_see_an_expiry_as_well(self) -> None:
        store = MemoryStore(clock_us=None)
        ring = Ring.on(store, "alerts", capacity=10, lock_wait_s=0)
        _stuck(store, "alerts", lock_ms=50)
        deadline = time.monotonic() + 30
        while True:
            try:
                assert ring.enqueue(b"a") == 0
                break
            except tm.Locked:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def test_a_clock_that_is_an_hour_behind_only_costs_patience(self) -> None:
        now_us = [0]
        store = MemoryStore(clock_us=lambda: now_us[0])
        ring = Ring.on(store, "alerts", capacity=10, lock_wait_s=30)
        _stuck(store, "alerts", lock_ms=50)
        now_us[0] = -3_600_000_000
        assert ring.enqueue(b"a") == 0

    def test_an_empty_or_full_ring_says_so_at_once_whoever_holds_the_lock(
        self, store: MemoryStore, ring: Ring
    ) -> None:
        _stuck(store, "alerts")
        assert ring.dequeue() is None
        with pytest.raises(tm.TooLarge):
            ring.enqueue_many([b"a"] * 11)

    def test_tokens_run_out_with_an_error(self, store: MemoryStore, ring: Ring) -> None:
        _set(store, fence=INT64_MAX - 1)
        assert ring.enqueue(b"last") == 0
        with pytest.raises(tm.RingExhausted, match="tokens"):
            ring.enqueue(b"one too many")
        with pytest.raises(tm.RingExhausted, match="tokens"):
            ring.dequeue()
        assert ring.get(0) == (0, b"last")

    def test_offsets_run_out_with_an_error(self, store: MemoryStore, ring: Ring) -> None:
        _set(store, tail=INT64_MAX - 3)
        assert ring.enqueue_many([b"a", b"b"]) == INT64_MAX - 3
        with pytest.raises(tm.RingExhausted, match="offsets"):
            ring.enqueue_many([b"c", b"d"])
        assert ring.enqueue(b"c") == INT64_MAX - 1
        with pytest.raises(tm.RingExhausted, match="offsets"):
            ring.enqueue(b"d")
        assert [value for _, value in ring.dequeue_many(9)] == [b"a", b"b", b"c"]


def _set(store: MemoryStore, *, fence: int = 0, tail: int = 0) -> None:
    record = _metadata(store, "alerts")
    state = decode_metadata(record.data)
    groups = tuple(group._replace(head=tail) for group in state.groups)
    changed = replace(state, fence=fence, tail=tail, groups=groups)
    assert store.replace("alerts:ring", changed.encode(), record.generation) is not None


class Flaky(MemoryStore):
    """A store that loses answers, and goes away."""

    lose: Callable[[str, str], bool] = staticmethod(lambda call, name: False)
    away = False

    def get(self, name: str) -> Record | None:
        if self.away:
            raise tm.Unavailable("the store is away")
        return super().get(name)

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        if self.away:
            raise tm.Unavailable("the store is away")
        done = super().replace(name, data, generation)
        if self.lose("replace", name):
            raise tm.OutcomeUnknown("the answer was lost")
        return done


class Unanswered(MemoryStore):
    """A store that may be deaf to whoever gives the lock back, by a commit or otherwise."""

    is_deaf = False
    attempts = 0

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        if self.is_deaf and name.endswith(":ring") and decode_metadata(data).grant is None:
            self.attempts += 1
            assert self.attempts < 100, "a store in trouble is besieged"
            raise tm.OutcomeUnknown("no answer")
        return super().replace(name, data, generation)


class RemovedMeanwhile(OneByOne):
    """The way to a store of a client that is slow in reading entries: others break its lock then,
    and remove the ring.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, name: str) -> Record | None:
        if not name.endswith(":ring"):
            Ring.on(self._store, "alerts").remove()
        return self._store.get(name)


class TestOutcomes:
    def test_the_last_operations_are_known(self, ring: Ring) -> None:
        ring.enqueue_many([b"a", b"b"], operation_id="put")
        ring.dequeue(operation_id="take")
        assert ring.outcome("put") == tm.Outcome("committed", "enqueue", 0, 2)
        assert ring.outcome("take") == tm.Outcome("committed", "dequeue", 0, 1)
        assert ring.outcome("other") == tm.Outcome("unknown")
        for _ in range(RING_OUTCOMES_KEPT // 2):
            ring.enqueue(b"x")
            ring.dequeue()
        assert ring.outcome("put") == tm.Outcome("unknown")

    def test_asking_for_an_operation_that_is_stuck_ends_it(self) -> None:
        now_us = [0]
        store = MemoryStore(clock_us=lambda: now_us[0])
        ring = Ring.on(store, "alerts", capacity=10)
        _stuck(store, "alerts", lock_ms=60_000)
        now_us[0] = 59_000_000
        assert ring.outcome("stuck") == tm.Outcome("running")
        now_us[0] = 60_000_000
        assert ring.outcome("stuck") == tm.Outcome("aborted")
        assert not ring.info().locked

    def test_a_lost_answer_is_resolved_by_looking(self) -> None:
        store = Flaky()
        ring = Ring.on(store, "alerts", capacity=100, slots_per_record=3)
        lost = []

        def lose(call: str, name: str) -> bool:
            lost.append(name)
            return True

        store.lose = lose
        assert [ring.enqueue(number) for number in range(10)] == list(range(10))
        assert ring.dequeue_many(10) == [(number, number) for number in range(10)]
        assert len(lost) > 20

    def test_what_is_in_doubt_can_be_asked_for_later(self) -> None:
        store = Flaky()
        ring = Ring.on(store, "alerts", capacity=100, lock_wait_s=0.01)
        ring.enqueue(b"a")

        def lose(call: str, name: str) -> bool:
            # The answer to the commit, after which the store is gone.
            store.away = decode_metadata(_kept(store)).grant is None
            return store.away

        store.lose = lose
        with pytest.raises(tm.OutcomeUnknown, match="ask for its outcome") as raised:
            ring.dequeue()
        store.away = False
        assert raised.value.operation_id is not None
        assert ring.outcome(raised.value.operation_id).state == "committed"
        assert list(raised.value.entries) == [(0, b"a")]

    def test_what_is_in_doubt_stays_so_when_the_ring_is_closed(self) -> None:
        store = Flaky()
        ring = Ring.on(store, "alerts", capacity=100, lock_wait_s=60)
        ring.enqueue(b"a")
        raised: list[BaseException] = []
        is_away = threading.Event()

        def lose(call: str, name: str) -> bool:
            store.away = decode_metadata(_kept(store)).grant is None
            if store.away:
                is_away.set()
            return store.away

        def take() -> None:
            try:
                ring.dequeue(operation_id="take")
            except tm.TidemillError as error:
                raised.append(error)

        store.lose = lose
        taking = threading.Thread(target=take)
        taking.start()
        assert is_away.wait(30)
        ring.close()
        taking.join(30)
        (error,) = raised
        assert isinstance(error, tm.OutcomeUnknown)
        assert (error.operation_id, list(error.entries)) == ("take", [(0, b"a")])
        store.away = False
        assert Ring.on(store, "alerts").outcome("take").state == "committed"

    def test_a_commit_that_is_never_answered_ends_with_patience(self) -> None:
        store = Unanswered()
        ring = Ring.on(store, "alerts", capacity=100, lock_wait_s=0.1)
        ring.enqueue(b"a")
        store.is_deaf = True
        with pytest.raises(tm.OutcomeUnknown, match="writes are not answered") as raised:
            ring.dequeue(operation_id="take")
        assert list(raised.value.entries) == [(0, b"a")]
        assert ring.outcome("take") == tm.Outcome("running")

    def test_asking_for_an_operation_ends_though_writes_are_never_answered(self) -> None:
        now_us = [0]
        store = Unanswered(clock_us=lambda: now_us[0])
        ring = Ring.on(store, "alerts", capacity=100)
        _stuck(store, "alerts")
        now_us[0] = 60_000_000
        store.is_deaf = True
        assert ring.outcome("stuck") == tm.Outcome("running")
        assert store.attempts > 0
        store.is_deaf = False
        assert ring.outcome("stuck") == tm.Outcome("aborted")

    def test_an_id_that_is_none_is_refused(self, ring: Ring) -> None:
        for id in ("", 7, "x" * 257):
            with pytest.raises(tm.InvalidInput, match="operation id"):
                ring.enqueue(b"a", operation_id=id)  # type: ignore[arg-type]


def _kept(store: MemoryStore) -> bytes:
    return store._records["alerts:ring"].data


def _pauses(steps: Steps[bool], now_s: float) -> bool:
    """Whether a call waits at this moment."""
    assert isinstance(next(steps), Now)
    try:
        return isinstance(steps.send(now_s), Wait)
    except StopIteration as ended:
        return bool(ended.value)


class TestWaiting:
    def test_a_dequeue_waits_for_an_entry_and_others_go_on(self, ring: Ring) -> None:
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(ring.dequeue(wait_s=30)))
        waiting.start()
        ring.enqueue(b"a")
        waiting.join(30)
        assert found == [(0, b"a")]

    def test_an_enqueue_waits_for_room(self, ring: Ring) -> None:
        ring.enqueue_many(list(range(10)))
        found: list[int] = []
        waiting = threading.Thread(target=lambda: found.append(ring.enqueue(10, wait_s=30)))
        waiting.start()
        ring.dequeue()
        waiting.join(30)
        assert found == [10]
        with pytest.raises(tm.QueueFull):
            ring.enqueue(11, wait_s=0.01)

    def test_waiting_for_an_entry_leaves_patience_for_the_lock(self) -> None:
        call = Call(b"o" * 16, b"n" * 16, lock_ms=100, patience_s=1, wait_s=5)
        assert _pauses(call.pause_idle(), now_s=0)
        assert _pauses(call.pause_idle(), now_s=4.9)
        assert _pauses(call.pause(), now_s=4.9)
        assert _pauses(call.pause(), now_s=5.8)
        assert not _pauses(call.pause(), now_s=6)
        assert not _pauses(call.pause_idle(), now_s=6)

    def test_closing_wakes_whoever_waits(self, ring: Ring) -> None:
        errors: list[BaseException] = []
        began = threading.Event()

        def wait() -> None:
            began.set()
            try:
                ring.dequeue(wait_s=60)
            except tm.Closed as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        began.wait(30)
        ring.close()
        waiting.join(30)
        assert len(errors) == 1
        with pytest.raises(tm.Closed):
            ring.enqueue(b"a")
        ring.close()


class TestHandles:
    def test_a_handle_is_not_used_after_a_fork(self, ring: Ring) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                ring.enqueue(b"from the child")
            except tm.Closed:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

    def test_a_ring_that_was_removed_is_gone_with_all_its_records(
        self, ring: Ring, store: MemoryStore
    ) -> None:
        other = Ring.on(store, "alerts")
        ring.enqueue_many([b"a"] * 10)
        ring.remove()
        assert store._records == {}
        with pytest.raises(tm.NotAQueue, match="it was removed"):
            other.enqueue(b"a")
        again = Ring.on(store, "alerts", capacity=3)
        with pytest.raises(tm.NotAQueue, match="another one made in its place"):
            other.dequeue()
        assert again.enqueue(b"a") == 0

    def test_a_ring_that_is_removed_during_a_call_is_gone_and_not_damaged(
        self, store: MemoryStore, ring: Ring
    ) -> None:
        ring.enqueue(b"a")
        put, take = RemovedMeanwhile(store), RemovedMeanwhile(store)
        with pytest.raises(tm.NotAQueue, match="it was removed"):
            Ring.on(put, "alerts", lock_ms=1).enqueue(b"b")
        Ring.on(store, "alerts", capacity=10).enqueue(b"a")
        with pytest.raises(tm.NotAQueue, match="it was removed"):
            Ring.on(take, "alerts", lock_ms=1).dequeue()

    @pytest.mark.parametrize("damage", ["gone", "flipped", "another"])
    def test_damage_is_told_and_the_lock_is_given_back(
        self, store: MemoryStore, ring: Ring, damage: str
    ) -> None:
        ring.enqueue_many([b"a", b"b"])
        name = next(name for name in store._records if not name.endswith(":ring"))
        kept = store._records[name]
        if damage == "gone":
            del store._records[name]
        elif damage == "flipped":
            kept.data = kept.data[:-9] + bytes([kept.data[-9] ^ 1]) + kept.data[-8:]
        else:
            kept.data = b"shopping list" * 9
        fresh = Ring.on(store, "alerts")
        with pytest.raises(tm.Corrupt):
            fresh.dequeue()
        with pytest.raises(tm.Corrupt):
            fresh.get(0)
        assert not fresh.info().locked
        assert fresh.info().length == 2

    @pytest.mark.parametrize("has_clock", [True, False])
    def test_a_lock_that_nobody_can_have_asked_for_is_damage_and_not_waited_for(
        self, has_clock: bool
    ) -> None:
        store = MemoryStore() if has_clock else MemoryStore(clock_us=None)
        ring = Ring.on(store, "alerts", capacity=10)
        kept = store._records["alerts:ring"]
        state = decode_metadata(kept.data)
        for lock_ms in (0, 2**63):
            kept.data = state.granted(Grant(1, b"n" * 16, b"o" * 16, lock_ms)).encode()
            with pytest.raises(tm.Corrupt, match=f"a lock for {lock_ms} ms"):
                ring.enqueue(b"a")

    def test_an_outcome_of_a_kind_that_is_not_known_is_told(
        self, store: MemoryStore, ring: Ring
    ) -> None:
        ring.enqueue(b"a", operation_id="one")
        kept = store._records["alerts:ring"]
        state = decode_metadata(kept.data)
        kept.data = replace(state, ended=state.ended[:-4] + b"\7\0\0\0").encode()
        with pytest.raises(tm.Corrupt, match="unknown kind 7"):
            ring.outcome("one")

    def test_an_entry_that_cannot_be_told_stays_in_with_all_beside_it(
        self, store: MemoryStore, ring: Ring
    ) -> None:
        ring.enqueue_many([b"a", {"b": 1}, b"c"])
        name = next(name for name in store._records if not name.endswith(":ring"))
        kept = store._records[name]
        # A later release, say, may know of more kinds than bytes and JSON.
        kept.data = replace(decode_block(kept.data), kinds=bytes([0, 7, 0])).encode()
        fresh = Ring.on(store, "alerts")
        with pytest.raises(tm.Corrupt, match="unknown kind 7"):
            fresh.dequeue_many(3)
        assert (fresh.info().length, fresh.info().locked) == (3, False)
        assert fresh.dequeue() == (0, b"a")

    @pytest.mark.parametrize("has_clock", [True, False])
    def test_many_threads_with_handles_of_their_own_are_one_queue(self, has_clock: bool) -> None:
        store = MemoryStore() if has_clock else MemoryStore(clock_us=None)
        Ring.on(store, "alerts", capacity=5, slots_per_record=2)
        history = History(5)
        mutex = threading.Lock()
        moment = iter(range(10**9)).__next__

        def work(number: int) -> None:
            mine = Ring.on(store, "alerts", lock_ms=50, lock_wait_s=60)
            for index in range(25):
                value = f"{number}-{index}"
                kind = "enqueue" if (index + number) % 2 else "dequeue"
                values = (value,) if kind == "enqueue" else ()
                call = Called(f"c{number}", kind, moment(), values=values)
                with mutex:
                    history.calls.append(call)
                if kind == "dequeue":
                    call.result = drained(mine.dequeue_many(1))
                else:
                    try:
                        call.result = mine.enqueue(value)
                    except tm.QueueFull:
                        call.result = Result.FULL
                call.ended = moment()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(history, drained(Ring.on(store, "alerts").get_many(0, 1_000)))
