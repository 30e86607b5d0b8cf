"""Operations: what is written to the journal together, and what it then does to the state.

An operation is prepared by the thread that wants it, drafted into records by whoever leads the group commit (numbers and
time are given then), and applied once it is written.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemill.batch.frame import EncodedBody
from tidemill.batch.header import HEADER_BYTES, pack_header
from tidemill.errors import Corrupt
from tidemill.files.cut import Cut, pack_cut
from tidemill.files.frame_table import Entry
from tidemill.files.record import Kind, Record, small_record, split_place
from tidemill.files.state import State

T = TypeVar("T")

_CHECK = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class PreparedFrame:
    """Sorted rows of one bucket, encoded; only numbers and time are missing."""

    bucket: int
    body: EncodedBody
    key_min: int
    key_max: int
    fingerprint: int
    seqs: tuple[int, int] | None = None  # (least, greatest) of a carried frame, which has its own
    audience: int = 0


@dataclass(slots=True)
class Draft:
    """What the leader hands out: the next number and the time of this commit."""

    next_seq: int
    time_us: int


class Operation:
    """One operation on its way into the journal."""

    __slots__ = ("done", "entries", "failure", "frames", "sync", "wakeup")

    def __init__(self, *, sync: bool, frames: Sequence[PreparedFrame] = ()) -> None:
        self.sync = sync
        self.frames = frames
        self.entries: list[Entry] = []
        self.done = False
        self.failure: BaseException | None = None
        self.wakeup = threading.Lock()
        self.wakeup.acquire()

    def draft(self, draft: Draft) -> list[Record]:
        """The records, numbered from the draft on."""
        records = []
        for frame in self.frames:
            records.append(self._draft_frame(frame, draft))
        return records + self.closing(draft)

    def closing(self, draft: Draft) -> list[Record]:
        """The records behind the frames."""
        return []

    def apply(self, state: State, places: list[int]) -> None:
        """Do to the state what recovery would do on reading these records."""
        for position, (frame, place) in enumerate(zip(self.frames, places, strict=False)):
            segment, offset = split_place(place)
            self.entries[position] = self.entries[position]._replace(segment=segment, offset=offset)
            if frame.seqs is None:
                entry = self.entries[position]
                state.push(entry.seq_min, entry.rows, state.time_us)

    def _draft_frame(self, frame: PreparedFrame, draft: Draft) -> Record:
        body = frame.body
        if frame.seqs is None:
            seqs = draft.next_seq, draft.next_seq + body.rows - 1
            draft.next_seq += body.rows
        else:
            seqs = frame.seqs
        header = pack_header(
            rows=body.rows,
            first_seq=seqs[0],
            key_min=frame.key_min,
            key_max=frame.key_max,
            time_us=draft.time_us,
            fingerprint=frame.fingerprint,
            body_bytes=len(body.buffer),
            body_check=body.check,
            codec=body.codec,
            carried=frame.seqs is not None,
            producer_number=0 if frame.seqs is None else seqs[1],
        )
        check = _CHECK.unpack_from(header, HEADER_BYTES - 8)[0]
        length = HEADER_BYTES + len(body.buffer)
        self.entries.append(
            Entry(
                0,
                frame.bucket,
                frame.key_min,
                frame.key_max,
                *seqs,
                check,
                0,
                length,
                body.rows,
                frame.audience,
            )
        )
        return Record(
            Kind.FRAME,
            (header, body.buffer),
            length,
            check,
            rows=body.rows,
            audience=frame.audience,
        )


class Push(Operation):
    """Items for every fork."""

    __slots__ = ()

    @property
    def seqs(self) -> tuple[int, int]:
        return self.entries[0].seq_min, self.entries[-1].seq_max


class PushOne(Operation):
    """A single item, which may share a frame with others that wait at the same time.

    Its seq is exact either way, since a range of one is still a range; larger pushes keep a frame of their own so that
    their numbers stay together.
    """

    __slots__ = ("key", "payload", "seq", "time_us")

    def __init__(self, key: int, payload: Any, *, sync: bool) -> None:
        super().__init__(sync=sync)
        self.key = key
        self.payload = payload
        self.seq = 0
        self.time_us = 0


class PushTogether(Operation):
    """Single items that share their frames; `ranks` says which one of the sorted rows each became."""

    __slots__ = ("members", "ranks")

    def __init__(
        self,
        members: list[PushOne],
        frames: Sequence[PreparedFrame],
        ranks: NDArray[np.int64],
    ) -> None:
        super().__init__(sync=any(member.sync for member in members), frames=frames)
        self.members = members
        self.ranks = ranks

    def apply(self, state: State, places: list[int]) -> None:
        super().apply(state, places)
        first = self.entries[0].seq_min
        for member, rank in zip(self.members, self.ranks.tolist(), strict=True):
            member.seq = first + rank


class Consume(Operation):
    """A take, delete or clear of one fork, with the items its read pushed back."""

    __slots__ = ("cut", "fork", "rows", "selection")

    def __init__(
        self,
        fork: int,
        cut: Cut,
        rows: int,
        *,
        sync: bool,
        selection: Any = None,  # what the cursor chose; None if the cut came about otherwise
        frames: Sequence[PreparedFrame] = (),
    ) -> None:
        super().__init__(sync=sync, frames=frames)
        self.selection = selection
        self.fork = fork
        self.cut = cut
        self.rows = rows

    def closing(self, draft: Draft) -> list[Record]:
        return [small_record(Kind.CUT, pack_cut(self.fork, self.cut, self.rows))]

    def apply(self, state: State, places: list[int]) -> None:
        super().apply(state, places)
        state.cut(self.fork, self.cut._replace(place=places[-1]), self.rows)


class MakeFork(Operation):
    """A new consuming end that starts where its parent stands."""

    __slots__ = ("id", "name", "parent")

    def __init__(self, id: int, name: str, parent: int) -> None:
        super().__init__(sync=True)
        self.id = id
        self.name = name
        self.parent = parent

    def closing(self, draft: Draft) -> list[Record]:
        return [_document(Kind.FORK, {"id": self.id, "name": self.name, "parent": self.parent})]

    def apply(self, state: State, places: list[int]) -> None:
        state.fork(self.id, self.name, self.parent, places[-1])


class RemoveFork(Operation):
    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        super().__init__(sync=True)
        self.id = id

    def closing(self, draft: Draft) -> list[Record]:
        return [_document(Kind.REMOVE, {"id": self.id})]

    def apply(self, state: State, places: list[int]) -> None:
        state.remove(self.id)


class Retire(Operation):
    """The end of segments: what of them is still needed comes along as carried frames."""

    __slots__ = ("audiences", "dropped", "live", "segments")

    def __init__(
        self,
        segments: list[int],
        frames: Sequence[PreparedFrame],
        audiences: dict[int, frozenset[int]],
        live: dict[int, int],
        dropped: int,
    ) -> None:
        # Always synced: the segments are unlinked next, and nothing else holds their items.
        super().__init__(sync=True, frames=frames)
        self.segments = segments
        self.audiences = audiences
        self.live = live
        self.dropped = dropped

    def closing(self, draft: Draft) -> list[Record]:
        document = {
            "segments": self.segments,
            "audiences": [[id, sorted(forks)] for id, forks in self.audiences.items()],
            "live": list(self.live.items()),
            "dropped": self.dropped,
        }
        return [_document(Kind.RETIRE, document)]

    def apply(self, state: State, places: list[int]) -> None:
        super().apply(state, places)
        state.retire(self.audiences, self.live, self.dropped)


class Quarantine(Operation):
    """A damaged record is set aside; `count` gives what each fork has left without it."""

    __slots__ = ("live", "place", "rows")

    def __init__(self, place: int, rows: int, live: dict[int, int]) -> None:
        super().__init__(sync=True)
        self.place = place
        self.rows = rows
        self.live = live

    def closing(self, draft: Draft) -> list[Record]:
        document = {"place": self.place, "rows": self.rows, "live": list(self.live.items())}
        return [_document(Kind.QUARANTINE, document)]

    def apply(self, state: State, places: list[int]) -> None:
        state.quarantine(self.place, self.rows, self.live)


def unpack_fork(payload: bytes) -> tuple[int, str, int]:
    """(id, name, id of the parent)."""
    return _parse(
        payload, lambda found: (int(found["id"]), str(found["name"]), int(found["parent"]))
    )


def unpack_remove(payload: bytes) -> int:
    return _parse(payload, lambda found: int(found["id"]))


def unpack_retire(
    payload: bytes,
) -> tuple[list[int], dict[int, frozenset[int]], dict[int, int], int]:
    """(segments, audiences, what forks have left, items dropped)."""
    return _parse(
        payload,
        lambda found: (
            [int(number) for number in found["segments"]],
            {int(id): frozenset(int(fork) for fork in forks) for id, forks in found["audiences"]},
            {int(id): int(count) for id, count in found["live"]},
            int(found["dropped"]),
        ),
    )


def unpack_quarantine(payload: bytes) -> tuple[int, int, dict[int, int]]:
    """(place, rows, what forks have left)."""
    return _parse(
        payload,
        lambda found: (
            int(found["place"]),
            int(found["rows"]),
            {int(id): int(count) for id, count in found["live"]},
        ),
    )


def _document(kind: Kind, document: dict[str, Any]) -> Record:
    return small_record(kind, json.dumps(document, separators=(",", ":")).encode())


def _parse(payload: bytes, read: Callable[[Any], T]) -> T:
    try:
        return read(json.loads(payload))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Corrupt(f"the record makes no sense: {error}") from error
