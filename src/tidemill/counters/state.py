"""The state of one replica and the rule by which two of them become one.

A part is known by (counter, owner). Of two versions of it the greater (generation, version) is the
newer, and it is all there is: a merge keeps the newest of each part, so that the order in which
messages come, and how often, does not matter.

    generation 0:   version 3, value 40     the owner counted until its turn 3
    generation 1:   version 0, value  0     somebody deleted the counter, whose part it is
    generation 1:   version 9, value  5     the owner counted again

A part that is not here is new if its dot is: the turn of the replica that wrote it last, the owner
or, if the owner has not counted since, whoever began the generation. A dot that our versions cover
was here once; it was dropped, and stays so, whoever still has it.
"""

from __future__ import annotations

import numpy as np

from tidemill.counters.knowledge import Knowledge
from tidemill.counters.message import EMPTY, NOBODY, OWN, Expiries, Flags, Ints, Message, Parts
from tidemill.counters.replica import Replica
from tidemill.counters.table import NEVER, Table
from tidemill.errors import TooLarge
from tidemill.limits import COUNTERS_MAX


class State:
    """Parts, expiries, and who holds what. No clock, no disk, no network, no locks."""

    def __init__(self, replica: Replica, *, is_reader: bool = False) -> None:
        self.table = Table()
        self.knowledge = Knowledge(replica)
        self.turn = 1  # that changes belong to from now on, until it is closed
        self.edition = 0  # the last one of any expiry, seen here or anywhere
        self.is_changed = False  # in this turn
        self.has_dead = False  # there may be parts to drop
        self._is_reader = is_reader

    def place(self, names: list[str]) -> Ints:
        """The counters of these names, which are made if there is room."""
        table = self.table
        if len(table) + len(names) > COUNTERS_MAX:
            self.check_room(len(set(names) - table.index.keys()))
        return table.place(names)

    def check_room(self, new: int) -> None:
        """Raise `TooLarge` if there is no room for so many new counters."""
        if len(self.table) + new > COUNTERS_MAX:
            raise TooLarge(
                f"there are {len(self.table)} counters, {new} more were asked for, and "
                f"{COUNTERS_MAX} may be; delete some, or let them expire"
            )

    def write_own(self, counters: Ints, values: Ints, *, anew: Ints = EMPTY) -> None:
        """This replica's own parts of these counters have these values now. Those that begin
        `anew` are emptied before, once there is room for everything.
        """
        table = self.table
        rows = table.find(counters, OWN)
        new = rows < 0
        if np.count_nonzero(new):
            fresh = table.new_parts(counters[new], OWN)
            rows[new] = fresh
        if len(anew):
            self.empty(anew)
        if floor := self.knowledge.forgotten.generations.item(OWN):
            # Above all that others may still remember, of dead parts that came back as well.
            begun = rows[table.version[rows] == 0]
            table.generation[begun] = np.maximum(table.generation[begun], floor + 1)
        # The values last, and all at once: an interrupt must not leave any that nobody is told of.
        self.is_changed = True
        table.stamp[rows] = self.turn
        table.version[rows] = self.turn
        table.value[rows] = values

    def empty(self, counters: Ints) -> None:
        """Begin a new generation of every part that anybody counted in, and forget the expiry."""
        table = self.table
        rows = table.first[counters]
        while len(rows := rows[rows >= 0]):
            self._empty_parts(rows[table.version[rows] > 0])
            rows = table.next[rows]
        expiring = counters[table.expiry_us[counters] != NEVER]
        if len(expiring):
            self.expire_at(expiring, NEVER)

    def _empty_parts(self, rows: Ints) -> None:
        table = self.table
        table.generation[rows] += 1
        table.version[rows] = table.value[rows] = 0
        table.by[rows] = OWN
        table.by_version[rows] = table.stamp[rows] = self.turn
        self.is_changed = self.has_dead = True

    def expire_at(self, counters: Ints, time_us: int | Ints) -> None:
        """The counters expire then, whatever was said before."""
        table = self.table
        self.edition += 1
        table.expiry_us[counters] = time_us
        table.edition[counters] = self.edition
        table.expiry_by[counters] = OWN
        table.expiry_by_version[counters] = table.expiry_stamp[counters] = self.turn
        self.is_changed = True

    def merge_parts(self, parts: Parts, local: Ints, *, is_trusted: bool = False) -> Ints:
        """Take what is newer than what is here; `local` are the numbers that replicas have here.

        Returns the rows that hold the parts now, or held before what is newer.
        """
        table = self.table
        owner = local[parts.owner]
        by = local[parts.by]
        by[parts.by < 0] = NOBODY
        counters = self.place(parts.names)
        rows = table.find(counters, owner)
        absent = rows < 0
        absent_count = new_count = np.count_nonzero(absent)
        if absent_count:
            new = absent
            if not is_trusted:
                new = absent & ~self.covers(owner, parts.version, by, parts.by_version)
                new_count = np.count_nonzero(new)
            if new_count:
                rows[new] = table.new_parts(counters[new], owner[new])
            # Nothing is smaller than nothing: what is absent and not new is never newer.
            taken = new
            if absent_count < len(rows):
                taken = new | (~absent & self._is_newer(rows, parts, by))
        else:
            taken = self._is_newer(rows, parts, by)
        at = rows[taken]
        begun = at
        if len(at):
            begun = at[table.version[at] == 0]  # nobody counted in those, as far as was known here
            version = parts.version[taken]
            table.generation[at] = parts.generation[taken]
            table.version[at] = version
            table.value[at] = parts.value[taken]
            table.by[at] = by[taken]
            table.by_version[at] = parts.by_version[taken]
            table.stamp[at] = self.turn
            self.is_changed = True
            self.has_dead = self.has_dead or bool(np.count_nonzero(version == 0))
        if len(begun) and not is_trusted:
            self._doubt_parts(begun)
        if new_count < absent_count:
            self._forget_bare(counters[absent])
        return rows

    def merge_expiries(self, expiries: Expiries, local: Ints, *, is_trusted: bool = False) -> None:
        """The newest edition of each counter's expiry wins."""
        table = self.table
        by = local[expiries.by]
        counters = self.place(expiries.names)
        mine = table.edition[counters]
        rank = self.knowledge.rank
        newer = (expiries.edition > mine) | (
            (expiries.edition == mine) & (rank[by] > rank[table.expiry_by[counters]])
        )
        if not is_trusted:
            # Where none is here, a covered one was dropped with its counter.
            versions = self.knowledge.versions
            newer &= (mine > 0) | (versions[by] < expiries.by_version)
        at = counters[newer]
        if len(at):
            table.expiry_us[at] = expiries.time_us[newer]
            table.edition[at] = expiries.edition[newer]
            table.expiry_by[at] = by[newer]
            table.expiry_by_version[at] = expiries.by_version[newer]
            table.expiry_stamp[at] = self.turn
            self.is_changed = True
            # One of a counter without parts is dropped as those are.
            self.has_dead = self.has_dead or bool(np.count_nonzero(table.first[at] < 0))
            if not is_trusted:
                self._doubt_expiries(at[mine[newer] == 0])
        self._forget_bare(counters)

    def _doubt_parts(self, rows: Ints) -> None:
        """Delete those parts that may have been deleted, and forgotten, before.

        We cannot know; others may. To say it anew is to have all agree again.
        """
        knowledge, table = self.knowledge, self.table
        if self._is_reader or not knowledge.forgotten.turn:
            return
        rows = rows[(table.version[rows] > 0) & (table.owner[rows] != OWN)]
        doubted = knowledge.forgotten.may_be_dead(table.owner[rows], table.generation[rows])
        if np.count_nonzero(doubted):
            self._empty_parts(rows[doubted])

    def _doubt_expiries(self, counters: Ints) -> None:
        """Say those expiries anew that may have been replaced, and forgotten, before."""
        knowledge, table = self.knowledge, self.table
        if self._is_reader or not (len(counters) and knowledge.forgotten.edition):
            return
        by, edition = table.expiry_by[counters], table.edition[counters]
        doubted = counters[knowledge.forgotten.may_be_old(by, edition)]
        if len(doubted):
            self.expire_at(doubted, table.expiry_us[doubted])

    def covers(self, owner: Ints, version: Ints, by: Ints, by_version: Ints) -> Flags:
        """Whether this replica's versions cover the dots of parts."""
        who, turn = dots(owner, version, by, by_version)
        return self.knowledge.versions[who] >= turn

    def _is_newer(self, rows: Ints, parts: Parts, by: Ints) -> Flags:
        table = self.table
        generation, version = table.generation[rows], table.version[rows]
        same = parts.generation == generation
        newer: Flags = (parts.generation > generation) | (same & (parts.version > version))
        # Two that began the same generation: one name for both, the same one everywhere.
        if np.count_nonzero(version) < len(version):
            tied = same & (parts.version == 0) & (version == 0)
            mine, rank = table.by_version[rows], self.knowledge.rank
            newer |= tied & (
                (parts.by_version > mine)
                | ((parts.by_version == mine) & (rank[by] > rank[table.by[rows]]))
            )
        return newer

    def drop_dead(self) -> int:
        """Forget parts that nobody counted in since they were deleted, once everybody knows.

        Those of the open turn stay: the disk would bring back what they were before.
        """
        if not self.has_dead:
            return 0
        table, stable = self.table, self.knowledge.stable()
        used = slice(0, table.parts)
        by, by_version = table.by[used], table.by_version[used]
        dead = (table.version[used] == 0) & (by >= 0) & (stable[by] >= by_version)
        dead &= table.stamp[used] < self.turn
        rows = dead.nonzero()[0]
        owners, generations = table.owner[rows], table.generation[rows]
        for row in rows.tolist():
            table.drop_part(row)
        bare = table.bare()
        by, by_version = table.expiry_by[bare], table.expiry_by_version[bare]
        closed = table.expiry_stamp[bare] < self.turn
        gone = bare[closed & ((by < 0) | (stable[by] >= by_version))]
        if not self._is_reader:
            # The disk would bring it back, for a counter that was made anew meanwhile.
            pending = table.expiry_us[gone] != NEVER
            if np.count_nonzero(pending):
                self.expire_at(gone[pending], NEVER)
                gone = gone[~pending]
        edition = table.edition[gone].max(initial=0).item()
        for counter in gone.tolist():
            table.drop_counter(counter)
        if len(rows) or len(gone):
            waited = self.knowledge.waited()
            self.knowledge.forgotten.drop(self.turn, owners, generations, edition, waited)
            # Who was not waited for is told everything, until it holds this turn: it has to end.
            self.is_changed = True
        left = (table.version[used] == 0) & (table.by[used] >= 0)
        self.has_dead = len(bare) > len(gone) or bool(np.count_nonzero(left))
        return len(rows)

    def drop_absent(self, rows: Ints, message: Message, local: Ints) -> None:
        """Give up what the sender of everything it has does not have any more, and had.

        `rows` are the parts that it has. Whoever counts says so, as others may have it from us; a
        reader just drops it.
        """
        table = self.table
        versions = np.zeros(len(self.knowledge.replicas), dtype=np.int64)
        versions[local] = message.versions
        parts, expiring = self._unmentioned(rows, message.expiries.names)
        who, turn = dots(
            table.owner[parts], table.version[parts], table.by[parts], table.by_version[parts]
        )
        gone = parts[versions[who] >= turn]
        expiring = expiring[table.expiry_us[expiring] != NEVER]
        by, by_version = table.expiry_by[expiring], table.expiry_by_version[expiring]
        expiring = expiring[versions[by] >= by_version]
        if self._is_reader:
            for row in gone.tolist():
                table.drop_part(row)
            table.expiry_us[expiring] = NEVER
            mentioned = set(message.expiries.names)
            for counter in table.bare().tolist():
                if table.names[counter] not in mentioned:
                    table.drop_counter(counter)
            return
        gone = gone[table.version[gone] > 0]
        if len(gone):
            self._empty_parts(gone)
        if len(expiring):
            self.expire_at(expiring, NEVER)

    def doubt_rest(self, rows: Ints, message: Message) -> None:
        """Decide about what the sender of everything does not have, and may have dropped, now that
        we have taken over what it forgot: nobody tells us of that again.
        """
        parts, expiring = self._unmentioned(rows, message.expiries.names)
        self._doubt_parts(parts)
        self._doubt_expiries(expiring)

    def _unmentioned(self, rows: Ints, names: list[str]) -> tuple[Ints, Ints]:
        """Parts that are not these, and counters with an expiry that are not named."""
        table = self.table
        used = slice(0, table.parts)
        parts = (table.counter[used] >= 0) & (table.stamp[used] > 0)
        parts[rows[rows >= 0]] = False
        expiring = table.edition[: table.counters] > 0
        expiring[[table.index[name] for name in names if name in table.index]] = False
        return parts.nonzero()[0], expiring.nonzero()[0]

    def _forget_bare(self, counters: Ints) -> None:
        """Let go of counters that got a row for something that turned out to be old."""
        table = self.table
        bare = (table.first[counters] < 0) & (table.edition[counters] == 0)
        if np.count_nonzero(bare):
            for counter in np.unique(counters[bare]).tolist():
                table.drop_counter(counter)


def dots(owner: Ints, version: Ints, by: Ints, by_version: Ints) -> tuple[Ints, Ints]:
    """For each part who wrote it last, and in which turn."""
    if np.count_nonzero(version) == len(version):
        return owner, version
    counted = version > 0
    return np.where(counted, owner, by), np.where(counted, version, by_version)
