"""Objects in a folder: a file each, which appears under its name when it is whole and on disk.

    manifest.json                     replaced under the lock, by renaming
    manifest.json.<random>.swap.part  what is being written
    segments/first_seq=…/…            linked to their names, which must be new
    .lock                             held while an object is replaced

A crash leaves at most a file that ends in `.part`. Replacing an object removes what an earlier
replacement left; the others have the name of the object that they were to be, and are swept with
its like. Folders come with what is put into them and go with the last of it.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from tidemill.errors import InvalidInput
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.strangers import FOLDERS
from tidemill.files.format.settings import NAME as SETTINGS_NAME
from tidemill.files.sharing.lock import FileLock, held
from tidemill.log.archive.objects import Absent, Changed, ObjectStore, Present, Stored
from tidemill.urls import is_text

logger = logging.getLogger(__name__)

PART = ".part"
SWAP_PART = ".swap.part"
_FOLDER_SIGN = "="  # in the name of a folder within a folder, and in no other name
_LOCK_NAME = ".lock"
T = TypeVar("T")


class FolderObjects(ObjectStore):
    """One folder, which is made when something is put into it.

    >>> import tempfile
    >>> objects = FolderObjects(tempfile.mkdtemp())
    >>> tag = objects.put_new("segments/1", pa.py_buffer(b"rows"))
    >>> objects.get("segments/1").data.to_pybytes(), list(objects.names("segments"))
    (b'rows', ['segments/1'])
    """

    def __init__(self, path: str | os.PathLike[str], fs: FileSystem | None = None) -> None:
        self._path = Path(os.path.abspath(path))
        self._fs = LocalFileSystem() if fs is None else fs
        self.place = str(path)
        self.url = str(self._path)

    def check_free(self) -> None:
        if not is_text(self.url):
            raise InvalidInput(
                f"{self.place!r} cannot be written down in the log: give a folder whose "
                "name is text"
            )
        names = self._names_in(self._path)
        # What such a folder has of its own is swept, and may be taken for something else.
        inside = [
            folder
            for folder in self._path.parents
            if self._path.relative_to(folder).parts[0] in FOLDERS
        ]
        if any(SETTINGS_NAME in found for found in (names, *map(self._names_in, inside))):
            raise InvalidInput(
                f"{self.place} is the folder of a queue or a log, or belongs to one: give the "
                "archive one of its own"
            )

    def _names_in(self, folder: Path) -> list[str]:
        with storage_errors("archiving to", folder):
            try:
                return self._fs.list_folder(folder)
            except FileNotFoundError:
                return []
            except NotADirectoryError as error:
                raise InvalidInput(
                    f"{self.place} is a file, or lies in one: give the archive a folder of its own"
                ) from error

    def get(self, name: str) -> Stored:
        data = self._read(name, 0, None)
        return Stored(data, xxh3_128_hexdigest(data))

    def get_range(self, name: str, start: int, end: int) -> pa.Buffer:
        return self._read(name, start, end)

    def put_new(self, name: str, data: pa.Buffer) -> str:
        path = self._path / name
        with storage_errors("archiving to", path):
            part = self._write_part(name, data, PART)
            try:
                self._fs.link(part, path)
            except FileExistsError as error:
                self._make_last(path)
                raise Present(name) from error
            finally:
                self._fs.unlink(part)
            self._make_last(path)
        return xxh3_128_hexdigest(data)

    def adopt(self, path: Path, name: str) -> None:
        target = self._path / name
        with storage_errors("archiving to", target):
            file = self._fs.open(path)
            try:
                file.sync()
            finally:
                file.close()
            self._within(target.parent, lambda: self._fs.link(path, target))
            self._make_last(target)

    def replace(self, name: str, data: pa.Buffer, tag: str) -> str:
        path = self._path / name
        with storage_errors("archiving to", path), self._locked():
            try:
                found = self.get(name)
            except Absent as error:
                raise Changed(name) from error
            if found.tag != tag:
                raise Changed(name)
            self._sweep_parts(name)
            self._fs.rename(self._write_part(name, data, SWAP_PART), path)
            self._make_last(path)
        return xxh3_128_hexdigest(data)

    def names(self, folder: str, *, after: str = "") -> Iterator[str]:
        with storage_errors("listing", self._path / folder):
            try:
                found = self._fs.list_folder(self._path / folder)
            except FileNotFoundError:
                found = []
        for one in sorted(found):
            name = f"{folder}/{one}"
            if _FOLDER_SIGN in one:
                if name >= after[: len(name)]:
                    yield from self.names(name, after=after)
            elif name > after:
                yield name

    def delete(self, names: Sequence[str]) -> None:
        with storage_errors("removing archived rows from", self._path):
            for name in names:
                try:
                    self._fs.unlink(self._path / name)
                except FileNotFoundError:
                    pass  # It is gone, as it should be.
            for folder in {os.path.dirname(name) for name in names}:
                if _FOLDER_SIGN in folder:
                    self._remove_if_empty(self._path / folder)

    def _read(self, name: str, start: int, end: int | None) -> pa.Buffer:
        path = self._path / name
        try:
            file = self._fs.open(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Absent(name) from error
        except OSError:
            with storage_errors("reading", path):
                raise
        try:
            with storage_errors("reading", path):
                size = file.size()
                end = size if end is None else min(end, size)
                return file.pread_buffers([max(0, end - start)], start)[0]
        finally:
            file.close()

    def _write_part(self, name: str, data: pa.Buffer, ending: str) -> Path:
        """The data in a file that lasts, under a name that nobody looks for."""
        path = self._path / f"{name}.{secrets.token_hex(4)}{ending}"
        file = self._within(path.parent, lambda: self._fs.open(path, create=True))
        try:
            file.pwrite([data], 0)
            file.sync()
        except BaseException:
            self._fs.unlink(path)
            raise
        finally:
            file.close()
        return path

    def _sweep_parts(self, name: str) -> None:
        """Remove what crashed replacements left. Called under the lock, so that none is at it."""
        path = self._path / name
        for one in self._fs.list_folder(path.parent):
            if one.startswith(f"{path.name}.") and one.endswith(SWAP_PART):
                self._fs.unlink(path.parent / one)

    def _within(self, folder: Path, put: Callable[[], T]) -> T:
        """Put something into a folder, which somebody may remove as long as it is empty."""
        while True:
            self._make_folders(folder)
            try:
                return put()
            except FileNotFoundError:
                try:
                    self._fs.list_folder(folder)
                except FileNotFoundError:
                    continue
                raise

    def _remove_if_empty(self, folder: Path) -> None:
        try:
            self._fs.remove_folder(folder)
        except FileNotFoundError:
            pass  # Another was faster.
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    def _make_last(self, path: Path) -> None:
        """Bring the name of an object to the disk, and those of the folders it is in: whoever made
        them may not have come to that yet, or have died before.
        """
        for folder in path.parents:
            if folder == self._path.parent:
                break
            self._fs.sync_folder(folder)
        self._make_name_last(self._path)

    def _make_name_last(self, folder: Path) -> None:
        try:
            self._fs.sync_folder(folder.parent)
        except PermissionError as error:
            logger.debug("the name of %s may not be on disk yet: %s", folder, error)

    def _make_folders(self, path: Path) -> None:
        missing = []
        while True:
            try:
                self._fs.list_folder(path)
                break
            except FileNotFoundError:
                missing.append(path)
                path = path.parent
        if missing:
            self._make_name_last(path)
        for folder in reversed(missing):
            try:
                self._fs.make_folder(folder)
            except FileExistsError:
                pass  # Another was faster.
            self._fs.sync_folder(folder.parent)

    def _locked(self) -> AbstractContextManager[FileLock]:
        """Hold the lock of the folder for the block."""
        path = self._path / _LOCK_NAME
        self._make_folders(self._path)
        try:
            self._fs.open(path, create=True).close()
        except FileExistsError:
            pass  # It stays, whoever made it.
        return held(FileLock.try_acquire, self._fs, path)
