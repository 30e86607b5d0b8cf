"""Applies the records of a journal to a state, in order, as recovery finds them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidemill.errors import Corrupt
from tidemill.files.commit.operation import (
    unpack_fork,
    unpack_quarantine,
    unpack_remove,
    unpack_retire,
)
from tidemill.files.format.record import Kind, split_place
from tidemill.files.journal.scan import Damage, Finding, Found, entry_of
from tidemill.files.journal.segment import Segment
from tidemill.files.journal.spine import SpineEntry
from tidemill.files.state.cut import unpack_cut
from tidemill.files.state.log_state import unpack_mark, unpack_note, unpack_skip, unpack_trim
from tidemill.files.state.state import State

logger = logging.getLogger(__name__)


class Replay:
    """One pass over the records that count."""

    def __init__(self, state: State, bucket_of: Callable[[int], int]) -> None:
        self._state = state
        self._bucket_of = bucket_of
        self._found: list[Damage] = []
        self._unsettled: set[int] = set()  # places of damage that was applied and not set aside yet
        self._copied: tuple[Kind, bytes] | None = None  # the last record of an unfinished operation
        self.retired: set[int] = set()

    @property
    def damages(self) -> list[Damage]:
        """The damage that has not been set aside yet."""
        return [damage for damage in self._found if damage.place not in self._state.quarantined]

    def index(self, segment: Segment, findings: list[Finding], *, apply: bool) -> None:
        """Note the frames of a segment; `apply` also does to the state what its operations did."""
        table = segment.table
        for found in findings:
            if isinstance(found, Damage):
                self._found.append(found)
                self._copied = None
                if apply:
                    # The items are gone, but their numbers are used up. Recounting corrects the
                    # forks later.
                    self._state.forgiving = True
                    self._unsettled.add(found.place)
                    self._state.push(self._state.next_seq, found.rows)
                continue
            self._state.epoch = max(self._state.epoch, found.envelope.epoch)
            offset = split_place(found.envelope.place)[1]
            try:
                if found.envelope.kind is Kind.FRAME and table is not None:
                    table.append(entry_of(found, self._bucket_of))
                if found.envelope.kind is Kind.STATE:
                    segment.start = offset + found.envelope.total_bytes
                elif apply:
                    self._apply(found)
            except Corrupt as damage:
                raise damage.at(segment.path, offset) from damage

    def _apply(self, found: Found) -> None:
        envelope, header, payload = found.envelope, found.header, found.payload
        if header is not None:
            if header.carried:
                # Where the records of its pushes are damaged, its own numbers still are used up.
                self._state.next_seq = max(self._state.next_seq, header.producer_number + 1)
            else:
                self._state.push(header.first_seq, header.rows)
            self._state.time_us = max(self._state.time_us, header.time_us)
            return
        this = envelope.kind, payload
        is_copy = this == self._copied
        self._copied = None if envelope.commit else this
        if is_copy:
            # Records that everything hangs on are written twice within their operation.
            return
        if envelope.kind is Kind.CUT:
            self._state.cut(*unpack_cut(payload, envelope.place))
        elif envelope.kind is Kind.FORK:
            self._state.fork(*unpack_fork(payload), envelope.place)
        elif envelope.kind is Kind.REMOVE:
            self._state.remove(unpack_remove(payload))
        elif envelope.kind is Kind.RETIRE:
            numbers, audiences, live, arrived, dropped = unpack_retire(payload)
            self.retired.update(numbers)
            self._state.retire(audiences, live, arrived, dropped)
        elif envelope.kind is Kind.QUARANTINE:
            place, rows, length, live, arrived = unpack_quarantine(payload)
            self._state.quarantine(place, rows, length, live, arrived)
            self._unsettled.discard(place)
            self._state.forgiving = bool(self._unsettled)
        elif envelope.kind is Kind.MARK:
            self._state.log.mark(unpack_mark(payload))
        elif envelope.kind is Kind.TRIM:
            self._state.begin_rows(unpack_trim(payload))
        elif envelope.kind is Kind.NOTE:
            self._state.log.note(*unpack_note(payload))
        elif envelope.kind is Kind.SKIP:
            self._state.skip(*unpack_skip(payload))


def set_aside_by(found: Found) -> dict[int, SpineEntry]:
    """By place, the records that this one says are set aside, as far as it tells their lengths: as
    entries of a spine, for they lead past those whose own length cannot be read.
    """
    kind = found.envelope.kind
    try:
        if kind is Kind.STATE:
            return set_aside_in(State.from_json(found.payload)[0])
        if kind is Kind.QUARANTINE:
            place, rows, length, _, _ = unpack_quarantine(found.payload)
            return {place: SpineEntry(place, length, rows, 0)} if length else {}
    except Corrupt as error:
        # Whoever applies the record is stopped by it; here it is a hint that is missing.
        logger.debug("a record does not tell what was set aside: %s", error)
    return {}


def set_aside_in(state: State) -> dict[int, SpineEntry]:
    """The same of a state."""
    rows = state.quarantined
    return {
        place: SpineEntry(place, length, rows.get(place, 0), 0)
        for place, length in state.set_aside_bytes.items()
    }
