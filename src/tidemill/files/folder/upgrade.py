"""Brings a folder of an older format up to date, keeping every item.

The settings say which format a folder has, and they are swapped by one rename: a crash before it
leaves the old folder, a crash after it the new one, and either can be upgraded or opened again. So
whatever else a step has to do must be harmless to the older format, and come first.

    1 → 2   nothing else: what format 2 adds to a folder is made when it is first used
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import NotAQueue
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.folder_path import folder_path
from tidemill.files.format.settings import FORMAT, NAME, read_settings, write_settings
from tidemill.files.sharing.lock import OwnerLock


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What became of a folder."""

    path: Path
    before: int  # the format it had
    after: int  # the format it has

    @property
    def changed(self) -> bool:
        return self.before != self.after


def upgrade(
    path: str | os.PathLike[str],
    *,
    file_system: FileSystem | None = None,  # where the folder lives; for tests
) -> Upgrade:
    """Bring the folder of a queue to the format of this release; one that has it is left alone.

    Nobody may have the folder open meanwhile. There is no way back: an older release refuses the
    folder from then on.

    >>> import tempfile, tidemill as tm
    >>> folder = tempfile.mkdtemp()
    >>> tm.PriorityQueue(folder).close()
    >>> upgrade(folder).changed
    False
    """
    fs = file_system or LocalFileSystem()
    folder = folder_path(path, "a queue")
    with storage_errors("upgrading", folder):
        try:
            names = fs.list_folder(folder)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotAQueue(f"{folder} is no folder; name the folder of a queue") from error
        # Asked first, because taking the lock makes a file, and a folder of others is left alone.
        if NAME not in names:
            raise NotAQueue(f"{folder} has no {NAME}, and so is no queue; name the folder of one")
        lock = OwnerLock.acquire(fs, folder)
        try:
            settings = read_settings(fs, folder, accept_old=True)
            if settings is None:
                raise NotAQueue(f"{folder} lost its {NAME} meanwhile; restore it from a backup")
            if settings.format != FORMAT:
                write_settings(fs, folder, settings)
            return Upgrade(folder, settings.format, FORMAT)
        finally:
            lock.release()
