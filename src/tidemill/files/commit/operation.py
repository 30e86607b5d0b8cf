"""Operations: what is written to the journal together, and what it then does to the state.

An operation is prepared by the thread that wants it, drafted into records by whoever leads the
group commit (numbers and time are given then), and applied once it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.batch import PlainRow
from tidemill.files.commit.combining import Request
from tidemill.files.format.documents import natural, pack_document, parse_document
from tidemill.files.format.frame_table import Entry
from tidemill.files.format.record import ENVELOPE_BYTES, OFFSET_MAX, Kind, padded
from tidemill.files.journal.draft import Draft, LateBody, PreparedFrame
from tidemill.files.journal.scan import Damage
from tidemill.files.state.bucket import Keys
from tidemill.files.state.cut import CUT_BYTES, Cut, pack_cut
from tidemill.files.state.state import State
from tidemill.limits import LAST_ROOM_BYTES, SEGMENTS_MAX, SEQ_MAX
from tidemill.names import check_name

_CUT = Kind.CUT
CUT_RECORD_BYTES = padded(ENVELOPE_BYTES + CUT_BYTES)


class GivenRows(NamedTuple):
    """Rows in the order a caller gave them."""

    keys: Keys
    body: pa.RecordBatch  # as a frame holds them: the key first

    @property
    def row_count(self) -> int:
        return len(self.keys)

    @property
    def data_bytes(self) -> int:
        return int(self.body.nbytes)


class Operation(Request):
    """One operation on its way into the journal."""

    apart = False  # whether it is to have a segment of its own
    # How much room in its segment it leaves to what makes room; None: as much as pushes do, which
    # do not use up the disk either.
    leaves_bytes: int | None = 0
    frames: Sequence[PreparedFrame] = ()
    closing: Sequence[tuple[Kind, bytes]] = ()  # the records behind the frames
    entries: Sequence[Entry] = ()  # of the frames, once they are laid out
    places: Sequence[int] = ()  # of the closing records, likewise

    def __init__(
        self,
        sync: bool,
        frames: Sequence[PreparedFrame] = (),
        closing: Sequence[tuple[Kind, bytes]] = (),
    ) -> None:
        self.sync = sync
        self.frames = frames
        self.closing = closing

    @property
    def total_bytes(self) -> int:
        """What the operation takes in the journal."""
        total = 0
        for _, payload in self.closing:
            total += padded(ENVELOPE_BYTES + len(payload))
        for frame in self.frames:
            total += frame.record_bytes
        return total

    def draft(self, draft: Draft) -> None:
        """Lay out the records; the last one carries the commit mark."""
        frames, closing = self.frames, self.closing
        left = len(closing)
        if left:
            self.entries = [draft.add_frame(frame, commit=False) for frame in frames]
            self.places = places = []
            for kind, payload in closing:
                left -= 1
                places.append(draft.add(kind, payload, commit=not left))
        elif frames:
            others = [draft.add_frame(frame, commit=False) for frame in frames[:-1]]
            self.entries = [*others, draft.add_frame(frames[-1], commit=True)]

    def note_late_bodies(self, draft: Draft) -> None:
        """Called by operations that may have some."""
        draft.has_late_bodies |= any(isinstance(one.body.buffer, LateBody) for one in self.frames)

    def apply(self, state: State) -> None:
        """Do to the state what recovery would do on reading the records."""
        for entry, frame in zip(self.entries, self.frames, strict=True):
            if frame.seqs is None:
                state.push(entry.seq_min, entry.rows)


class Group(Operation):
    """Operations that share a write, one behind the other; each is applied by itself."""

    def __init__(self, members: Sequence[Operation]) -> None:
        super().__init__(any(member.sync for member in members))
        self.apart = any(member.apart for member in members)
        leaves = [member.leaves_bytes for member in members]
        self.leaves_bytes = None if None in leaves else max(filter(None, leaves), default=0)
        self._members = members

    @property
    def total_bytes(self) -> int:
        return sum(member.total_bytes for member in self._members)

    def draft(self, draft: Draft) -> None:
        for member in self._members:
            member.draft(draft)


class Push(Operation):
    """Items for every fork."""

    leaves_bytes = None

    @property
    def seqs(self) -> tuple[int, int]:
        return self.entries[0].seq_min, self.entries[-1].seq_max


class PushOne(Operation):
    """A single item, which may share a frame with others that wait at the same time; alone, it is
    given a frame of its own before it is written.

    Its seq is exact either way, since a range of one is still a range; larger pushes keep a frame
    of their own so that their numbers stay together.
    """

    leaves_bytes = None

    def __init__(self, row: GivenRows | PlainRow, sync: bool) -> None:
        super().__init__(sync)
        self.row = row
        self.seq = 0

    def apply(self, state: State) -> None:
        super().apply(state)
        self.seq = self.entries[0].seq_min


class PushTogether(Operation):
    """Single items that share their frames; `ranks` says which of the sorted rows each became."""

    leaves_bytes = None

    def __init__(
        self,
        members: list[PushOne],
        frames: Sequence[PreparedFrame],
        ranks: list[int],
    ) -> None:
        super().__init__(any(member.sync for member in members), frames)
        self.members = members
        self.ranks = ranks

    def apply(self, state: State) -> None:
        super().apply(state)
        first = self.entries[0].seq_min
        for member, rank in zip(self.members, self.ranks, strict=True):
            member.seq = first + rank


class Consume(Operation):
    """A take, delete or clear of one fork, with the items its read pushed back."""

    def __init__(
        self,
        fork: int,
        cut: Cut,
        rows: int,
        sync: bool,
        selection: Any = None,  # what the cursor chose; None if the cut came about otherwise
        frames: Sequence[PreparedFrame] = (),
    ) -> None:
        self.sync = sync
        self.frames = frames
        if frames:
            self.leaves_bytes = None
        elif selection is not None:
            self.leaves_bytes = LAST_ROOM_BYTES  # so that there is room for a delete of all
        self.selection = selection
        self.fork = fork
        self.cut = cut  # its place is known once it is laid out
        self.rows = rows

    @property
    def total_bytes(self) -> int:
        return CUT_RECORD_BYTES + super().total_bytes if self.frames else CUT_RECORD_BYTES

    def draft(self, draft: Draft) -> None:
        if self.frames:
            self.entries = [draft.add_frame(frame, commit=False) for frame in self.frames]
        _, arrived, low, high, seq = self.cut
        self.cut = Cut(draft.place, arrived, low, high, seq)
        draft.add(_CUT, pack_cut(self.fork, self.cut, self.rows), commit=True)

    def apply(self, state: State) -> None:
        if self.frames:
            super().apply(state)
        state.cut(self.fork, self.cut, self.rows)


class MakeFork(Operation):
    """A new consuming end that starts where its parent stands."""

    leaves_bytes = None

    def __init__(self, id: int, name: str, parent: int) -> None:
        document = {"id": id, "name": name, "parent": parent}
        super().__init__(sync=True, closing=_twice(Kind.FORK, document))
        self.id = id
        self.name = name
        self.parent = parent

    def apply(self, state: State) -> None:
        state.fork(self.id, self.name, self.parent, self.places[0])


class RemoveFork(Operation):
    """The end of a fork."""

    def __init__(self, id: int) -> None:
        super().__init__(sync=True, closing=_twice(Kind.REMOVE, {"id": id}))
        self.id = id

    def apply(self, state: State) -> None:
        state.remove(self.id)


class Retire(Operation):
    """The end of segments: what of them is still needed comes along as carried frames.

    `since` are the cuts that forks made while the frames were prepared. They are stated again
    behind the frames, so that they apply to them.
    """

    def __init__(
        self,
        segments: list[int],
        *,
        frames: Sequence[PreparedFrame] = (),
        audiences: dict[int, frozenset[int]] | None = None,
        since: Sequence[tuple[int, Cut]] = (),  # (fork, cut)
        live: dict[int, int] | None = None,  # what forks have left, if items were given up
        arrived: int = 0,  # ... of those up to this seq
        dropped: int = 0,
        apart: bool = False,
    ) -> None:
        self.apart = apart
        self.segments = segments
        self.audiences = audiences or {}
        self.since = since
        self.live = live or {}
        self.arrived = arrived
        self.dropped = dropped
        document = {
            "segments": segments,
            "audiences": [[id, sorted(forks)] for id, forks in self.audiences.items()],
            "live": list(self.live.items()),
            "arrived": arrived,
            "dropped": dropped,
        }
        closing = [(Kind.CUT, pack_cut(fork, cut, 0)) for fork, cut in since]
        closing += _twice(Kind.RETIRE, document)
        # Always synced: the segments are unlinked next, and nothing else holds their items.
        super().__init__(sync=True, frames=frames, closing=closing)

    def draft(self, draft: Draft) -> None:
        super().draft(draft)
        self.note_late_bodies(draft)

    def apply(self, state: State) -> None:
        super().apply(state)
        for (fork, cut), place in zip(self.since, self.places, strict=False):
            state.cut(fork, Cut(place, *cut[1:]), 0)
        state.retire(self.audiences, self.live, self.arrived, self.dropped)


class Quarantine(Operation):
    """Damaged records are set aside, all or none; `live` is what each fork has left without them,
    up to the seq `arrived`.
    """

    def __init__(self, damages: Sequence[Damage], live: dict[int, int], arrived: int) -> None:
        closing: list[tuple[Kind, bytes]] = []
        for place, length, rows, _ in damages:
            document = {"place": place, "rows": rows, "live": list(live.items())}
            document |= {"arrived": arrived, "length": length}
            closing += _twice(Kind.QUARANTINE, document)
        super().__init__(sync=True, closing=closing)
        self.damages = damages
        self.live = live
        self.arrived = arrived

    def apply(self, state: State) -> None:
        for place, length, rows, _ in self.damages:
            state.quarantine(place, rows, length, self.live, self.arrived)


def _twice(kind: Kind, document: dict[str, Any]) -> list[tuple[Kind, bytes]]:
    """A record that much hangs on, and that is rare: a second copy makes up for damage to the
    first.
    """
    return [(kind, pack_document(document))] * 2


def unpack_fork(payload: bytes) -> tuple[int, str, int]:
    """(id, name, id of the parent)."""
    return parse_document(
        payload,
        lambda found: (
            natural(found["id"]),
            check_name(found["name"], what="fork"),
            natural(found["parent"]),
        ),
    )


def unpack_remove(payload: bytes) -> int:
    return parse_document(payload, lambda found: natural(found["id"]))


def unpack_retire(
    payload: bytes,
) -> tuple[list[int], dict[int, frozenset[int]], dict[int, int], int, int]:
    """(segments, audiences, what forks have left, up to which seq, items dropped)."""
    return parse_document(
        payload,
        lambda found: (
            [natural(number, SEGMENTS_MAX) for number in found["segments"]],
            {natural(id): frozenset(map(natural, forks)) for id, forks in found["audiences"]},
            *_counts(found),
            natural(found["dropped"]),
        ),
    )


def unpack_quarantine(payload: bytes) -> tuple[int, int, int, dict[int, int], int]:
    """(place, rows, bytes or 0 if it does not say, what forks have left, up to which seq)."""
    return parse_document(
        payload,
        lambda found: (
            natural(found["place"]),
            natural(found["rows"]),
            natural(found.get("length", 0), OFFSET_MAX),
            *_counts(found),
        ),
    )


def _counts(found: Any) -> tuple[dict[int, int], int]:
    """(what forks have left, up to which seq)."""
    live = {natural(id): natural(count) for id, count in found["live"]}
    arrived = natural(found["arrived"], SEQ_MAX)
    if max(live.values(), default=0) > arrived:
        raise ValueError("a fork has more items left than had arrived")
    return live, arrived
