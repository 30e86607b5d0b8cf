"""Which rows of the columns a message brings."""

from __future__ import annotations

from tidemill.counters.counting import Counting
from tidemill.counters.message import NO_EXPIRIES, NO_PARTS, NOBODY, Expiries, Flags, Ints, Parts
from tidemill.counters.replica import Replica
from tidemill.counters.state import dots


class Telling(Counting):
    """The counters of one replica, as rows for others and for the disk."""

    def _parts(self, chosen: Flags, held: Ints | None = None, peer: Replica | None = None) -> Parts:
        table = self.state.table
        rows = chosen.nonzero()[0]
        if held is not None and len(rows):
            owner, version = table.owner[rows], table.version[rows]
            who, turn = dots(owner, version, table.by[rows], table.by_version[rows])
            number = NOBODY if peer is None else self.state.knowledge.find(peer)
            rows = rows[(held[who] < turn) & ((owner != number) | (version == 0))]
        if not len(rows):
            return NO_PARTS
        return Parts(
            [table.names[counter] for counter in table.counter[rows].tolist()],
            table.owner[rows],
            table.generation[rows],
            table.version[rows],
            table.value[rows],
            table.by[rows],
            table.by_version[rows],
        )

    def _expiries(self, chosen: Flags, held: Ints | None = None) -> Expiries:
        table = self.state.table
        rows = chosen.nonzero()[0]
        if held is not None and len(rows):
            rows = rows[held[table.expiry_by[rows]] < table.expiry_by_version[rows]]
        if not len(rows):
            return NO_EXPIRIES
        return Expiries(
            [table.names[counter] for counter in rows.tolist()],
            table.expiry_us[rows],
            table.edition[rows],
            table.expiry_by[rows],
            table.expiry_by_version[rows],
        )
