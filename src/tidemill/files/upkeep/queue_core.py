"""What the consuming ends of one queue share: folder, upkeep, room, and what to do about damage."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import NoReturn

from tidemill.errors import Bug, Corrupt, ReadOnly
from tidemill.files import advice
from tidemill.files.commit.operation import Quarantine
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.count import count_left, damage_of
from tidemill.files.folder.folder import Folder
from tidemill.files.folder.quarantine import keep_copy
from tidemill.files.folder.view import View
from tidemill.files.format.record import split_place
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.journal.scan import Damage
from tidemill.files.journal.segment import segment_path
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.readers.follower import Follower
from tidemill.files.upkeep.maintenance import Maintenance
from tidemill.files.upkeep.room import Room

logger = logging.getLogger(__name__)


class QueueCore:
    """One open queue."""

    is_read_only = False

    def __init__(self, folder: Folder, maintenance: Maintenance, room: Room) -> None:
        self.folder = folder
        self.view: View = folder
        self.maintenance = maintenance
        self.room = room
        room.handle_damage = self.handle_damage
        self.forks_lock = threading.Lock()  # one fork is made or removed at a time

    def refusal(self) -> ReadOnly:
        """The error of a call that would change a queue that may only be read."""
        raise Bug("this queue may be changed")

    def close(self) -> None:
        """Finish what is under way and let the folder go."""
        self.folder.check_not_within()
        self.maintenance.stop()
        self.folder.close()

    def __del__(self) -> None:
        # Nobody is left who could close it.
        maintenance = self.__dict__.get("maintenance")
        if maintenance is not None:
            maintenance.abandon()

    def after_ack(self, items: int) -> None:
        """Called after a consumer has moved on, or is gone."""
        self.maintenance.after_ack(items)

    def handle_damage(self, damage: DamagedFrame) -> None:
        """Set a frame aside that turned out to be damaged, or raise, as the queue was told."""
        if self.folder.options.on_corruption == "abort":
            raise Corrupt(
                f"{damage.reason}; {advice.doctor(self.folder.path)} tells what is lost; open with "
                "on_corruption='continue' to set the record aside",
                path=damage.path,
                offset=damage.offset,
            ) from damage
        self.set_aside([damage_of(damage)])

    def set_aside(self, damages: list[Damage]) -> None:
        """Copy damaged records to the quarantine, and go on without them."""
        folder = self.folder
        known = folder.state.quarantined
        with folder.all_cursors() as cursors:
            found = {damage.place: damage for damage in damages if damage.place not in known}
            if not found:
                return
            arrived = folder.arrived
            live = count_left(folder, cursors, found, arrived)
            # Once it is said that they are set aside, their segments may go.
            copies = [self._keep_copy(damage) for damage in found.values()]
            # In one operation: what is left was counted without all of them.
            folder.commit(Quarantine(list(found.values()), live, arrived))
        for damage, copy in zip(found.values(), copies, strict=True):
            number, offset = split_place(damage.place)
            logger.error(
                "%s, offset %d: %s; %d items are lost, the bytes were copied to %s",
                segment_path(folder.journal.folder, number),
                offset,
                damage.reason,
                damage.rows,
                copy,
            )

    def _keep_copy(self, damage: Damage) -> Path:
        """Copy the bytes of a damaged record to the quarantine."""
        folder = self.folder
        number, offset = split_place(damage.place)
        with storage_errors(
            "setting aside a record of", segment_path(folder.journal.folder, number)
        ):
            segment = folder.journal.segments.get(number)
            # Of a segment that is missing there is nothing to keep.
            data = b"" if segment is None else segment.file.pread(damage.length, offset)
            return keep_copy(
                folder.fs, folder.path, place=damage.place, data=data, reason=damage.reason
            )


class ReaderCore(QueueCore):
    """One queue that is open to be read only. It has no folder of its own: whoever asks for it
    wants to change something.
    """

    is_read_only = True

    def __init__(self, follower: Follower) -> None:
        self.view = self._follower = follower
        self.forks_lock = threading.Lock()

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("folder", "maintenance", "room"):
            raise self.refusal()
        raise AttributeError(name)

    def refusal(self) -> ReadOnly:
        return ReadOnly(
            f"{self.view.path} was opened with read_only=True; only its owner changes it"
        )

    def handle_damage(self, damage: DamagedFrame) -> None:
        # Not the link that was read, which is gone when the reader is.
        path = segment_path(self.view.path / JOURNAL_NAME, damage.entry.segment)
        if not self.view.tolerates_damage:
            raise Corrupt(
                f"{damage.reason}; {advice.doctor(self.view.path)} tells what is lost; open with "
                "on_corruption='continue' to read past it",
                path=path,
                offset=damage.offset,
            ) from damage
        told = Corrupt(damage.reason, path=path, offset=damage.offset)
        logger.error("%s; read past it", told)
        self._follower.set_aside(damage_of(damage))

    def after_ack(self, items: int) -> None:
        pass  # The owner looks at the pointers when it is time for upkeep.

    def close(self) -> None:
        self._follower.close()
