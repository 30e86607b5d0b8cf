"""A log in a folder: what the contract asks for, over the journal of `files`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from tidemill.batch import Layout, LogBatch, SchemaVersions
from tidemill.clock import Clock, SystemClock, wait_seconds
from tidemill.errors import Closed, Corrupt, InvalidInput, Locked, NotAQueue, ReadOnly
from tidemill.files.commit.log_operation import BeginRows, TrimRows, WriteNote
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.disk.whole_path import whole_path
from tidemill.files.folder.folder import Folder
from tidemill.files.folder.folder_options import CorruptionMode, FolderOptions
from tidemill.files.folder.folder_path import folder_path
from tidemill.files.format.settings import LOG, read_settings
from tidemill.files.readers.follower import Follower
from tidemill.files.readers.layout import layout_of
from tidemill.limits import NOTE_BYTES_MAX, SEGMENT_BYTES, SEGMENT_BYTES_MIN
from tidemill.log.contract import (
    Capabilities,
    ConsumerClaim,
    ConsumerState,
    Ends,
    LogStore,
    LogWriter,
)
from tidemill.log.on_files.consumers import Consumers
from tidemill.log.on_files.place import LogPlace
from tidemill.log.on_files.rows import RowReader
from tidemill.log.on_files.writer import FileWriter
from tidemill.log.refusals import check_unused, not_there_yet
from tidemill.names import check_name

_POLL_S = 0.02  # how often one looks for what another process wrote


class FileLog(LogStore):
    """One user of a log in a folder, which is made if it is not there."""

    capabilities = Capabilities(persistent=True, many_processes=False, poll_s=_POLL_S)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        sync: Literal["none", "full"] = "full",  # whether rows and pointers wait for the disk
        on_corruption: CorruptionMode = "abort",  # what a publisher does about a damaged journal
        segment_bytes: int = SEGMENT_BYTES,  # of a new log
        create: bool = True,  # False: refuse a folder that holds no log
        read_only: bool = False,  # make nothing, and refuse to publish
        lock_wait_s: float = 0.0,  # for another process to let the folder go, before `Locked`
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        if sync not in ("none", "full"):
            raise InvalidInput(f"sync is 'none' or 'full', not {sync!r}")
        if on_corruption not in ("abort", "continue"):
            raise InvalidInput(f"on_corruption is 'abort' or 'continue', not {on_corruption!r}")
        if type(segment_bytes) is not int or segment_bytes < SEGMENT_BYTES_MIN:
            raise InvalidInput(f"segment_bytes is at least {SEGMENT_BYTES_MIN}: {segment_bytes!r}")
        fs = LocalFileSystem() if file_system is None else file_system
        self._clock = SystemClock() if clock is None else clock
        self._path = whole_path(folder_path(path, "a log"))
        self.place = str(path)
        self._is_read_only = read_only
        self._options = FolderOptions(
            kind=LOG,
            schema=schema,
            sync=sync,
            on_corruption=on_corruption,
            segment_bytes=segment_bytes,
        )
        self._lock_wait_s = wait_seconds(lock_wait_s, what="lock_wait_s")
        self._place = LogPlace.of(fs, self._path)
        self._writers: weakref.WeakSet[FileWriter] = weakref.WeakSet()
        self._is_closed = False
        if not read_only:
            self._make_or_evolve(fs, create=create)
        # A reader goes past damage, for what is missing shows by its numbers.
        reading = FolderOptions(
            kind=LOG, schema=schema if read_only else None, sync=sync, on_corruption="continue"
        )
        self._view = Follower(fs, self._clock, self._path, reading)
        self._rows = RowReader(self._view)
        self._consumers = Consumers(fs, self._path, sync=sync == "full")

    @property
    def is_published_here(self) -> bool:
        """Whether this process owns the folder, through this handle or another."""
        return self._place.owner is not None

    @property
    def versions(self) -> SchemaVersions:
        self._check()
        return self._view.settings.versions

    def versions_now(self) -> SchemaVersions:
        self._check()
        self._view.read_settings_again()
        return self.versions

    def ends(self) -> Ends:
        view = self._look()
        with view.guard:
            return Ends(view.state.log.first, view.state.next_seq)

    def read(self, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        view = self._look()
        try:
            return self._rows.read(start, rows_max, bytes_max)
        except Corrupt:
            # A schema version that is newer than this handle, perhaps.
            if not view.read_settings_again():
                raise
            return self._rows.read(start, rows_max, bytes_max)

    def seq_at(self, time_us: int) -> int:
        self._look()
        return self._rows.seq_at(time_us)

    def layout(self, start: int, end: int) -> Layout:
        view = self._look()
        with view.guard:
            start = max(start, view.state.log.first)
        return layout_of(view, start, end)

    def watch(self, wakeup: Callable[[], None]) -> Callable[[], None]:
        self._check()
        return self._place.watch(wakeup)

    def claim(self) -> LogWriter:
        self._check_writable()
        with self._place.mutex, storage_errors("publishing to", self._path):
            # The schema was evolved when this handle was opened.
            options = replace(self._options, schema=None)
            folder = self._place.own(self._clock, options, self._check, wait_s=self._lock_wait_s)
            writer = FileWriter(self._place, folder)
        self._writers.add(writer)
        self._view.read_settings_again()
        return writer

    def consumers(self) -> dict[str, ConsumerState]:
        self._check()
        with storage_errors("reading the consumers of", self._path):
            return self._consumers.all()

    def claim_consumer(self, name: str, *, start: int) -> ConsumerClaim:
        self._check()

        def begin() -> int:
            first, next_seq = self.ends()
            return min(max(start, first), next_seq) - 1

        with storage_errors("claiming a consumer of", self._path):
            claim = self._consumers.claim(name, begin)
        # After a power cut rows may be gone that it is beyond, where those need not be synced; the
        # next publisher gives their numbers to others.
        return claim._replace(pointer=min(claim.pointer, self.ends().next - 1))

    def move_pointer(self, claim: ConsumerClaim, pointer: int) -> None:
        self._check()
        if pointer >= self._view.state.next_seq and pointer >= (next_seq := self.ends().next):
            raise not_there_yet(pointer, next_seq)
        with storage_errors("moving a consumer of", self._path):
            self._consumers.move(claim, pointer)

    def check_claim(self, claim: ConsumerClaim) -> None:
        self._check()
        with storage_errors("looking at a consumer of", self._path):
            self._consumers.check(claim)

    def remove_consumer(self, name: str) -> None:
        self._check()
        check_name(name, what="consumer")
        with storage_errors("removing a consumer of", self._path):
            self._consumers.remove(name)

    def trim(self, before: int, *, force: bool = False) -> int:
        self._check_writable()
        with (
            storage_errors("trimming", self._path),
            self._owned() as folder,
            self._consumers.settled() as least,
        ):
            if least is not None and not force:
                before = min(before, least + 1)
            first = max(folder.state.log.first, min(before, folder.state.next_seq))
            _give_up(folder, first, before=first)
            return first

    def begin_at(self, first: int) -> None:
        self._check_writable()
        with storage_errors("numbering the rows of", self._path), self._owned() as folder:
            if self._place.newest is not None:
                raise Locked(f"this process publishes to {self._path}: close that publisher first")
            ends = Ends(folder.state.log.first, folder.state.next_seq)
            if ends != (first, first):
                check_unused(ends, first, self.place)
                folder.commit(BeginRows(first))

    def sync(self) -> None:
        self._check_writable()
        with (
            storage_errors("syncing", self._path),
            self._owned() as folder,
        ):
            folder.sync()

    def release(self, before: int) -> None:
        self._check_writable()
        with (
            storage_errors("releasing rows of", self._path),
            self._owned() as folder,
        ):
            _give_up(folder, folder.state.log.first, before=before)

    def notes(self) -> dict[str, str]:
        view = self._look()
        with view.guard:
            return dict(view.state.log.notes)

    def set_note(self, name: str, value: str, *, expected: str | None) -> bool:
        self._check_writable()
        check_name(name, what="note")
        if len(value.encode()) > NOTE_BYTES_MAX:
            raise InvalidInput(f"a note has at most {NOTE_BYTES_MAX} bytes")
        with (
            storage_errors("writing a note of", self._path),
            self._owned() as folder,
        ):
            if folder.state.log.notes.get(name) != expected:
                return False
            folder.state.log.check_room(note=name)
            folder.commit(WriteNote(name, value))
            return True

    def close(self) -> None:
        if not self._view.is_here:
            return
        self._is_closed = True
        # Each of these does no harm twice, so that a call that is interrupted can be repeated.
        for writer in list(self._writers):
            writer.close()
        self._view.close()

    def _make_or_evolve(self, fs: FileSystem, *, create: bool) -> None:
        """Make the folder if it is not there; store a schema that adds columns."""
        with storage_errors("opening", self._path):
            try:
                found = read_settings(fs, self._path, kind=LOG)
            except (FileNotFoundError, NotADirectoryError):
                found = None
            if found is None and not create:
                raise NotAQueue(f"{self._path} holds no log, and none is to be made there")
            if found is not None:
                schema = self._options.schema
                if schema is None or found.versions.evolve(schema) is found.versions:
                    return
            wait_s = self._lock_wait_s
            with self._place.owned(self._clock, self._options, lambda: None, wait_s=wait_s):
                pass  # Owning it does both.

    def _owned(self) -> AbstractContextManager[Folder]:
        """The folder, open to be written to, once its schema is settled."""
        options = replace(self._options, schema=None)
        return self._place.owned(self._clock, options, self._check, wait_s=self._lock_wait_s)

    def _look(self) -> Follower:
        """The folder as it is now."""
        self._check()
        self._view.check_open()
        return self._view

    def _check(self) -> None:
        if self._is_closed:
            raise Closed(f"the log {self.place} was closed; open it again")
        self._view.check_alive()

    def _check_writable(self) -> None:
        self._check()
        if self._is_read_only:
            raise ReadOnly(f"the log {self.place} was opened with read_only=True")


def _give_up(folder: Folder, first: int, *, before: int) -> None:
    """Let the log begin at `first`, and remove the segments that hold rows below `before` alone."""
    active = folder.journal.active.number
    gone = [
        number
        for number in sorted(folder.journal.segments)
        if number != active and folder.index.last_seq(number) < before
    ]
    if first > folder.state.log.first or gone:
        folder.commit(TrimRows(first, gone))
        folder.journal.remove(gone)
