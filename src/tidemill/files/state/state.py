"""What the journal says, apart from the items: forks with their cuts, the next seq, the time. Pure.

Operations are applied in the order of the journal, by the writer as it commits them and by recovery
as it reads them, with the same methods, so that both arrive at the same state. Every segment starts
with this state, so that older ones can go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from tidemill.errors import Corrupt
from tidemill.files.format.documents import natural, pack_document, parse_document, whole
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import OFFSET_MAX
from tidemill.files.state.cut import Cut, Cuts, cover_all
from tidemill.files.state.log_state import LogState
from tidemill.limits import (
    FORKS_MAX,
    ID_MAX,
    SEGMENTS_MAX,
    SEQ_MAX,
    TIME_US_MAX,
)
from tidemill.names import check_name

ROOT = 0  # the id of the queue's own consuming end
EVERYONE = 0  # the audience of a frame that every fork may read


class ForkState:
    """One consuming end."""

    __slots__ = ("ancestors", "created", "cuts", "id", "live", "name")

    def __init__(
        self,
        id: int,
        name: str,
        created: int,
        ancestors: tuple[tuple[int, int], ...],
        live: int,
        cuts: Cuts,
    ) -> None:
        self.id = id
        self.name = name
        self.created = created  # the place of its record
        self.ancestors = ancestors  # (created, id) of the parent, its parent, ... up to the root
        self.live = live  # items it has yet to consume
        self.cuts = cuts

    def identity_at(self, place: int) -> int:
        """The id under which this fork, or the one it descends from, existed when `place` was
        written.
        """
        if self.created < place:
            return self.id
        for created, ancestor in self.ancestors:
            if created < place:
                return ancestor
        return ROOT

    def ancestors_since(self, place: int) -> tuple[tuple[int, int], ...]:
        """Those of the ancestors that `identity_at` may name for this place, or a later one."""
        if self.created < place:
            return ()
        for count, (created, _) in enumerate(self.ancestors, 1):
            if created < place:
                return self.ancestors[:count]
        return self.ancestors


def sees(
    fork: ForkState, audiences: Mapping[int, frozenset[int]], place: int, audience: int
) -> bool:
    """Whether a frame at `place` was meant for this fork."""
    if audience == EVERYONE:
        return True
    members = audiences.get(audience)
    # The record that named them is damaged and set aside: rather too many see the frame than too
    # few.
    return members is None or fork.identity_at(place) in members


class State:
    """The state that operations lead to."""

    def __init__(self) -> None:
        self.next_seq = 1
        self.time_us = 0
        self.next_fork = ROOT + 1
        self.next_audience = EVERYONE + 1
        self.epoch = 0
        self.dropped = 0  # items given up to stay below bytes_max
        self.forks: dict[int, ForkState] = {ROOT: ForkState(ROOT, "", 0, (), 0, Cuts())}
        self.audiences: dict[int, frozenset[int]] = {}
        self.quarantined: dict[int, int] = {}  # place → rows, of records set aside
        self.set_aside_bytes: dict[int, int] = {}  # place → bytes of these, where that is known
        self.adopted: dict[int, Origin] = {}  # segments that were another queue's, by number
        self.log = LogState()
        self.forgiving = (
            False  # while damage makes the counts uncertain; they are made anew afterwards
        )

    @property
    def arrived(self) -> int:
        """The seq of the last item pushed."""
        return self.next_seq - 1

    def named(self, name: str) -> ForkState | None:
        return next((fork for fork in self.forks.values() if fork.id and fork.name == name), None)

    def push(self, first_seq: int, rows: int) -> None:
        self.next_seq = max(self.next_seq, first_seq + rows)
        for fork in self.forks.values():
            fork.live += rows

    def begin_rows(self, first: int) -> None:
        """Let the rows of a log begin with this number; one without rows goes on from there."""
        self.log.trim(first)
        self.next_seq = max(self.next_seq, first)

    def skip(self, next_seq: int, time_us: int) -> None:
        """Numbers up to the next one are given to rows that are elsewhere."""
        if next_seq > self.next_seq:
            self.log.skip(self.next_seq, next_seq)
        self.next_seq = max(self.next_seq, next_seq)
        self.time_us = max(self.time_us, time_us)

    def cut(self, fork_id: int, cut: Cut, rows: int) -> None:
        fork = self.forks.get(fork_id)
        if fork is None and self.forgiving:
            return
        if fork is None:
            raise Corrupt(f"a cut names fork {fork_id}, which does not exist")
        fork.live -= rows
        if self.forgiving:
            fork.live = max(fork.live, 0)
            fork.cuts.add(cut)
            return
        if fork.live < 0:
            raise Corrupt(f"fork {fork.name!r} consumed more items than it had")
        if fork.live == 0:
            fork.cuts.replace_by(cover_all(cut.place, self.arrived))
        else:
            fork.cuts.add(cut)

    def fork(self, id: int, name: str, parent_id: int, place: int) -> None:
        parent = self.forks.get(parent_id)
        if parent is None and self.forgiving:
            # It is not known what the parent had consumed; rather too much is left to the fork than
            # too little.
            root = self.forks[ROOT]
            parent = ForkState(ROOT, "", root.created, (), 0, Cuts())
        if parent is None or id in self.forks:
            raise Corrupt(f"fork {name!r} has an unknown parent {parent_id} or a used id {id}")
        ancestors = ((parent.created, parent.id), *parent.ancestors)
        self.forks[id] = ForkState(id, name, place, ancestors, parent.live, parent.cuts.copy())
        self.next_fork = max(self.next_fork, id + 1)

    def remove(self, id: int) -> None:
        if id != ROOT and id not in self.forks and self.forgiving:
            return
        if id == ROOT or self.forks.pop(id, None) is None:
            raise Corrupt(f"fork {id} was removed, but does not exist")

    def retire(
        self,
        audiences: dict[int, frozenset[int]],
        live: dict[int, int],
        arrived: int,
        dropped: int,
    ) -> None:
        self.audiences.update(audiences)
        self.next_audience = max([self.next_audience, *(id + 1 for id in audiences)])
        self.dropped += dropped
        self.recount(live, arrived)

    def forget_gone(self, oldest: int, audiences: Set[int]) -> None:
        """Drop what served frames that are gone: none lies before the place `oldest`, and those
        that are not for every fork are for these audiences.
        """
        self.audiences = {id: forks for id, forks in self.audiences.items() if id in audiences}
        for fork in self.forks.values():
            fork.ancestors = fork.ancestors_since(oldest) if self.audiences else ()

    def quarantine(
        self, place: int, rows: int, length: int, live: dict[int, int], arrived: int
    ) -> None:
        self.quarantined[place] = rows
        if length:
            self.set_aside_bytes[place] = length
        self.recount(live, arrived)
        self.forgiving = False

    def recount(self, live: dict[int, int], arrived: int) -> None:
        """Correct what forks have left, counted among the items up to `arrived`; pushes went on
        meanwhile.
        """
        self.next_seq = max(self.next_seq, arrived + 1)
        for id, count in live.items():
            if id in self.forks:
                self.forks[id].live = count + self.arrived - arrived

    def become(self, other: State) -> None:
        """Be as the other, which has the same forks."""
        self.next_seq, self.time_us, self.dropped = other.next_seq, other.time_us, other.dropped
        self.next_fork, self.next_audience = other.next_fork, other.next_audience
        for fork in self.forks.values():
            twin = other.forks[fork.id]
            fork.created, fork.ancestors = twin.created, twin.ancestors
            fork.live, fork.cuts = twin.live, twin.cuts
        self.audiences, self.adopted = other.audiences, other.adopted
        # In place, because whoever sets records aside refers to it.
        self.quarantined.clear()
        self.quarantined.update(other.quarantined)
        self.set_aside_bytes = other.set_aside_bytes

    def to_json(self, segments: Iterable[int], previous_end: int) -> bytes:
        """The state as it opens a segment: which ones stand before it, and where the previous one
        ends.
        """
        segments = list(segments)
        document: dict[str, Any] = {
            "previous_end": previous_end,
            "segments": segments,
            "next_seq": self.next_seq,
            "time_us": self.time_us,
            "next_fork": self.next_fork,
            "next_audience": self.next_audience,
            "dropped": self.dropped,
            "forks": [
                {
                    "id": fork.id,
                    "name": fork.name,
                    "created": fork.created,
                    "ancestors": fork.ancestors,
                    "live": fork.live,
                    "cuts": fork.cuts.all(),
                }
                for fork in self.forks.values()
            ],
            "audiences": [[id, sorted(forks)] for id, forks in self.audiences.items()],
            "quarantined": list(self.quarantined.items()),
            "adopted": [[one, *self.adopted[one]] for one in segments if one in self.adopted],
        }
        if self.set_aside_bytes:
            document["set_aside_bytes"] = list(self.set_aside_bytes.items())
        if log := self.log.to_json():
            document["log"] = log
        return pack_document(document)

    @classmethod
    def from_json(cls, data: bytes | memoryview) -> tuple[State, list[int]]:
        """(state, numbers of the older segments); `Corrupt` if it makes no sense."""
        return parse_document(data, cls._of, "state")

    @classmethod
    def _of(cls, document: Any) -> tuple[State, list[int]]:
        state = cls()
        state.next_seq = natural(document["next_seq"], SEQ_MAX)
        state.time_us = natural(document["time_us"], TIME_US_MAX)
        state.next_fork = natural(document["next_fork"], ID_MAX)
        state.next_audience = natural(document["next_audience"], ID_MAX)
        state.dropped = natural(document["dropped"])
        state.forks = {}
        for item in document["forks"]:
            fork = _parse_fork(item)
            state.forks[fork.id] = fork
        if ROOT not in state.forks or len(state.forks) > FORKS_MAX + 1:
            raise ValueError("no root, or too many forks")
        if any(fork.live >= state.next_seq for fork in state.forks.values()):
            raise ValueError("a fork has more items left than ever arrived")
        for id, forks in document["audiences"]:
            members = frozenset(natural(fork, ID_MAX) for fork in forks)
            state.audiences[natural(id, ID_MAX)] = members
        for place, rows in document["quarantined"]:
            state.quarantined[natural(place)] = natural(rows)
        # Older releases did not note it.
        for place, length in document.get("set_aside_bytes", []):
            state.set_aside_bytes[natural(place)] = natural(length, OFFSET_MAX)
        # Folders that were written before segments could be adopted do not say.
        for number, written_as, shift, time_us in document.get("adopted", []):
            if not -SEQ_MAX <= whole(shift) <= SEQ_MAX:
                raise ValueError(f"no seqs grow by {shift}")
            origin = Origin(natural(written_as), shift, natural(time_us, TIME_US_MAX))
            state.adopted[natural(number)] = origin
        state.log = LogState.from_json(document.get("log"))
        return state, [natural(number, SEGMENTS_MAX) for number in document["segments"]]


def read_previous_end(data: bytes) -> int | None:
    """Where the previous segment ends, according to a state; None if there is none, or it makes no
    sense.
    """
    try:
        return parse_document(data, lambda found: natural(found["previous_end"])) or None
    except Corrupt:
        return None


def _parse_fork(item: dict[str, Any]) -> ForkState:
    id = natural(item["id"], ID_MAX)
    if id != ROOT:
        check_name(item["name"], what="fork")
    elif item["name"] != "":
        raise ValueError("the root has a name")
    return ForkState(
        id,
        item["name"],
        natural(item["created"]),
        tuple((natural(created), natural(ancestor)) for created, ancestor in item["ancestors"]),
        natural(item["live"]),
        Cuts(tuple(Cut(*(whole(number) for number in cut)) for cut in item["cuts"])),
    )
