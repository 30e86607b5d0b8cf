"""Repairs a folder: makes again what is derived, and sets damage aside if told to.

What it does, opening a queue does as well, with the same code; here it is done for all of the
folder at once, and told. Without being told to, nothing that holds items is touched.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidemill.clock import SystemClock
from tidemill.errors import Corrupt, InvalidInput
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.doctor.examination import Examination
from tidemill.files.folder.folder import Folder
from tidemill.files.folder.folder_options import FolderOptions
from tidemill.files.format.record import split_place
from tidemill.files.format.settings import DRAFT_NAME, LOG
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.journal.segment import segment_path
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.report import OnProgress, Report
from tidemill.files.sharing.lock import OwnerLock
from tidemill.files.sharing.pin import sweep_readers
from tidemill.files.sharing.pointers import FOLDER as CONSUMERS_NAME
from tidemill.files.sharing.pointers import sweep_pointers
from tidemill.files.state.bucket import BucketFunction
from tidemill.files.upkeep.carry import carry
from tidemill.shown import counted


class Treatment:
    """One repair of one folder."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        *,
        set_aside: bool,
        bucket: BucketFunction | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._fs = fs
        self._path = path
        self._set_aside = set_aside
        self._bucket = bucket
        self._on_progress = on_progress
        self._done: list[str] = []

    def run(self) -> Report:
        before = self._examine()
        with storage_errors("repairing", self._path):
            # Taken first, so that nothing is removed from a folder that is in use.
            lock = OwnerLock.acquire(self._fs, self._path)
            try:
                self._remove_leftovers(before)
            finally:
                lock.release()
        try:
            self._open(before)
        except Corrupt as damage:
            if self._set_aside:
                raise
            self._done.append(f"nothing else, since the queue cannot be opened: {damage}")
        return replace(self._examine().report, done=tuple(self._done))

    def _examine(self) -> Examination:
        return Examination(self._fs, self._path, bucket=self._bucket, on_progress=self._on_progress)

    def _remove_leftovers(self, before: Examination) -> None:
        if DRAFT_NAME in self._fs.list_folder(self._path):
            self._fs.unlink(self._path / DRAFT_NAME)
            self._fs.sync_folder(self._path)
            self._done.append(f"removed {DRAFT_NAME}, which a process left behind")
        # Opening would sweep as well, but without telling.
        for name in sweep_pointers(self._fs, self._path):
            self._done.append(f"removed {CONSUMERS_NAME}/{name}, which a process left behind")
        swept = sweep_readers(self._fs, self._path)
        if swept:
            self._done.append(f"swept {counted(len(swept), 'dead reader')} away")
        damaged = {split_place(damage.place)[0] for damage in before.damages}
        journal = self._path / JOURNAL_NAME
        for number in before.summaries_wrong:
            # Past damage a summary is what finds the frames, even one that is wrong elsewhere.
            if number not in damaged and number not in before.rewrites:
                self._fs.unlink(segment_path(journal, number).with_suffix(".summary"))
                self._fs.sync_folder(journal)

    def _open(self, before: Examination) -> None:
        """Have opening do its part, then go on to what it does not look at."""
        if before.is_log:
            self._open_log(before)
            return
        with PriorityQueue(
            self._path,
            bucket=self._bucket,
            on_corruption="continue" if self._set_aside else "abort",
            file_system=self._fs,
            maintain_in_background=False,
        ) as queue:
            core = queue._core
            folder = core.folder
            journal = folder.journal
            self._tell_of_tail(before)
            if self._set_aside:
                core.set_aside(
                    [one for one in before.damages if split_place(one.place)[0] in journal.segments]
                )
                added = len(folder.state.quarantined) - before.quarantined
                if added:
                    self._done.append(f"set {counted(added, 'damaged record')} aside")
                for number in before.rewrites:
                    is_sealed = number in journal.segments and number != journal.active.number
                    # What its summary lacks would be left behind.
                    if is_sealed and number not in before.summaries_wrong:
                        carry(folder, number)
                        self._done.append(f"rewrote segment {number}, to be rid of damage")
            journal.finish_seals()
            self._tell_of_opening(before, set(journal.segments))

    def _open_log(self, before: Examination) -> None:
        """The same for a log, whose rows are never set aside: what is lost is to be missed."""
        if self._set_aside:
            raise InvalidInput(
                f"{self._path} is a log: its rows have dense numbers, so that none is set aside; "
                "restore it from a backup, or publish with on_corruption='continue'"
            )
        folder = Folder(self._fs, SystemClock(), self._path, FolderOptions(kind=LOG))
        self._tell_of_tail(before)
        try:
            folder.journal.finish_seals()
        finally:
            folder.close()
        self._tell_of_opening(before, set(folder.journal.segments))

    def _tell_of_tail(self, before: Examination) -> None:
        if before.tail_bytes:
            self._done.append("cut off an operation that was never finished")

    def _tell_of_opening(self, before: Examination, segments: set[int]) -> None:
        """What opening has made again."""
        made = [number for number in before.summaries_made if number in segments]
        if made:
            self._done.append(f"made {counted(len(made), 'summary file')} again")
        if before.is_spine_damaged:
            self._done.append("made the spine again")
