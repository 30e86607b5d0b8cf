"""Looks around in a folder: what lies there, who may read it, and how much room is left."""

from __future__ import annotations

import re
from pathlib import Path

from tidemill.errors import Corrupt, NotAQueue
from tidemill.files import advice
from tidemill.files.disk.filesystem import FileSystem, Surroundings
from tidemill.files.folder import quarantine
from tidemill.files.format import settings
from tidemill.files.format.settings import FORMAT, Settings, read_settings
from tidemill.files.journal.head import BYTES as HEAD_BYTES
from tidemill.files.journal.head import NAME as HEAD_NAME
from tidemill.files.journal.head import is_whole
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.report import Findings
from tidemill.files.sharing.lock import NAME as LOCK_NAME
from tidemill.files.sharing.lock import read_owner
from tidemill.files.sharing.pin import FOLDER as READERS_NAME
from tidemill.files.sharing.pin import LOCK_NAME as READER_LOCK_NAME
from tidemill.files.sharing.pointers import FOLDER as CONSUMERS_NAME
from tidemill.files.sharing.pointers import NOT_BEGUN, is_draft, read_slot
from tidemill.files.staging.staging import FOLDER as STAGING_NAME
from tidemill.files.staging.staging import staged_files
from tidemill.shown import counted

_JOURNAL_NAME = re.compile(r"\d{16}\.(segment|summary|spine|spare)")
_QUARANTINE_NAME = re.compile(r"\d{16}-\d{10}\.(record|json)")
FOLDERS = {JOURNAL_NAME: _JOURNAL_NAME, quarantine.FOLDER: _QUARANTINE_NAME}
_FILES = {settings.NAME, settings.DRAFT_NAME, LOCK_NAME, HEAD_NAME}
_OTHERS_FOLDERS = {READERS_NAME, CONSUMERS_NAME, STAGING_NAME}
_OTHERS_MAY = 0o077
_SEGMENTS_FREE_MIN = 2  # room that upkeep needs: it writes before it removes


class Survey:
    """One look around."""

    def __init__(self, fs: FileSystem, path: Path, findings: Findings) -> None:
        self._fs = fs
        self._path = path
        self._findings = findings
        self._around = fs if isinstance(fs, Surroundings) else None
        try:
            self.names = set(fs.list_folder(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotAQueue(f"{path} is no folder; name the folder of a queue") from error
        if not self.names & {settings.NAME, JOURNAL_NAME}:
            raise NotAQueue(f"{path} holds no queue; name the folder of one")
        self.is_in_use = self._is_in_use()
        self.owner_pid: int | None = None
        self.settings: Settings | None = None

    def _is_in_use(self) -> bool:
        if self._around is None or LOCK_NAME not in self.names:
            return False
        return self._around.is_locked(self._path / LOCK_NAME)

    def run(self) -> None:
        """Look at everything but the records."""
        self._look_at_settings()
        self._look_at_lock()
        self._look_at_names(self._path, _FILES | _OTHERS_FOLDERS | FOLDERS.keys(), self.names)
        for name, pattern in FOLDERS.items():
            if name in self.names:
                found = set(self._fs.list_folder(self._path / name))
                ours = {one for one in found if pattern.fullmatch(one)}
                self._look_at_names(self._path / name, ours, found)
        self._look_at_head()
        self._look_at_readers()
        self._look_at_consumers()
        self._look_at_staging()
        self._look_at_room()

    def _look_at_settings(self) -> None:
        path = self._path / settings.NAME
        try:
            self.settings = read_settings(self._fs, self._path, accept_old=True, kind=None)
        except Corrupt as damage:
            self._findings.damage(
                "settings",
                path,
                f"{damage.reason}; without them the folder cannot be opened, and items cannot be "
                "decoded",
                advice.RESTORE_SETTINGS,
                offset=0,
            )
            return
        if self.settings is not None and self.settings.format != FORMAT:
            self._findings.warn(
                "old-format",
                path,
                f"the folder has format {self.settings.format}, this release writes {FORMAT}",
                advice.upgrade(self._path),
            )
        if settings.DRAFT_NAME in self.names and not self.is_in_use:
            self._findings.note(
                "leftover",
                self._path / settings.DRAFT_NAME,
                "new settings were being written when a process died; the old ones hold",
                f"{advice.doctor(self._path, '--repair')} removes it",
            )

    def _look_at_lock(self) -> None:
        if LOCK_NAME not in self.names:
            return
        path = self._path / LOCK_NAME
        file = self._fs.open(path)
        try:
            self.owner_pid, epoch = read_owner(file)
            size = file.size()
        finally:
            file.close()
        if size and self.owner_pid is None and not epoch and not self.is_in_use:
            self._findings.note(
                "lock", path, "the file does not say who owned the folder last; it is a hint only"
            )

    def _look_at_head(self) -> None:
        if HEAD_NAME not in self.names or self.is_in_use:
            return
        file = self._fs.open(self._path / HEAD_NAME)
        try:
            data = file.pread(HEAD_BYTES, 0)
        finally:
            file.close()
        if not is_whole(data):
            self._findings.note(
                "head",
                self._path / HEAD_NAME,
                "the head is damaged; it is derived, and the next owner writes it anew",
            )

    def _look_at_readers(self) -> None:
        """Readers that are no more hold segments back until somebody sweeps them away."""
        if READERS_NAME not in self.names or self._around is None:
            return
        readers = self._path / READERS_NAME
        dead = []
        for name in self._fs.list_folder(readers):
            try:
                if not self._around.is_locked(readers / name / READER_LOCK_NAME):
                    dead.append(name)
            except (FileNotFoundError, NotADirectoryError):
                pass  # It comes or goes just now.
        if dead:
            self._findings.note(
                "readers",
                readers,
                f"{counted(len(dead), 'reader')} died and left links behind, which keep disk",
                f"{advice.doctor(self._path, '--repair')} or opening the queue sweeps them away",
            )

    def _look_at_consumers(self) -> None:
        """Pointers hold back disk, those most of all that say nothing."""
        if CONSUMERS_NAME not in self.names:
            return
        consumers = self._path / CONSUMERS_NAME
        found = set(self._fs.list_folder(consumers))
        self._look_at_names(consumers, found, found)
        for name in sorted(found):
            if not name.startswith("."):
                self._look_at_pointer(consumers / name)
            elif is_draft(name) and not self.is_in_use:
                self._findings.note(
                    "leftover",
                    consumers / name,
                    "a consumer was being made when a process died; opening removes it",
                )

    def _look_at_pointer(self, path: Path) -> None:
        try:
            file = self._fs.open(path)
            try:
                # In this order, for who removes a consumer empties its file first.
                slot, size = read_slot(file), file.size()
            finally:
                file.close()
        except FileNotFoundError:
            return  # It was removed just now.
        except OSError as error:
            self._findings.damage(
                "consumer",
                path,
                f"the pointer cannot be read ({error.strerror or error}), so that the queue cannot "
                "be opened",
                advice.RESTORE,
            )
            return
        if not size and not self._is_used(path):
            self._findings.note(
                "leftover",
                path,
                "the consumer was being removed when a process died; opening removes it",
            )
        elif size and slot is None:
            self._findings.damage(
                "consumer",
                path,
                "neither copy of the pointer can be read, so that nothing is given back to the "
                "disk; whoever asks for the consumer begins with the first item there is",
                advice.ask_or_remove(self._path, path.name),
            )
        elif slot is not None and slot.pointer == NOT_BEGUN and not self._is_used(path):
            self._findings.warn(
                "consumer",
                path,
                "a process died before it said where the consumer begins, so that nothing is given "
                "back to the disk",
                advice.ask_or_remove(self._path, path.name),
            )

    def _is_used(self, path: Path) -> bool:
        try:
            return self._around is not None and self._around.is_locked(path)
        except FileNotFoundError:
            return True  # Whoever removed it was at it.

    def _look_at_staging(self) -> None:
        """Rows that tasks staged: for a commit that is to come, or that never came."""
        count = sum(1 for _ in staged_files(self._fs, self._path))
        if count:
            self._findings.note(
                "staging",
                self._path / STAGING_NAME,
                f"{counted(count, 'file')} of rows wait for a transaction to be committed",
                "none, if a job writes to it just now; otherwise the folder may be deleted",
            )

    def _look_at_names(self, folder: Path, ours: set[str], found: set[str]) -> None:
        if folder == self._path:
            self._look_at_access(folder, is_folder=True)
        for name in sorted(found - ours):
            self._findings.note("stranger", folder / name, "this is not ours, and is left alone")
        for name in sorted(found & ours):
            is_folder = folder == self._path and name in _OTHERS_FOLDERS | FOLDERS.keys()
            self._look_at_access(folder / name, is_folder=is_folder)

    def _look_at_access(self, path: Path, *, is_folder: bool) -> None:
        if self._around is None:
            return
        try:
            facts = self._around.facts(path)
        except FileNotFoundError:
            return  # The owner of the folder removed it meanwhile.
        if not (facts.is_folder if is_folder else facts.is_file):
            what = "folder" if is_folder else "file"
            self._findings.damage(
                "kind",
                path,
                f"this is no {what}, or a link to one; links are not followed",
                f"put the {what} itself there",
            )
            return
        if facts.mode & _OTHERS_MAY:
            self._findings.warn(
                "access",
                path,
                f"others may use it: its mode is {facts.mode:04o}",
                f"`chmod go= {path}`",
            )
        if facts.owner != self._around.user():
            self._findings.note("owner", path, f"it belongs to user {facts.owner}")

    def _look_at_room(self) -> None:
        if self._around is None or self.settings is None:
            return
        free = self._around.free_bytes(self._path)
        wanted = _SEGMENTS_FREE_MIN * self.settings.segment_bytes
        if free < wanted:
            self._findings.warn(
                "room",
                self._path,
                f"{free:,} bytes are free on the disk; giving disk back takes {wanted:,} first",
                "make room",
            )
