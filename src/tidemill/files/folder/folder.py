"""The folder of a queue: opening it, writing to it, and the state that both lead to.

    settings.json   what the folder is                         lock        who owns it
    journal/        segments, with summaries and spine         quarantine/ damaged records

Everything that changes goes through `commit`: it is written to the journal, synced if it has to be,
and applied to the state, the index and the cursors under `guard`, a lock that is held for moments.
Where one thread works alone, the last two change places; see `solitude`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.batch import DEFAULT, SchemaVersions
from tidemill.clock import Clock
from tidemill.errors import CallerError, Closed, Corrupt, NotAQueue, TidemillError
from tidemill.files.commit.committer import Committer
from tidemill.files.commit.operation import (
    Consume,
    Group,
    MakeFork,
    Operation,
    Push,
    PushOne,
    PushTogether,
    Quarantine,
    RemoveFork,
    Retire,
)
from tidemill.files.commit.preparation import Preparation
from tidemill.files.commit.solitude import Solitude
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.folder_options import FolderOptions, choose_of
from tidemill.files.folder.holding import holding, is_mine
from tidemill.files.folder.strangers import refuse_links, refuse_strangers
from tidemill.files.folder.view import View
from tidemill.files.format.settings import Settings, read_settings, write_settings
from tidemill.files.index.index import Index
from tidemill.files.journal.head import HeadFile
from tidemill.files.journal.journal import JOURNAL_NAME, Journal
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.recovery.recovery import Recovered, Recovery
from tidemill.files.sharing.lock import OwnerLock
from tidemill.files.sharing.pin import try_sweep_readers
from tidemill.files.sharing.pointers import take_back_pointers, try_sweep_pointers
from tidemill.files.state.bucket import choose
from tidemill.files.state.state import State
from tidemill.limits import KEPT_BYTES_MAX, TINY_FRAMES_MIN

logger = logging.getLogger(__name__)

_PUSHES = (Push, PushOne, PushTogether)  # do no more than add frames
_SHARED = (Group, PushTogether)  # by several threads
_APPLIED_EARLY = (Push, PushOne, Consume)  # if a thread works alone; others are rare


class Folder(View):
    """An open folder, owned by this process."""

    def __init__(self, fs: FileSystem, clock: Clock, path: Path, options: FolderOptions) -> None:
        super().__init__(fs, clock, path)
        self.has_let_go = False  # of files and lock
        self.options = options
        self.buckets_open_max = options.buckets_open_max
        self.tolerates_damage = options.on_corruption == "continue"
        self.syncs_pushes, self.syncs_takes = options.syncs_pushes, options.syncs_takes
        # What can be refused without looking at the folder is refused before anything is made.
        choose(None, options.bucket)
        if options.schema is not None:
            SchemaVersions([options.schema])
        with storage_errors("opening", path):
            self._prepare_folder()
            self._lock = OwnerLock.acquire(fs, path, wait_s=options.lock_wait_s)
            self._files = OpenFiles(fs)
            with ExitStack() as undo:
                undo.callback(self._lock.release)
                undo.callback(self._files.close)
                self._open(undo)
                undo.pop_all()
        self.preparation = Preparation(self.settings.versions, self.bucket, clock)
        self.committer = Committer(self._write, self.preparation)
        self._solitude = Solitude()
        for fork in self.state.forks:
            self._add_cursor(fork)

    check_open = View.check_alive  # Every commit asks, so that it asks without a detour.

    def commit(self, operation: Operation) -> None:
        """Write an operation and apply it."""
        self.committer.request_one(operation)

    def commit_all(self, operations: list[Operation]) -> None:
        """Write several operations in one group and apply them."""
        self.committer.request(operations)

    @contextmanager
    def writing_alone(self) -> Iterator[None]:
        """Let nobody commit while the block changes the journal by itself."""
        with self.committer.paused():
            try:
                yield
            except TidemillError:
                raise
            except BaseException as cause:
                self.journal.doubt(cause)
                raise

    def sync(self) -> None:
        """Make everything written so far last."""
        # As an operation without records, so that nobody writes while the disk is asked.
        self.commit(Operation(sync=True))

    @contextmanager
    def all_cursors(self) -> Iterator[list[Cursor]]:
        """Hold every fork still: no choice and no take happens meanwhile. Pushes go on."""
        cursors: dict[int, Cursor] = {}

        def fresh() -> list[Any]:
            # A fork may be made of one that is not held yet; once all are, none can.
            with self.guard:
                forks = sorted(self.cursors.keys() - cursors.keys())
                cursors.update({fork: self.cursors[fork] for fork in forks})
            return [cursors[fork].lock for fork in forks]

        with holding(fresh):
            yield [cursor for cursor in cursors.values() if not cursor.is_removed]

    def check_not_within(self) -> None:
        """Raise if this thread is in the middle of a call: to wait for that, in the handler of a
        signal, would be to wait for ever.
        """
        locks = [self.guard, *[cursor.lock for cursor in list(self.cursors.values())]]
        if self.committer.is_led_here or any(map(is_mine, locks)):
            raise CallerError(
                f"{self.path} cannot be closed in the middle of a call of the same thread, by the "
                "handler of a signal; raise an exception there, and close it behind the call"
            )

    def close(self) -> None:
        """Sync, and let the folder go. A handle inherited through os.fork() is merely forgotten."""
        if not self.is_here:
            return
        with self.guard:
            if not self.is_closed:
                self.is_closed = True
                self._wake()
        # Whoever is reading or writing ends first, or files would be closed under their hands.
        with self.all_cursors():
            if self.has_let_go:
                return
            # An interrupt up to here leaves the rest to the next call.
            try:
                self.committer.request([Operation(sync=False)])
            except Closed:
                pass  # As it should be: those that are under way are done, and none follow.
            self.has_let_go = True
            try:
                self.journal.close(clean=self.journal.failure is None)
            finally:
                self._files.close()
                self._lock.release()

    def let_go(self) -> None:
        """Close files and lock as they are: nobody is left who could close the folder."""
        if not self.is_here or self.has_let_go:
            return
        self.is_closed = self.has_let_go = True
        try:
            self.journal.close(clean=False)
            self._files.close()
        except OSError as error:
            logger.warning("%s was not closed well: %s", self.path, error)
        finally:
            self._lock.release()

    @property
    def disk_bytes(self) -> int:
        return self.journal.bytes + self.journal.spare.bytes

    def _prepare_folder(self) -> None:
        """Make the folder if need be; refuse one that holds something else."""
        missing = []
        folder = self.path
        while True:
            try:
                names = set(self.fs.list_folder(folder))
                break
            except FileNotFoundError:
                missing.append(folder)
                folder = folder.parent
            except NotADirectoryError as error:
                raise NotAQueue(f"{folder} is a file, not a folder") from error
        for one in reversed(missing):
            self._make_folder(one)
        if missing or "settings.json" not in names:
            # Whoever made what was there may have died before its name was on disk.
            try:
                self.fs.sync_folder(folder.parent)
            except PermissionError as error:
                logger.warning("the name of %s may not be on disk yet: %s", folder, error)
        if not missing:
            refuse_strangers(self.fs, self.path, names, self.options.kind)
            refuse_links(self.fs, self.path)

    def _make_folder(self, folder: Path) -> None:
        try:
            self.fs.make_folder(folder)
        except FileExistsError as error:
            try:
                self.fs.list_folder(folder)  # Another process made it meanwhile.
            except FileNotFoundError:
                raise NotAQueue(f"{folder} is a link to nowhere; name another folder") from error
        self.fs.sync_folder(folder.parent)

    def _open(self, undo: ExitStack) -> None:
        found = read_settings(self.fs, self.path, kind=self.options.kind)
        # What is found was perhaps only renamed, and is to last before anything relies on it.
        self.fs.sync_folder(self.path)
        self.bucket = choose_of(found, self.options)
        is_new = found is None
        recovered = self._recover(is_new=is_new)
        if found is None:
            versions = SchemaVersions([self._given_schema()])
            found = Settings(
                self.bucket.description,
                versions,
                self.options.segment_bytes,
                kind=self.options.kind,
            )
        elif self.options.schema is not None:
            versions = found.versions.evolve(self.options.schema)
            if versions is not found.versions:
                found = found.with_versions(versions)
                write_settings(self.fs, self.path, found)
        self.settings = found
        self.state = recovered.state if recovered else State()
        epoch = max(self.state.epoch, self._lock.last_epoch) + 1
        self._lock.claim(epoch)
        self.state.epoch = epoch
        head = HeadFile(
            self.fs,
            self.path,
            epoch=epoch,
            passes_pushes=not self.options.syncs_pushes,
            passes_takes=not self.options.syncs_takes,
        )
        undo.callback(head.close)
        self.journal = Journal(
            self.fs,
            self._files,
            self.path / JOURNAL_NAME,
            segment_bytes=found.segment_bytes,
            epoch=epoch,
            describe_state=self.state.to_json,
            head=head,
        )
        self.holds = self.journal.holds
        if recovered is None:
            self._create_journal()
        else:
            last = recovered.segments[-1].number
            is_damaged = any(damage.place >> 32 == last for damage in recovered.damages)
            # Only the spine leads past a record of unreadable length, and it is never synced: a
            # crash could cost what lies behind. So it is left as it is, and the segment is sealed:
            # it gets a summary instead.
            self.journal.adopt(recovered.segments, recovered.spine, keeps_spine=is_damaged)
            if is_damaged:
                self.journal.roll()
            if recovered.torn_bytes:
                logger.warning(
                    "%s: cut off %d bytes of an unfinished operation",
                    self.path,
                    recovered.torn_bytes,
                )
            if recovered.retired:
                self.journal.remove(recovered.retired)
        self.journal.spare.want()
        if is_new:
            # From now on it is a queue: everything else a queue needs is there by now.
            write_settings(self.fs, self.path, found)
        self.damages = recovered.damages if recovered else []
        self.segments = self.journal.segments
        self.reader = FrameReader(self.segments, self.settings.versions, own_from=self.journal.end)
        self.index = Index(self.segments, self.state)
        take_back_pointers(self.fs, self.path, self.state.arrived)
        try_sweep_pointers(self.fs, self.path)
        try_sweep_readers(self.fs, self.path)

    def _recover(self, *, is_new: bool) -> Recovered | None:
        names = self.fs.list_folder(self.path)
        if JOURNAL_NAME not in names:
            if not is_new:
                raise Corrupt(
                    "the journal is missing; restore it from a backup", path=self.path, offset=0
                )
            return None
        folder = self.path / JOURNAL_NAME
        recovered = Recovery(
            self.fs,
            self._files,
            folder,
            bucket_of=self.bucket.of,
            tolerate_damage=self.options.on_corruption == "continue",
        ).run()
        if recovered is None and not is_new:
            raise Corrupt("the journal is empty; restore it from a backup", path=folder, offset=0)
        is_used = recovered is not None and (
            recovered.state.next_seq > 1 or len(recovered.state.forks) > 1 or recovered.damages
        )
        if is_new and is_used:
            raise Corrupt(
                "the settings are missing, but the journal has data; restore settings.json "
                "from a backup",
                path=self.path / "settings.json",
                offset=0,
            )
        return recovered

    def _create_journal(self) -> None:
        if JOURNAL_NAME not in self.fs.list_folder(self.path):
            self.fs.make_folder(self.path / JOURNAL_NAME)
        self.fs.sync_folder(self.path)
        self.journal.create_first()

    def _given_schema(self) -> pa.Schema:
        return DEFAULT if self.options.schema is None else self.options.schema

    def _write(self, operations: Sequence[Operation]) -> None:
        """Write and apply a group of operations. One thread at a time."""
        self.check_open()
        try:
            self._write_and_apply(operations)
        except TidemillError:
            raise
        except BaseException as cause:
            # An interrupt anywhere between the disk and the state. What was written is not known
            # here, so that a number could be given twice; opening again finds out.
            self.journal.doubt(cause)
            raise

    def _write_and_apply(self, operations: Sequence[Operation]) -> None:
        state, journal = self.state, self.journal
        whole = operations[0] if len(operations) == 1 else Group(operations)
        if whole.apart:
            journal.seal_soon(records_min=TINY_FRAMES_MIN)
        time_us = max(state.time_us, self.clock.time_ns() // 1000)
        draft = journal.begin(whole.total_bytes, state.next_seq, time_us, whole.leaves_bytes)
        whole.draft(draft)
        journal.append(draft, whole.sync)
        if whole.apart:
            journal.seal_soon()
        kind = type(whole)
        is_alone = self._solitude.note_commit(is_shared=kind in _SHARED)
        if is_alone and whole.sync and kind in _APPLIED_EARLY and journal.has_little_to_sync:
            # The disk is at work meanwhile, and nobody looks before it is done. Whoever else syncs
            # is waited for before the guard is taken.
            with journal.sync_lock, self.guard:
                self._apply(operations, draft.time_us)
                began_s = self.clock.monotonic_s()
                journal.settle()
                self._solitude.note_sync(self.clock.monotonic_s() - began_s)
                self._wake_waiting()
            return
        if whole.sync:
            with journal.sync_lock:
                journal.settle()
        with self.guard:
            self._apply(operations, draft.time_us)
            self._wake_waiting()

    def _apply(self, operations: Sequence[Operation], time_us: int) -> None:
        """Do to the state, the index and the cursors what was written. Called under the guard."""
        state = self.state
        state.time_us = time_us
        try:
            for operation in operations:
                operation.apply(state)
                if operation.entries:
                    self._index(operation)
                if type(operation) not in _PUSHES:
                    self._follow(operation)
        except TidemillError as cause:
            # It is written, and others may be half applied.
            self.journal.doubt(cause)
            raise

    def _wake_waiting(self) -> None:
        """Let those who wait look again, if there are any. Called under the guard."""
        if self.waiting or self.watchers:
            self._wake()

    def _wake(self) -> None:
        """Let those who wait look again. Called under the guard."""
        self.arrivals.notify_all()
        for watcher in self.watchers:
            watcher()

    def _index(self, operation: Operation) -> None:
        """Let index and cursors know of the frames of an operation. Called under the guard."""
        cursors = self.cursors.values()
        kept_bytes_max = KEPT_BYTES_MAX // len(cursors)
        for entry, frame in zip(operation.entries, operation.frames, strict=True):
            self.index.add(entry)
            for cursor in cursors:
                cursor.note_push(entry, frame, kept_bytes_max)

    def _follow(self, operation: Operation) -> None:
        """Let index and cursors know what else an operation did. Called under the guard."""
        match operation:
            case Consume():
                cursor = self.cursors[operation.fork]
                if operation.selection is None:
                    cursor.forget()
                else:
                    cursor.advance(operation.selection)
            case Retire():
                # Before anyone can roll: a new segment must not ask for those that go.
                self.journal.retired.update(operation.segments)
                for number in operation.segments:
                    self.index.drop_segment(self.journal.segments[number])
                if operation.frames or operation.live:
                    self._forget_all()
            case Quarantine():
                self._forget_all()
            case MakeFork():
                self._add_cursor(operation.id)
            case RemoveFork():
                self.cursors.pop(operation.id).is_removed = True

    def _forget_all(self) -> None:
        for cursor in self.cursors.values():
            cursor.forget()
