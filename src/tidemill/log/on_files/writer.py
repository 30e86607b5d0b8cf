"""The right to append to a log in a folder."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.errors import Closed, Fenced
from tidemill.files.commit.log_operation import AppendRows, SkipRows
from tidemill.files.folder.folder import Folder
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.queue.receipt import Durability
from tidemill.log.contract import LogFrame, LogWriter, Mark, NoteChange, Reservation
from tidemill.log.numbering import Numbering
from tidemill.log.on_files.place import LogPlace, finish_seals
from tidemill.log.refusals import note_changed, publisher_fenced


class FileWriter(LogWriter):
    """One publisher's right; the newest one of the process has it."""

    def __init__(self, place: LogPlace, folder: Folder) -> None:
        """Called under the mutex of the place."""
        self._place = place
        self._folder = folder
        self.epoch = place.next_epoch(folder)
        self._numbering = Numbering(folder.state.next_seq)
        self._active = 0  # the segment that was active when summaries were last seen to
        self._is_closed = False
        place.newest = self

    def mark(self, producer: str) -> Mark | None:
        with self._place.mutex:
            self._check()
            return self._folder.state.log.marks.get(producer)

    def reserve(self, rows: int, after: int | None = None) -> Reservation:
        # One lane, so that nothing else is under way; the folder numbers rows as it writes them.
        return self._numbering.reserve(rows, after)

    def append(
        self,
        lane: int,
        reservation: Reservation,
        frames: Sequence[LogFrame],
        marks: Sequence[Mark] = (),
    ) -> Durability:
        del lane
        with self._place.mutex:
            try:
                self._check()
                self._numbering.check(reservation)
                folder = self._folder
                for mark in marks:
                    folder.state.log.check_room(producer=mark.producer)
                prepared = [PreparedFrame(0, one.body, 0, 0, one.fingerprint) for one in frames]
                sync = folder.syncs_pushes
                folder.commit(AppendRows(reservation.first, prepared, marks, sync=sync))
                self._numbering.durable(reservation)
            except BaseException:
                self._numbering.withdraw(reservation)
                raise
            if folder.journal.active.number != self._active:
                self._active = folder.journal.active.number
                finish_seals(folder)
            return "synced" if sync else "buffered"

    def skip(
        self, reservation: Reservation, time_us: int, note: NoteChange, marks: Sequence[Mark] = ()
    ) -> Durability:
        with self._place.mutex:
            try:
                self._check()
                self._numbering.check(reservation)
                log = self._folder.state.log
                for mark in marks:
                    log.check_room(producer=mark.producer)
                log.check_room(note=note.name)
                if log.notes.get(note.name) != note.expected:
                    raise note_changed(note)
                self._folder.commit(
                    SkipRows(reservation.first, reservation.rows, time_us, marks, note[:2])
                )
                self._numbering.durable(reservation)
            except BaseException:
                self._numbering.withdraw(reservation)
                raise
            return "synced"

    def close(self) -> None:
        with self._place.mutex:
            self._is_closed = True
            if self._place.newest is self:
                self._place.disown()

    def _check(self) -> None:
        newest = self._place.newest
        if newest is not self and isinstance(newest, FileWriter):
            raise publisher_fenced(self.epoch, newest.epoch)
        if self._is_closed:
            raise Closed("the publisher was closed; open a new one")
        if newest is not self:
            # The newer one is closed already; this one is overtaken all the same.
            raise Fenced("a newer publisher took over; nothing of this one is written any more")
