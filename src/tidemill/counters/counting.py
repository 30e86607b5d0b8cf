"""What users do with the counters of one replica.

Counting one by one goes to a small buffer, the counters in use since the turn began, so that it
costs a dictionary and two additions; the columns get all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import SupportsIndex

import numpy as np
import pyarrow as pa

from tidemill.counters.adding import added, as_deltas, as_names
from tidemill.counters.message import OWN, Flags, Ints
from tidemill.counters.replica import Replica
from tidemill.counters.state import State
from tidemill.counters.table import NEVER
from tidemill.counters.ttl import EARLIEST_US, LATEST_US
from tidemill.errors import (
    CounterExpired,
    CounterOverflow,
    InvalidInput,
    InvalidName,
    NoSuchCounter,
    ReadOnly,
    TidemillError,
)
from tidemill.limits import INT64_MAX, INT64_MIN
from tidemill.names import check_counter_name
from tidemill.shown import shown


class Counting:
    """The counters of one replica, as of now and here."""

    def __init__(self, replica: Replica, now_ns: Callable[[], int], *, is_reader: bool) -> None:
        self.replica = replica
        self.is_reader = is_reader
        self.state = State(replica, is_reader=is_reader)
        self.refusal: TidemillError | None = None  # why nothing is counted here any more
        self._now_ns = now_ns
        # For each name: the counter's value, this replica's part of it, when it expires.
        self._open: dict[str, list[int]] = {}

    @property
    def is_open(self) -> bool:
        """Whether something was counted that is not in the columns yet."""
        return bool(self._open)

    @property
    def changed_counters(self) -> int:
        """How many were changed in the open turn, one by one or many at once."""
        table = self.state.table
        stamped = np.count_nonzero(table.stamp[: table.parts] == self.state.turn)
        return len(self._open) + int(stamped)

    def upsert(self, name: str, delta: int = 1) -> int:
        """Add to a counter, which is made if it is not there, and return its new value."""
        try:
            entry = self._open.get(name)
        except TypeError:
            raise _no_name(name) from None
        if entry is None or type(delta) is not int or entry[2] != NEVER:
            return self._upsert_with_care(name, delta)
        total, own = entry[0] + delta, entry[1] + delta
        if not (INT64_MIN <= total <= INT64_MAX and INT64_MIN <= own <= INT64_MAX):
            raise _overflow(name)
        entry[0], entry[1] = total, own
        return total

    def upsert_many(
        self, names: Sequence[str] | pa.Array, deltas: int | Sequence[int] | Ints | pa.Array
    ) -> Ints:
        """Add to many counters, all of them or none; the value of each row's counter afterwards."""
        self.check_writable()
        unique, at = as_names(names)
        sums = added(as_deltas(deltas, len(at)), at, len(unique))
        if sums is None:
            raise CounterOverflow("the deltas of one counter add up to more than an int64 holds")
        self.fold()
        table = self.state.table
        for name in unique:
            if name not in table.index:
                check_counter_name(name)
        counters = np.array([table.index.get(name, -1) for name in unique], dtype=np.int64)
        old = counters[counters >= 0]
        totals, own, again, is_coarse = self._before(old)
        before = np.zeros((2, len(unique)), dtype=np.int64)
        places = np.flatnonzero(counters >= 0)
        before[:, places] = totals, own
        after = before + sums
        is_over = ((before ^ after) & (sums ^ after)) < 0
        for number in is_coarse.nonzero()[0].tolist():
            # What others counted may have left the range; this may bring it back.
            place = places.item(number)
            total = table.sum(old.item(number))[0] + sums.item(place)
            is_over[0, place] = not INT64_MIN <= total <= INT64_MAX
        over = np.flatnonzero(is_over.any(axis=0)).tolist()
        if over:
            raise _overflow(unique[over[0]])
        values = after[0][at]
        self.state.write_own(self.state.place(unique), after[1], anew=old[again])
        return values

    def get(self, name: str) -> int:
        """The value of a counter, with everything that was counted here and arrived here."""
        try:
            entry = self._open.get(name)
        except TypeError:
            raise _no_name(name) from None
        if entry is None:
            total, _, expiry_us = self._look(name)
        else:
            total, _, expiry_us = entry
        if self._is_past(expiry_us):
            raise CounterExpired(f"the counter {name!r} expired; upsert starts it again")
        if not INT64_MIN <= total <= INT64_MAX:
            raise CounterOverflow(
                f"the counter {name!r} has left the range of int64, to {total}: bring it back, or "
                "delete it"
            )
        return total

    def delete(self, name: str) -> None:
        """Let a counter be no more. What others add to a part that is known here, before they hear
        of it, is lost with it.
        """
        self.check_writable()
        self.fold()
        self._look(name)
        self.state.empty(np.array([self.state.table.index[name]]))

    def update_ttl(self, name: str, time_us: int | None) -> None:
        """Let a counter expire then, or never; one that expired, and is still here, lives again."""
        self.check_writable()
        if time_us is not None and not EARLIEST_US <= time_us <= LATEST_US:
            raise InvalidInput(f"{time_us} µs since 1970 lies beyond the years 1 to 9999")
        self.fold()
        self._look(name)
        counter = np.array([self.state.table.index[name]])
        self.state.expire_at(counter, NEVER if time_us is None else time_us)

    def expiry_us(self, name: str) -> int | None:
        """When a counter expires, or expired; None: it does not."""
        self.fold()
        _, _, time_us = self._look(name)
        return None if time_us == NEVER else time_us

    def all(self) -> tuple[dict[str, int], dict[str, int]]:
        """The counters that live, and those that expired and are not deleted yet."""
        self.fold()
        table = self.state.table
        counters = np.fromiter(table.index.values(), dtype=np.int64, count=len(table))
        totals, is_there, is_coarse = table.sums(counters)
        values = totals.tolist()
        for number in is_coarse.nonzero()[0].tolist():
            values[number] = table.sum(counters.item(number))[0]
        past = table.expiry_us[counters] <= self._now_ns() // 1_000
        live: dict[str, int] = {}
        expired: dict[str, int] = {}
        rows = zip(table.index, values, is_there.tolist(), past.tolist(), strict=True)
        for name, value, is_one, is_past in rows:
            if is_one:
                (expired if is_past else live)[name] = value
        return live, expired

    def parts(self, name: str) -> dict[Replica, int]:
        """What each replica counted."""
        self.fold()
        self._look(name)
        state = self.state
        return {
            state.knowledge.replicas[state.table.owner.item(row)]: state.table.value.item(row)
            for row in state.table.chain(state.table.index[name])
            if state.table.version.item(row) > 0
        }

    def fold(self) -> None:
        """Put what was counted one by one into the columns."""
        if not self._open:
            return
        own = np.array([entry[1] for entry in self._open.values()], dtype=np.int64)
        self.state.write_own(self.state.place(list(self._open)), own)
        # Only now: what breaks off before is done again, as the buffer holds values, not deltas.
        self._open = {}

    def delete_expired(self) -> int:
        """Begin a new generation of all counters that have expired by now."""
        table = self.state.table
        past = table.expiry_us[: table.counters] <= self._now_ns() // 1_000
        past &= table.first[: table.counters] >= 0
        counters = past.nonzero()[0]
        if len(counters):
            counters = counters[table.sums(counters)[1]]
        if len(counters) and not self.is_reader:
            self.state.empty(counters)
        return len(counters)

    def refuse(self, error: TidemillError) -> None:
        """Let every later write raise this."""
        self.refusal = error
        # Also those of counters in use, which look nowhere but in the buffer.
        self.fold()

    def check_writable(self) -> None:
        if self.refusal is not None:
            raise self.refusal
        if self.is_reader:
            raise ReadOnly("this replica of the counters is read-only; count on another node")

    def _upsert_with_care(self, name: str, delta: int) -> int:
        """An upsert of a counter that was not in use since the turn began, or that may expire."""
        self.check_writable()
        delta = _checked_delta(delta)
        entry = self._open.get(name)
        if entry is not None and self._is_past(entry[2]):
            self.fold()
            entry = None
        if entry is None:
            entry = self._enter(name)
        total, own = entry[0] + delta, entry[1] + delta
        if not (INT64_MIN <= total <= INT64_MAX and INT64_MIN <= own <= INT64_MAX):
            raise _overflow(name)
        entry[0], entry[1] = total, own
        self._open[name] = entry
        return total

    def _enter(self, name: str) -> list[int]:
        table = self.state.table
        counter = table.index.get(name)
        if counter is None:
            check_counter_name(name)
            self.state.check_room(1 + len(self._open))
            return [0, 0, NEVER]
        total, own, is_there = 0, 0, False
        row = table.first.item(counter)
        while row >= 0:
            value = table.value.item(row)
            total += value
            is_there = is_there or table.version.item(row) > 0
            if table.owner.item(row) == OWN:
                own = value
            row = table.next.item(row)
        expiry_us = table.expiry_us.item(counter)
        if expiry_us != NEVER and (not is_there or self._is_past(expiry_us)):
            self.state.empty(np.array([counter]))
            return [0, 0, NEVER]
        return [total, own, expiry_us]

    def _before(self, counters: Ints) -> tuple[Ints, Ints, Flags, Flags]:
        """The values of counters, this replica's parts of them, which of them start again, and of
        which the value may be none that int64 holds.
        """
        table = self.state.table
        totals, is_there, is_coarse = table.sums(counters)
        rows = table.find(counters, OWN)
        own = np.where(rows >= 0, table.value[rows], 0)
        expiry_us = table.expiry_us[counters]
        again = expiry_us != NEVER
        if np.count_nonzero(again):
            again &= ~is_there | (expiry_us <= self._now_ns() // 1_000)
            totals[again] = own[again] = 0
        return totals, own, again, is_coarse & ~again

    def _look(self, name: str) -> tuple[int, int, int]:
        table = self.state.table
        try:
            counter = table.index.get(name)
        except TypeError:
            raise _no_name(name) from None
        total, is_there = (0, False) if counter is None else table.sum(counter)
        if counter is None or not is_there:
            raise NoSuchCounter(f"there is no counter {shown(name)}; upsert makes one")
        return total, 0, table.expiry_us.item(counter)

    def _is_past(self, expiry_us: int) -> bool:
        return expiry_us != NEVER and expiry_us <= self._now_ns() // 1_000


def _checked_delta(delta: object) -> int:
    """A whole number of whatever kind; a truth value is none."""
    is_number = type(delta) is int or (
        isinstance(delta, SupportsIndex) and not isinstance(delta, bool | np.bool_)
    )
    if is_number and INT64_MIN <= (number := index(delta)) <= INT64_MAX:  # type: ignore[arg-type]
        return number
    raise InvalidInput(f"a delta is a whole number within int64, not {shown(delta)}")


def _no_name(name: object) -> InvalidName:
    """What has no hash, and so is not even looked for."""
    return InvalidName(f"a counter's name must be a string, not {type(name).__name__}")


def _overflow(name: str) -> CounterOverflow:
    return CounterOverflow(
        f"the counter {name!r}, or one node's part of it, would leave the range of int64; "
        "nothing was added"
    )
