"""Parts and counters in columns, and the way from a name to its parts.

    names ──▶ counter ──▶ first ──▶ part ──▶ next ──▶ part ──▶ nobody

A counter has as many parts as replicas counted in it, which are few; so its parts are a chain,
which many counters walk together, link by link. Rows that were dropped are used again.
"""

from __future__ import annotations

import numpy as np

from tidemill.counters.message import Flags, Ints
from tidemill.limits import INT64_MAX

NEVER = INT64_MAX  # when a counter expires that does not
NONE = -1
_FREE = -2  # the first part of a counter that is none
_ROWS_MIN = 16


class Table:
    """The columns, which grow by doubling. `stamp` is the turn of ours that changed a row."""

    _PART_COLUMNS = (
        "counter",
        "owner",
        "generation",
        "version",
        "value",
        "by",
        "by_version",
        "stamp",
        "next",
    )
    _COUNTER_COLUMNS = (
        "first",
        "expiry_us",
        "edition",
        "expiry_by",
        "expiry_by_version",
        "expiry_stamp",
    )

    few = 8  # rows that are sooner found and linked one by one than together

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.names: list[str] = []  # by counter; "" if the row is free
        self.parts = 0  # rows in use or free; what is behind was never used
        self._free_parts: list[int] = []
        self._free_counters: list[int] = []
        # Never empty, so that a row that is none is not out of bounds. Small columns lie together:
        # a node is made at once.
        rows = np.zeros((15, _ROWS_MIN), dtype=np.int64)
        self.counter, self.owner, self.generation, self.version, self.value = rows[:5]
        self.by, self.by_version, self.stamp, self.next = rows[5:9]
        self.first, self.expiry_us, self.edition = rows[9:12]
        self.expiry_by, self.expiry_by_version, self.expiry_stamp = rows[12:]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def counters(self) -> int:
        """Rows of counters, in use or free."""
        return len(self.names)

    def place(self, names: list[str]) -> Ints:
        """The counters of these names; those that are not there yet are made."""
        index = self.index
        found = list(map(index.get, names))
        if None in found:
            new = [name for name, counter in zip(names, found, strict=True) if counter is None]
            self._new_counters(list(dict.fromkeys(new)))
            found = list(map(index.get, names))
        return np.array(found, dtype=np.int64)

    def find(self, counters: Ints, owners: Ints | int) -> Ints:
        """The part of each owner in each counter, or none."""
        if len(counters) <= self.few:
            return self._find_few(counters.tolist(), owners)
        rows: Ints = self.first[counters]
        while True:
            other = (rows >= 0) & (self.owner[rows] != owners)
            if not np.count_nonzero(other):
                return rows
            rows = np.where(other, self.next[rows], rows)

    def chain(self, counter: int) -> list[int]:
        """All parts of one counter."""
        rows = []
        row = self.first.item(counter)
        while row >= 0:
            rows.append(row)
            row = self.next.item(row)
        return rows

    def new_parts(self, counters: Ints, owners: Ints | int) -> Ints:
        """Rows for parts that are not there, linked to their counters; no part is given twice."""
        if len(counters) <= self.few:
            return self._new_few(counters.tolist(), owners)
        reused = min(len(counters), len(self._free_parts))
        fresh = len(counters) - reused
        if self.parts + fresh > len(self.counter):
            self._grow(self._PART_COLUMNS, self.parts + fresh)
        rows = np.arange(self.parts - reused, self.parts + fresh)
        if reused:
            rows[:reused] = self._free_parts[-reused:]
        # The other columns are 0, where a row was never used and where its part was dropped. They
        # are in use only then: a row that nobody deleted and no chain leads to does no harm.
        self.by[rows] = NONE
        self.counter[rows] = counters
        self.owner[rows] = owners
        if reused:
            del self._free_parts[-reused:]
        self.parts += fresh
        # Several may belong to one counter: each round links one of each, the last one written.
        left = rows
        while len(left):
            of = self.counter[left]
            # Before it is the first, so that no chain ever leads astray.
            self.next[left] = self.first[of]
            self.first[of] = left
            left = left[self.first[of] != left]
        return rows

    def drop_part(self, row: int) -> None:
        """Take a part out of its counter; the row is free."""
        counter = self.counter.item(row)
        after = self.next.item(row)
        at = self.first.item(counter)
        if at == row:
            self.first[counter] = after
        else:
            while self.next.item(at) != row:
                at = self.next.item(at)
            self.next[at] = after
        self.generation[row] = self.version[row] = self.value[row] = 0
        self.by_version[row] = self.stamp[row] = 0
        self.counter[row] = self.by[row] = NONE
        self._free_parts.append(row)

    def drop_counter(self, counter: int) -> None:
        """Forget a counter that has no parts."""
        del self.index[self.names[counter]]
        self.names[counter] = ""
        self.first[counter] = _FREE
        self.edition[counter] = self.expiry_by_version[counter] = self.expiry_stamp[counter] = 0
        self._free_counters.append(counter)

    def bare(self) -> Ints:
        """Counters that have no parts left."""
        return (self.first[: self.counters] == NONE).nonzero()[0]

    def sums(self, counters: Ints) -> tuple[Ints, Flags, Flags]:
        """For each counter its value, whether anybody counted in it since it was deleted, and
        whether the value is one that int64 may not hold (then it is not right, either).
        """
        totals = np.zeros(len(counters), dtype=np.int64)
        # An int64 sum wraps; the float beside it is too coarse to be the value, but not to tell.
        coarse = np.zeros(len(counters))
        is_there = np.zeros(len(counters), dtype=np.bool_)
        rows: Ints = self.first[counters]
        at = np.arange(len(counters))
        while True:
            linked = rows >= 0
            if np.count_nonzero(linked) < len(rows):
                rows, at = rows[linked], at[linked]
            if not len(rows):
                return totals, is_there, np.abs(coarse) >= 2.0**62
            values = self.value[rows]
            totals[at] += values
            coarse[at] += values
            is_there[at] |= self.version[rows] > 0
            rows = self.next[rows]

    def sum(self, counter: int) -> tuple[int, bool]:
        """The exact value of one counter, of any size, and whether anybody counted in it."""
        total, is_there = 0, False
        row = self.first.item(counter)
        while row >= 0:
            total += self.value.item(row)
            is_there = is_there or self.version.item(row) > 0
            row = self.next.item(row)
        return total, is_there

    def _find_few(self, counters: list[int], owners: Ints | int) -> Ints:
        first, after, owner = self.first.item, self.next.item, self.owner.item
        rows = []
        for counter, one in zip(counters, _each(owners, len(counters)), strict=True):
            row = first(counter)
            while row >= 0 and owner(row) != one:
                row = after(row)
            rows.append(row)
        return np.array(rows, dtype=np.int64)

    def _new_few(self, counters: list[int], owners: Ints | int) -> Ints:
        if self.parts + len(counters) > len(self.counter):
            self._grow(self._PART_COLUMNS, self.parts + len(counters))
        rows = []
        for counter, owner in zip(counters, _each(owners, len(counters)), strict=True):
            is_reused = bool(self._free_parts)
            row = self._free_parts.pop() if is_reused else self.parts
            self.by[row], self.counter[row], self.owner[row] = NONE, counter, owner
            if not is_reused:
                self.parts += 1
            self.next[row] = self.first.item(counter)
            self.first[counter] = row
            rows.append(row)
        return np.array(rows, dtype=np.int64)

    def _new_counters(self, names: list[str]) -> None:
        kept = max(0, len(self._free_counters) - len(names))
        reused = self._free_counters[kept:]
        start = len(self.names)
        end = start + len(names) - len(reused)
        if end > len(self.first):
            self._grow(self._COUNTER_COLUMNS, end)
        try:
            # The other columns are 0, as those of new parts.
            for counters in (reused, slice(start, end)):
                if counters:
                    self.first[counters] = self.expiry_by[counters] = NONE
                    self.expiry_us[counters] = NEVER
            for counter, name in zip(reused, names, strict=False):
                self.names[counter] = name
            self.names += names[len(reused) :]
            self.index.update(zip(names, [*reused, *range(start, end)], strict=True))
            del self._free_counters[kept:]
        except BaseException:
            # A row that no name leads to must not look like a counter.
            for name in names:
                self.index.pop(name, None)
            del self.names[start:]
            for counter in reused:
                self.names[counter] = ""
                self.first[counter] = _FREE
            self._free_counters[kept:] = reused
            raise

    def _grow(self, columns: tuple[str, ...], rows: int) -> None:
        size = max(_ROWS_MIN, 1 << (rows - 1).bit_length())
        # The first column last, as its length is that of all: where memory ends in between, some
        # of the others are just longer.
        for name in reversed(columns):
            old: Ints = getattr(self, name)
            if len(old) < size:
                column = np.zeros(size, dtype=np.int64)
                column[: len(old)] = old
                setattr(self, name, column)


def _each(owners: Ints | int, count: int) -> list[int]:
    return [owners] * count if isinstance(owners, int) else owners.tolist()
