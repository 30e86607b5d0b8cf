"""What is left of parts and expiries that were dropped: a few numbers for each replica.

Something dead is dropped when everybody who is known holds it. Two kinds may bring it back all the
same: a stranger, of whom nobody had heard by then, and one that nobody waits for any more, whose
parts a stranger has. These numbers tell when what comes may be older than what was dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidemill.counters.message import OWN, Drop, Flags, Ints


class Forgotten:
    """By the number of a replica. The first is this replica itself."""

    def __init__(self) -> None:
        self.turn = 0  # the last in which anything was dropped
        self.edition = 0  # the greatest of a dropped expiry
        self._size(1)

    def _size(self, size: int) -> None:
        """Columns together, as there is a number of each replica in all of them."""
        self._columns = np.zeros((4, size), dtype=np.int64)
        # The greatest generation that was dropped of the parts of this replica, and of each that
        # nobody waited for; 0: none was.
        self.generations: Ints = self._columns[0]
        # The edition and the turn above, as they were when each replica was first heard of, or
        # when something was dropped that nobody waited for it with.
        self.editions: Ints = self._columns[1]
        self.turns: Ints = self._columns[2]
        # The last turn of each replica in which it dropped something, of all that was heard here.
        self.last: Ints = self._columns[3]

    def meet(self, size: int) -> None:
        """There are so many replicas from now on; the new ones know of no drop."""
        old = self._columns
        met = old.shape[1]
        self._size(size)
        self._columns[:, :met] = old
        if self.turn:
            self.editions[met:] = self.edition
            self.turns[met:] = self.turn

    def drops(self) -> tuple[Drop, ...]:
        """For the disk."""
        if not self.turn:
            return ()
        self.editions[OWN], self.turns[OWN] = self.edition, self.turn
        numbers = (self.generations | self.editions | self.turns).nonzero()[0]
        columns = numbers, self.generations[numbers], self.editions[numbers], self.turns[numbers]
        return tuple(map(Drop, *(column.tolist() for column in columns)))

    def load(self, drops: Sequence[Drop], local: Ints) -> None:
        """Take back what the disk has."""
        for drop in drops:
            number = local.item(drop.replica)
            self.generations[number] = drop.generation
            self.editions[number] = drop.edition
            self.turns[number] = drop.turn
        self.edition, self.turn = self.editions.item(OWN), self.turns.item(OWN)

    def hear(self, last: Ints, local: Ints) -> bool:
        """Note what a sender had heard of, whose message was merged; whether that is news."""
        if not len(last) or not np.count_nonzero(last > self.last[local]):
            return False
        self.last[local] = np.maximum(last, self.last[local])
        return True

    def inherit(self, turn: int, drops: Sequence[Drop], local: Ints) -> None:
        """Take over what the sender of everything had dropped, as if it had been here in this
        turn. Whoever it told of that, or waited for, has heard of it; others have not.
        """
        self.turn = turn
        heard = np.zeros(len(self.turns), dtype=np.bool_)
        heard[local] = True
        for drop in drops:
            number = local.item(drop.replica)
            self.generations[number] = max(self.generations.item(number), drop.generation)
            self.editions[number] = max(self.editions.item(number), drop.edition)
            heard[number] = not drop.turn
            if drop.replica == OWN:
                heard[number] = True
                self.edition = max(self.edition, drop.edition)
        heard[OWN] = False  # What is ours may be older, too.
        self.turns[~heard] = turn
        self.editions[~heard] = np.maximum(self.editions[~heard], self.edition)

    def drop(self, turn: int, owners: Ints, generations: Ints, edition: int, waited: Flags) -> None:
        """Parts of these were dropped, and expiries up to an edition. To those that nobody waits
        for, it is as if they had not been there.
        """
        self.turn = self.last[OWN] = turn
        self.edition = max(self.edition, edition)
        self.turns[~waited] = turn
        self.editions[~waited] = self.edition
        # Whoever was waited for knew, and said so; of those no older part can come.
        kept = ~waited[owners] | (owners == OWN)
        np.maximum.at(self.generations, owners[kept], generations[kept])

    def may_be_dead(self, owners: Ints, generations: Ints) -> Flags:
        """Which parts that are not here may be older than one that was dropped."""
        older: Flags = generations < self.generations[owners]
        return older

    def may_be_old(self, by: Ints, editions: Ints) -> Flags:
        """Which expiries of counters that are not here may be older than one that was dropped."""
        older: Flags = editions <= self.editions[by]
        return older
