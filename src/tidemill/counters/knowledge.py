"""Who holds what: the versions of every replica, as far as this one knows them.

A square of numbers: row i, column j is the last turn of replica j of which replica i holds all.
Row 0 is what this replica holds itself. Replicas say it of themselves and hand on what others said,
so that the square fills also where not everybody talks to everybody.

Invariant: rows never go back, as nobody says that they hold what is not on their disk.
"""

from __future__ import annotations

import numpy as np

from tidemill.counters.forgetting import Forgotten
from tidemill.counters.message import OWN, Drop, Flags, Ints, Message, Removal
from tidemill.counters.replica import Replica
from tidemill.errors import TooLarge
from tidemill.limits import REPLICAS_MAX


class Knowledge:
    """Replicas by number, what they hold, and who was removed."""

    def __init__(self, replica: Replica) -> None:
        self.replicas: list[Replica] = [replica]
        self._index: dict[Replica, int] = {replica: OWN}
        self.known = np.zeros((1, 1), dtype=np.int64)
        self.versions: Ints = self.known[OWN]  # what this replica holds: the row, not a copy
        self.removed: dict[int, Removal] = {}
        self.forgotten = Forgotten()
        # A turn of each replica, the last one heard of, and whether it had something to drop then.
        self._needy = np.zeros((2, 1), dtype=np.int64)
        self._rank: Ints | None = None  # not made since the last replica was added
        self._numbers: Ints = np.zeros(1, dtype=np.int64)

    @property
    def rank(self) -> Ints:
        """Orders replicas the same way everywhere; the last is nobody, whose number is −1."""
        if self._rank is None:
            size = len(self.replicas)
            self._rank = np.full(size + 1, -1, dtype=np.int64)
            self._rank[sorted(range(size), key=self.replicas.__getitem__)] = np.arange(size)
        return self._rank

    def find(self, replica: Replica) -> int | None:
        return self._index.get(replica)

    def add(self, replicas: list[Replica]) -> Ints:
        """Their numbers here; new ones get one."""
        if replicas == self.replicas:
            return self._numbers
        index = self._index
        numbers = list(map(index.get, replicas))
        if None in numbers:
            new = [replica for replica in replicas if replica not in index]
            size = len(self.replicas) + len(new)
            if size > REPLICAS_MAX:
                raise TooLarge(
                    f"{size} replicas are known, {REPLICAS_MAX} may be; keep the state of nodes on "
                    "disk, so that a restart is no new incarnation"
                )
            known = np.zeros((size, size), dtype=np.int64)
            known[: len(self.replicas), : len(self.replicas)] = self.known
            self.known, self.versions = known, known[OWN]
            for replica in new:
                index[replica] = len(self.replicas)
                self.replicas.append(replica)
            self.forgotten.meet(size)
            needy = np.zeros((2, size), dtype=np.int64)
            needy[:, : self._needy.shape[1]] = self._needy
            self._needy = needy
            self._rank = None
            self._numbers = np.arange(size)
            numbers = list(map(index.get, replicas))
        return np.array(numbers, dtype=np.int64)

    def learn(self, message: Message, local: Ints) -> bool:
        """What the sender says of itself and of others; whether any of it is new."""
        is_news = self._raise(local.item(0), message.versions, local)
        for number, versions in message.known.items():
            # What we hold ourselves, nobody else can tell us.
            if (row := local.item(number)) != OWN:
                is_news |= self._raise(row, versions, local)
        if len(message.needy):
            later = message.versions > self._needy[0, local]
            self._needy[:, local[later]] = message.versions[later], message.needy[later]
        return is_news

    def hold(self, message: Message, local: Ints) -> bool:
        """All that the sender holds is held here, too; whether that is more than before."""
        return self._raise(OWN, message.versions, local)

    def remove(self, number: int, by: int, by_version: int) -> bool:
        """Nobody waits for the replica any more; whether that is new."""
        removal = Removal(number, by, by_version)
        old = self.removed.get(number)
        if old is not None and self._order(old) >= self._order(removal):
            return False
        self.removed[number] = removal
        return True

    def needy(self, has_dead: bool) -> Ints:
        """Who has something to drop, as far as is known; this replica has, or not."""
        self._needy[1, OWN] = has_dead
        return self._needy[1].copy()

    def drops(self) -> tuple[Drop, ...]:
        """What is left of what was dropped, for a peer that is told everything; with a turn for
        those who have still to be told.
        """
        return tuple(
            drop._replace(
                # Where our own parts begin is nobody else's concern.
                generation=drop.generation if drop.replica != OWN else 0,
                turn=drop.turn if self.known.item(drop.replica, OWN) < drop.turn else 0,
            )
            for drop in self.forgotten.drops()
        )

    def stable(self) -> Ints:
        """For each replica the last turn of which everybody who is waited for holds all."""
        waited = self.waited()
        # Of somebody of whom we know more than we hold, an older part may still be on its way.
        if self._is_ahead(waited):
            return np.zeros(len(self.replicas), dtype=np.int64)
        return self.known[waited].min(axis=0)

    def waited(self) -> Flags:
        """Who is waited for.

        A removed replica is, until all others know that it is removed: until then, one of them
        may still take something from it and hand it on.
        """
        waited = np.ones(len(self.replicas), dtype=np.bool_)
        if self.removed:
            waited[list(self.removed)] = False
            waited[OWN] = True
            least = self.known[waited].min(axis=0)
            for removal in self.removed.values():
                if least[removal.by] < removal.by_version:
                    waited[removal.replica] = True
        return waited

    def is_ahead_of_all(self) -> bool:
        """Whether turns of a life that is over are held here which nobody else holds who lives."""
        if not self.removed:
            return False
        over = list(self.removed)
        living = np.ones(len(self.replicas), dtype=np.bool_)
        living[[OWN, *over]] = False
        theirs = self.known[living][:, over].max(axis=0, initial=0)
        return bool(np.count_nonzero(living) and np.count_nonzero(self.versions[over] > theirs))

    def _is_ahead(self, waited: Flags) -> bool:
        ahead = self.known.diagonal()[waited] > self.versions[waited]
        return bool(np.count_nonzero(ahead))

    def _raise(self, row: int, versions: Ints, local: Ints) -> bool:
        mine = self.known[row]
        held = mine[local]
        if not np.count_nonzero(versions > held):
            return False
        mine[local] = np.maximum(held, versions)
        return True

    def _order(self, removal: Removal) -> tuple[int, int]:
        return removal.by_version, self.rank.item(removal.by)
