"""Where encoded frames wait until all of them are written.

The first ones stay in memory. The others lie one behind the other in a file without a name: a carry
of large segments takes no more memory than one of small ones. It is no place for what must last; it
is gone when nobody refers to what it holds any more, or the process ends.
"""

from __future__ import annotations

import logging
import weakref
from pathlib import Path

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from tidemill.batch import EncodedBody
from tidemill.errors import DiskFull, StorageFailed
from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.limits import SHELF_MEMORY_BYTES_MAX

logger = logging.getLogger(__name__)


class Shelf:
    """Keeps bodies for those who refer to them."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        """The file would be in `folder`, if it had a name."""
        self._fs = fs
        self._folder = folder
        self._file: File | None = None
        self._in_file_bytes = 0
        self._in_memory_bytes = 0
        self._is_disk_full = False

    def keep(self, body: EncodedBody) -> EncodedBody:
        """The same body, in memory or to be loaded from the file."""
        size = body.body_bytes
        if self._in_memory_bytes + size > SHELF_MEMORY_BYTES_MAX and not self._is_disk_full:
            try:
                return body._replace(buffer=self._put_down(body))
            except DiskFull as full:
                # To rewrite segments is how room is made, so that memory has to do.
                logger.info("rewritten frames wait in memory: %s", full)
                self._is_disk_full = True
        self._in_memory_bytes += size
        return body

    def _put_down(self, body: EncodedBody) -> ShelvedBody:
        at, size = self._in_file_bytes, body.body_bytes
        with storage_errors("writing to a file without a name in", self._folder):
            if self._file is None:
                self._file = self._fs.scratch(self._folder)
                # Not when a carry ends: if it was interrupted, another thread may be writing what
                # it had prepared.
                weakref.finalize(self, _close, self._file, self._folder)
            self._file.pwrite([body.buffer], at)
        self._in_file_bytes += size
        return ShelvedBody(self, self._file, at, size, body.check)

    def load(self, file: File, at: int, size: int, check: int) -> pa.Buffer:
        """What was put there; verified, for what it was made of goes once it is written."""
        with storage_errors("reading from a file without a name in", self._folder):
            [found] = file.pread_buffers([size], at)
        if len(found) != size or xxh3_64_intdigest(found) != check:
            raise StorageFailed(
                f"a file without a name in {self._folder} does not hold what was written to it; "
                "close the queue, check the disk, and open it again"
            )
        return found


class ShelvedBody:
    """The bytes of a body in the file of a shelf."""

    __slots__ = ("_at", "_check", "_file", "_shelf", "_size")

    def __init__(self, shelf: Shelf, file: File, at: int, size: int, check: int) -> None:
        self._shelf = shelf
        self._file = file
        self._at = at
        self._size = size
        self._check = check

    def __len__(self) -> int:
        return self._size

    def load(self) -> pa.Buffer:
        """The bytes, verified."""
        return self._shelf.load(self._file, self._at, self._size, self._check)


def _close(file: File, folder: Path) -> None:
    try:
        file.close()
    except OSError as failure:
        # Whatever it held was written elsewhere by now, or is not wanted.
        logger.warning("a file without a name in %s: %s", folder, failure)
