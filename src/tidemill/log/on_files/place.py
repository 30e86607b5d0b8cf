"""The folder of a log as this process knows it: who owns it, and who waits for its rows.

A process owns the folder while one of its publishers is open, or for the moment that a trim takes.
All stores of one folder share one place, so that within a process the newest publisher wins, while
another process gets `Locked`.

Locks: `mutex` is held while the owner writes, and taken before any lock of the folder's. It is let
go while one waits for another process, or others here would wait as long.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.folder.folder import Folder
from tidemill.files.folder.folder_options import FolderOptions
from tidemill.files.format.settings import write_settings
from tidemill.held_condition import HeldCondition
from tidemill.lock_wait import ask_again

logger = logging.getLogger(__name__)

_places: weakref.WeakValueDictionary[Hashable, LogPlace] = weakref.WeakValueDictionary()
_places_mutex = threading.Lock()

_EPOCHS_PER_OWNER = 2**20


class LogPlace:
    """One folder."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.fs = fs
        self.path = path
        self.mutex = threading.RLock()
        self._turns = HeldCondition(self.mutex)  # which nobody is told of: others come and go
        self.owner: Folder | None = None  # open while this process owns the folder
        self.newest: object = None  # the writer that may write
        self._claims = 0
        self._watchers: set[Callable[[], None]] = set()

    @staticmethod
    def of(fs: FileSystem, path: Path) -> LogPlace:
        """The one place of this folder in this process; a child of os.fork() has its own."""
        key = LogPlace.key(fs, path)
        with _places_mutex:
            place = _places.get(key)
            if place is None:
                place = _places[key] = LogPlace(fs, path)
            return place

    @staticmethod
    def key(fs: FileSystem, path: Path) -> Hashable:
        """What tells the folder from all others of this process, and of a child that it forks."""
        same_fs: Hashable = "local" if isinstance(fs, LocalFileSystem) else id(fs)
        return (os.getpid(), same_fs, os.path.realpath(path))

    def own(
        self,
        clock: Clock,
        options: FolderOptions,
        check: Callable[[], None],  # raises if whoever wants it does not any more
        *,
        wait_s: float,
    ) -> Folder:
        """Own the folder, from now on if it is not so already. Called under the mutex."""

        def ask() -> Folder:
            check()
            return self._own(clock, options)

        return ask_again(ask, wait_s, self._turns.wait)

    def _own(self, clock: Clock, options: FolderOptions) -> Folder:
        owner = self.owner
        if owner is not None and (owner.is_closed or owner.journal.failure is not None):
            # It takes no more writes; opening it again verifies what is there.
            self.disown()
        if self.owner is None:
            self.owner = Folder(self.fs, clock, self.path, options)
            self.owner.watchers.append(self._wake)
        elif options.schema is not None:
            self._evolve(self.owner, options)
        return self.owner

    def next_epoch(self, owner: Folder) -> int:
        """An epoch above all before it, in this process and in others. Called under the mutex."""
        self._claims += 1
        return owner.state.epoch * _EPOCHS_PER_OWNER + self._claims

    def disown(self) -> None:
        """Let another process own the folder. Called under the mutex."""
        owner = self.owner
        try:
            if owner is not None:
                owner.close()
        finally:
            # What was interrupted before is for another call to do.
            if owner is None or owner.has_let_go:
                self.owner = self.newest = None
                self._claims = 0

    @contextmanager
    def owned(
        self, clock: Clock, options: FolderOptions, check: Callable[[], None], *, wait_s: float
    ) -> Iterator[Folder]:
        """Own the folder for the block at least."""
        with self.mutex:
            owner = self.own(clock, options, check, wait_s=wait_s)
            try:
                yield owner
            finally:
                # Asked here, for owning it may have ended a publisher that was broken.
                if self.newest is None:
                    self.disown()

    def watch(self, wakeup: Callable[[], None]) -> Callable[[], None]:
        """Call `wakeup` after each write of this process, until the function returned is called."""
        self._watchers.add(wakeup)
        return lambda: self._watchers.discard(wakeup)

    def _wake(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def _evolve(self, owner: Folder, options: FolderOptions) -> None:
        versions = owner.settings.versions.evolve(options.schema)
        if versions is not owner.settings.versions:
            settings = owner.settings.with_versions(versions)
            write_settings(self.fs, self.path, settings)
            owner.settings = settings


def _after_fork() -> None:
    """A thread that looked for a place at that moment is not there to let go of the mutex."""
    global _places_mutex  # noqa: PLW0603 (a process has one)
    _places_mutex = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def finish_seals(folder: Folder) -> None:
    """Give sealed segments their summaries. Nobody who wrote has to hear if that fails: they are
    made again when the folder is opened.
    """
    sealed = list(folder.journal.segments.values())[:-1]
    if all(segment.summary is not None for segment in sealed):
        return
    try:
        folder.journal.finish_seals()
    except TidemillError as error:
        logger.warning("a summary of %s was not written: %s", folder.path, error)
