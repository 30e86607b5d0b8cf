"""Where encoded frames wait until all of them are written.

The first ones stay in memory. The others lie one behind the other in a file without a name, which
is gone with whoever made it: a carry of large segments takes no more memory than one of small ones.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from tidemill.batch import EncodedBody
from tidemill.errors import Bug, Corrupt
from tidemill.files.filesystem import File, FileSystem
from tidemill.files.storage import storage_errors
from tidemill.limits import SHELF_MEMORY_BYTES_MAX

logger = logging.getLogger(__name__)


class Shelf:
    """Keeps bodies until it is left; then those in the file can no longer be loaded."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        """The file would be in `folder`, if it had a name."""
        self._fs = fs
        self._folder = folder
        self._file: File | None = None
        self._in_memory_bytes = 0
        self._in_file_bytes = 0

    def __enter__(self) -> Shelf:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as failure:
                # Whatever it held was written elsewhere by now, or is not wanted.
                logger.warning("a file without a name in %s: %s", self._folder, failure)

    def keep(self, body: EncodedBody) -> EncodedBody:
        """The same body, in memory or to be loaded from the file; behind the first of these come
        no others.
        """
        size = body.body_bytes
        if self._file is None:
            if self._in_memory_bytes + size <= SHELF_MEMORY_BYTES_MAX:
                self._in_memory_bytes += size
                return body
            with storage_errors("making a file without a name in", self._folder):
                self._file = self._fs.scratch(self._folder)
        at = self._in_file_bytes
        with storage_errors("writing to a file without a name in", self._folder):
            self._file.pwrite([body.buffer], at)
        self._in_file_bytes += size
        return body._replace(buffer=ShelvedBody(self, at, size, body.check))

    def load(self, at: int, size: int, check: int) -> pa.Buffer:
        """What was put there; verified, for what it was made of goes once it is written."""
        if self._file is None:
            raise Bug("a frame was wanted from a shelf that had been left")
        with storage_errors("reading from a file without a name in", self._folder):
            found = self._file.pread_buffer(size, at)
        if len(found) != size or xxh3_64_intdigest(found) != check:
            raise Corrupt("a file without a name does not hold what was written to it")
        return found


class ShelvedBody:
    """The bytes of a body in the file of a shelf."""

    __slots__ = ("_at", "_check", "_shelf", "_size")

    def __init__(self, shelf: Shelf, at: int, size: int, check: int) -> None:
        self._shelf = shelf
        self._at = at
        self._size = size
        self._check = check

    def __len__(self) -> int:
        return self._size

    def load(self) -> pa.Buffer:
        """The bytes, verified."""
        return self._shelf.load(self._at, self._size, self._check)
