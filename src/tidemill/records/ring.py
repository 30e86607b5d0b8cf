"""A ring: a bounded queue in a store whose records are atomic one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, Self

from tidemill.clock import wait_seconds
from tidemill.closing import Closing
from tidemill.errors import InvalidInput, NotAQueue, QueueFull
from tidemill.limits import RING_LOCK_MS_MAX
from tidemill.names import check_name
from tidemill.records.driving import Driver
from tidemill.records.group import Group
from tidemill.records.opening import open_records
from tidemill.records.protocol.creation import (
    FIRST_GROUP,
    check_geometry,
    check_room,
    find_ring,
    has_buffers,
    make_ring,
    missing,
    open_ring,
)
from tidemill.records.protocol.enqueueing import check_count, enqueue
from tidemill.records.protocol.geometry import Geometry, check_measures
from tidemill.records.protocol.groups import make_group
from tidemill.records.protocol.lock import Call, look
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.metadata import Metadata
from tidemill.records.protocol.reading import Outcome, outcome, read
from tidemill.records.protocol.removal import remove_ring
from tidemill.records.protocol.values import Entry, Value, encode_values, several
from tidemill.records.ring_end import Core, RingEnd, digest
from tidemill.records.store import RecordStore
from tidemill.shown import shown

SLOTS_PER_RECORD = 100
LOCK_MS = 2_000


@dataclass(frozen=True, slots=True)
class RingInfo:
    """A ring in one moment.

    >>> import tidemill as tm
    >>> with tm.Ring("memory:doc-ring-info", capacity=10) as ring:
    ...     offset = ring.enqueue(b"one")
    ...     info = ring.info()
    >>> info.length, info.head, info.tail, info.groups
    (1, 0, 1, {'default': 1})
    """

    capacity: int
    length: int  # entries that some group has not taken
    head: int  # the offset of the oldest of them
    tail: int  # the offset that the next one will get
    slots_per_record: int
    records: int  # buffer records, of which those exist that were needed so far
    entry_bytes_max: int  # the largest entry that is taken
    overwrites_max: int  # entries that one call may write over others
    overwritten: int  # entries that were dropped to make room
    fence: int  # the last token that was granted
    locked: bool  # whether somebody held the lock
    groups: dict[str, int]  # how many entries each group has before it


class Ring(RingEnd, Closing):
    """A bounded first-in-first-out queue that any number of processes share.

    It lives in a store that has nothing but records which are atomic one at a time: `memory:name`,
    Redis, MySQL or MariaDB, etcd, Aerospike. An operation is done wholly or not at all, whichever
    client dies or sleeps in the middle of it, for however long.

    The ring is made if it is not there and `capacity` is given; it holds exactly so many entries.
    An entry is bytes, or what JSON can say.

    >>> import tidemill as tm
    >>> ring = tm.Ring("memory:doc-ring", capacity=2)
    >>> ring.enqueue(b"one"), ring.enqueue({"two": 2})
    (0, 1)
    >>> ring.enqueue(b"three")
    Traceback (most recent call last):
    tidemill.errors.QueueFull: ring 'doc-ring' is full: it holds 2 of 2 entries; ...
    >>> ring.enqueue(b"three", overwrite=True)
    2
    >>> ring.dequeue(), ring.get(2)
    (Entry(offset=1, value={'two': 2}), Entry(offset=2, value=b'three'))
    >>> ring.close()
    """

    def __init__(
        self,
        url: str,
        *,
        capacity: int | None = None,  # entries; None: the ring must be there
        slots_per_record: int | None = None,  # None: what is recorded; new rings get 100
        lock_ms: int = LOCK_MS,  # how long this client may work on one operation
        lock_wait_s: float | None = None,  # to wait for others; None: 3 lock_ms, or as etcd needs
        buffers: str | None = None,  # the entries go to another store, under this address
    ) -> None:
        store, name = open_records(url)
        opened = [store]
        try:
            apart = None if buffers is None else open_records(buffers)
            if apart is not None:
                opened.append(apart[0])
            self._open(store, name, apart, capacity, slots_per_record, lock_ms, lock_wait_s)
        except BaseException:
            for one in opened:
                one.close()
            raise
        self._owned = opened

    @classmethod
    def on(
        cls,
        store: RecordStore,
        name: str,
        *,
        capacity: int | None = None,
        slots_per_record: int | None = None,
        lock_ms: int = LOCK_MS,
        lock_wait_s: float | None = None,
        buffers: tuple[RecordStore, str] | None = None,
    ) -> Self:
        """A ring on a store that somebody else opened, and will close.

        >>> import tidemill as tm
        >>> from tidemill.records.memory import MemoryStore
        >>> tm.Ring.on(MemoryStore(), "alerts", capacity=10)
        <Ring 'alerts' at memory>
        """
        self = cls.__new__(cls)
        check_name(name, what="ring")
        self._open(store, name, buffers, capacity, slots_per_record, lock_ms, lock_wait_s)
        self._owned = []
        return self

    def _open(
        self,
        store: RecordStore,
        name: str,
        apart: tuple[RecordStore, str] | None,
        capacity: int | None,
        slots: int | None,
        lock_ms: int,
        lock_wait_s: float | None,
    ) -> None:
        if isinstance(lock_ms, bool) or not isinstance(lock_ms, int):
            raise InvalidInput(f"lock_ms is a whole number, not {shown(lock_ms)}")
        if not 1 <= lock_ms <= RING_LOCK_MS_MAX:
            raise InvalidInput(f"lock_ms is from 1 to {RING_LOCK_MS_MAX}, not {shown(lock_ms)}")
        check_measures(capacity, slots)
        patience_s = 3 * lock_ms / 1_000
        if lock_wait_s is not None:
            patience_s = wait_seconds(lock_wait_s, what="lock_wait_s")
        buffers, buffers_name = apart if apart is not None else (store, None)
        driver = Driver(name, store, buffers)
        found = driver.run_beside(open_ring(name, buffers_name))
        if found is None:
            if capacity is None:
                raise missing(name, store.place)
            check_room(store.place, store.record_bytes_max)
            most = min(buffers.record_bytes_max, 2**32 - 1)
            shape = Geometry.plan(capacity, SLOTS_PER_RECORD if slots is None else slots, most)
            call = Call(os.urandom(16), os.urandom(16), lock_ms, patience_s)
            found = driver.run_beside(make_ring(name, os.urandom(8), shape, buffers_name, call))
        check_geometry(name, found.geometry, capacity, slots)
        self._geometry = found.geometry
        self._place = store.place
        self._group_id = FIRST_GROUP
        self._core = Core(
            memo=Memo(name, found.ring, buffers_name),
            driver=driver,
            lock_ms=lock_ms,
            patience_s=patience_s,
            outlasts=lock_wait_s is None,
        )

    @property
    def name(self) -> str:
        """The name of the ring in its store."""
        return self._core.memo.name

    @property
    def capacity(self) -> int:
        """How many entries the ring holds."""
        return self._geometry.capacity

    def enqueue(
        self,
        value: Value,
        *,
        overwrite: bool = False,
        wait_s: float | None = None,
        operation_id: str | None = None,
    ) -> int:
        """Put an entry in; returns its offset, which grows by 1 from entry to entry.

        A full ring raises `QueueFull`, with `wait_s` after so long; `overwrite=True` drops the
        oldest entry instead, for all groups that have not taken it. `operation_id` is what to ask
        `outcome` for, should the store be away before it has answered; an operation with an id that
        is reported as aborted is not tried again.

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-enqueue", capacity=10)
        >>> ring.enqueue({"id": 42}, operation_id="order-42")
        0
        >>> ring.outcome("order-42")
        Outcome(state='committed', kind='enqueue', offset=0, count=1)
        """
        return self.enqueue_many(
            [value], overwrite=overwrite, wait_s=wait_s, operation_id=operation_id
        )

    def enqueue_many(
        self,
        values: Iterable[Value],
        *,
        overwrite: bool = False,
        wait_s: float | None = None,
        operation_id: str | None = None,
    ) -> int:
        """Put entries in, all or none, under one lock; returns the offset of the first.

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-enqueue-many", capacity=10)
        >>> ring.enqueue_many([b"one", b"two"]), ring.info().length
        (0, 2)
        """
        kinds, encoded = encode_values(several(values), self._geometry.entry_bytes_max)
        check_count(self._geometry, len(encoded), overwrite)
        call, id = self._core.call(operation_id, wait_s)
        offset = self._core.run(enqueue(self._core.memo, call, kinds, encoded, overwrite), id)
        if offset is None:
            more = f", too many for {len(encoded)} more" if len(encoded) > 1 else ""
            raise QueueFull(
                f"ring {self.name!r} is full: it holds "
                f"{self.info().length} of {self.capacity} entries{more}; take some out, or "
                "overwrite=True drops the oldest"
            )
        return offset

    def get(self, offset: int) -> Entry | None:
        """The entry at an offset, without a lock; None if it is not in the ring, or not any more.

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-get", capacity=10)
        >>> ring.get(ring.enqueue(b"one")), ring.get(7)
        (Entry(offset=0, value=b'one'), None)
        """
        found = self.get_many(offset, 1)
        return found[0] if found and found[0].offset == offset else None

    def get_many(self, first: int, count: int) -> list[Entry]:
        """Those of `count` entries from an offset on that are in the ring, without a lock.

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-get-many", capacity=10)
        >>> offset = ring.enqueue_many([b"one", b"two"])
        >>> [entry.value for entry in ring.get_many(0, 10)]
        [b'one', b'two']
        """
        for number in (first, count):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise InvalidInput(
                    f"an offset or a count is a number from 0 on, not {shown(number)}"
                )
        return self._core.driver.run_beside(read(self._fresh_memo(), first, count))

    def info(self) -> RingInfo:
        """How full the ring is, and what it is made of, without a lock.

        >>> import tidemill as tm
        >>> info = tm.Ring("memory:doc-info", capacity=1_000).info()
        >>> info.length, info.capacity, info.slots_per_record
        (0, 1000, 100)
        """
        return _info((self._core.driver.run_beside(look(self._fresh_memo()))).metadata)

    def outcome(self, operation_id: str) -> Outcome:
        """What became of an operation of any client: the last one that has this id.

        The outcomes of the last 64 operations are known. An operation that is "running" may be
        asked for again; when its lock has expired, asking ends it.

        >>> import tidemill as tm
        >>> tm.Ring("memory:doc-outcome", capacity=10).outcome("no such operation").state
        'unknown'
        """
        return self._core.driver.run(outcome(self._core.memo, digest(operation_id)))

    def group(self, name: str, *, start: Literal["earliest", "latest"] = "earliest") -> Group:
        """A consuming end of its own, made if it is not there.

        It begins with the oldest entry, or with the next. The ring itself is the group "default".

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-ring-group", capacity=10)
        >>> offset = ring.enqueue(b"one")
        >>> ring.group("audit").dequeue().value, ring.info().groups
        (b'one', {'default': 1, 'audit': 0})
        """
        check_name(name, what="group")
        if start not in ("earliest", "latest"):
            raise InvalidInput(f"a group starts at 'earliest' or 'latest', not at {shown(start)}")
        call, id = self._core.call()
        steps = make_group(self._core.memo, call, name, start == "latest")
        return Group(self._core, name, self._core.run(steps, id))

    def remove(self) -> None:
        """Remove the ring and all its entries from the store; the handle is closed.

        >>> import tidemill as tm
        >>> tm.Ring("memory:doc-remove", capacity=10).remove()
        >>> tm.Ring("memory:doc-remove")
        Traceback (most recent call last):
        tidemill.errors.NotAQueue: there is no ring 'doc-remove' at memory: give a capacity ...
        """
        call, id = self._core.call()
        self._core.run(remove_ring(self._core.memo, call), id)
        self.close()

    @staticmethod
    def remove_at(url: str, *, buffers: str | None = None) -> None:
        """Remove a ring without opening it, which takes no more than its own record.

        It is for a ring that cannot be opened any more, because the store of its buffers is gone,
        or has lost them. Entries go with it if they are in the same store, or in the one that
        `buffers` names; in any other they stay, and nobody looks at them again.

        >>> import tidemill as tm
        >>> tm.Ring("memory:doc-remove-at", capacity=10).close()
        >>> tm.Ring.remove_at("memory:doc-remove-at")
        >>> tm.Ring.remove_at("memory:doc-remove-at")
        Traceback (most recent call last):
        tidemill.errors.NotAQueue: there is no ring 'doc-remove-at' at memory
        """
        with ExitStack() as stack:
            store, name = open_records(url)
            stack.callback(store.close)
            apart: tuple[RecordStore, str | None] = (store, None)
            if buffers is not None:
                apart = open_records(buffers)
                stack.callback(apart[0].close)
            driver = Driver(name, store, apart[0])
            found = driver.run_beside(find_ring(name))
            if found is None:
                raise NotAQueue(f"there is no ring {name!r} at {store.place}")
            is_known = has_buffers(name, found, apart[1])
            memo = Memo(name, found.ring, apart[1])
            core = Core(memo, driver, LOCK_MS, patience_s=3 * LOCK_MS / 1_000, outlasts=True)
            call, id = core.call()
            core.run(remove_ring(memo, call, has_buffers=is_known), id)

    def close(self) -> None:
        """Let go of the store; the ring stays there. Closing again does nothing."""
        self._core.driver.close()
        owned, self._owned = self._owned, []
        for store in owned:
            store.close()

    def __repr__(self) -> str:
        return f"<Ring {self.name!r} at {self._place}>"

    def _fresh_memo(self) -> Memo:
        memo = self._core.memo
        return Memo(memo.name, memo.ring, memo.buffers)


def _info(state: Metadata) -> RingInfo:
    shape = state.geometry
    return RingInfo(
        capacity=shape.capacity,
        length=state.tail - state.head,
        head=state.head,
        tail=state.tail,
        slots_per_record=shape.slots,
        records=shape.records,
        entry_bytes_max=shape.entry_bytes_max,
        overwrites_max=shape.overwrites_max,
        overwritten=state.overwritten,
        fence=state.fence,
        locked=state.grant is not None,
        groups={group.name: state.tail - group.head for group in state.groups},
    )
