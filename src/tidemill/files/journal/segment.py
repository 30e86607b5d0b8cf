"""One piece of the journal: its file, and the index of the frames in it."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from tidemill.errors import Corrupt
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.open_files import PooledFile
from tidemill.files.disk.storage import drop_file, storage_errors
from tidemill.files.format import summary as summaries
from tidemill.files.format.frame_table import ENTRY, Entries, FrameTable
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import ENVELOPE_BYTES, split_place
from tidemill.files.format.summary import Summary
from tidemill.files.journal.scan import Damage, entry_of, scan
from tidemill.files.journal.spine import spine_path

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 4096  # of a disk, which are lost together
_SECTOR_BYTES = 512  # the least that is
_ZEROES = bytes(1024 * 1024)


class Segment:
    """A segment is active while it is appended to, and sealed for the rest of its life.

    The frames of an active segment are in `table`. Those of a sealed one are in its summary file,
    and in memory only while a bucket that uses them is open.
    """

    __slots__ = (
        "_entries",
        "directory",
        "end",
        "file",
        "fs",
        "number",
        "origin",
        "path",
        "start",
        "summary",
        "table",
    )

    def __init__(
        self, fs: FileSystem, folder: Path, number: int, file: PooledFile, *, start: int, end: int
    ) -> None:
        self.fs = fs
        self.path = segment_path(folder, number)
        self.number = number
        self.file = file
        self.start = start  # where the state ends that it opens with
        self.end = end  # where its data ends
        self.origin: Origin | None = None  # of one that was another queue's
        self.table: FrameTable | None = FrameTable()
        self.summary: Summary | None = (
            None  # there once the file was synced and the summary written
        )
        self.directory: Entries | None = None
        self._entries: Entries | None = None

    @property
    def summary_path(self) -> Path:
        return self.path.with_suffix(".summary")

    @property
    def spine_path(self) -> Path:
        return spine_path(self.path)

    def seal(self) -> None:
        """Stop appending: the table turns into a directory and sorted entries."""
        if self.table is None:
            return
        # The order matters to readers in other threads: where there is a directory, there must be
        # the entries in its order.
        directory, self._entries = summaries.make_directory(self.table.rows)
        self.directory = directory
        self.table = None

    def write_summary(self, epoch: int) -> None:
        """Write the summary of a sealed segment whose file was synced; from now on memory holds the
        directory only.
        """
        if self.directory is None or self._entries is None:
            raise Corrupt("only a sealed segment has a summary", path=self.path, offset=0)
        data = summaries.pack_summary(self.number, self.end, epoch, self.directory, self._entries)
        drop_file(self.fs, self.summary_path)
        file = self.fs.open(self.summary_path, create=True)
        try:
            file.pwrite([data], 0)
            file.sync()
        finally:
            file.close()
        self.summary = Summary(
            self.number,
            self.end,
            self.directory,
            len(self._entries),
            summaries.unpack_header(data, self.number)[4],
            epoch,
        )
        self._entries = None

    def finish(self, epoch: int) -> None:
        """Give a sealed segment whose file was synced its summary, and give back what was allocated
        and not used.
        """
        if self.file.size() > self.end:
            self.file.truncate(self.end)
        self.write_summary(epoch)
        self.file.let_go()
        # Past damage one of the two is needed, so that the spine goes when the name of the summary
        # is sure to last. Whether the spine itself is gone does not matter.
        self.fs.sync_folder(self.path.parent)
        drop_file(self.fs, self.spine_path)

    def is_dirty(self) -> bool:
        """Whether anything but zeroes follows the end of data."""
        offset = self.end
        while chunk := self.file.pread(len(_ZEROES), offset):
            if chunk != _ZEROES[: len(chunk)]:
                return True
            offset += len(chunk)
        return False

    def sealed_with(self, entries: Entries) -> None:
        """Be sealed from the start, with these frames."""
        self.directory, self._entries = summaries.make_directory(entries)
        self.table = None

    def read_summary(self) -> None:
        """Load the directory; `Corrupt` or `OSError` if the summary is of no use."""
        file = self.fs.open(self.summary_path)
        try:
            head = file.pread(summaries.HEADER_BYTES, 0)
            end, buckets, frames, check, entries_check, epoch = summaries.unpack_header(
                head, self.number
            )
            size = file.size() - summaries.HEADER_BYTES
            if buckets * summaries.DIRECTORY.itemsize + frames * ENTRY.itemsize != size:
                raise Corrupt("the summary has the wrong size")
            data = file.pread(size, summaries.HEADER_BYTES)
            directory_bytes = buckets * summaries.DIRECTORY.itemsize
            directory = summaries.unpack_directory(data[:directory_bytes], buckets, check)
            # Looked at now and read again when they are needed: a damaged summary is best made
            # again while opening.
            summaries.unpack_entries(data[directory_bytes:], frames, entries_check)
        finally:
            file.close()
        if end > self.file.size():
            raise Corrupt(
                "the segment is shorter than its summary says", path=self.path, offset=end
            )
        self.end = end
        self.summary = Summary(self.number, end, directory, frames, entries_check, epoch)
        self.directory = directory
        self.table = self._entries = None

    @property
    def entries(self) -> Entries:
        """All frames; read from the summary each time once there is one, so that memory stays
        small.
        """
        table, entries, summary = self.table, self._entries, self.summary
        if entries is not None:
            return entries
        if table is not None:
            return table.rows
        if summary is None:
            raise Corrupt("a sealed segment lost its summary", path=self.path, offset=0)
        try:
            return self.read_entries(summary)
        except (Corrupt, OSError) as error:
            logger.warning("summary of %s is of no use and is made again: %s", self.path, error)
            with storage_errors("reading", self.path):
                return self._read_again(summary)

    def read_entries(self, summary: Summary) -> Entries:
        """All frames as the summary has them; `Corrupt` or `OSError` if it is of no use."""
        file = self.fs.open(self.summary_path)
        try:
            start = summaries.HEADER_BYTES + summary.directory.nbytes
            data = file.pread(summary.frames * ENTRY.itemsize, start)
        finally:
            file.close()
        return summaries.unpack_entries(data, summary.frames, summary.entries_check)

    def _read_again(self, summary: Summary) -> Entries:
        """The entries from the segment itself; without a summary, the next round of upkeep writes a
        new one.
        """
        table = FrameTable()
        for found in scan(self.file, self.number, [], self.origin):
            if isinstance(found, Damage):
                offset = split_place(found.place)[1]
                if offset >= self.end:
                    break
                raise Corrupt(
                    f"{found.reason}, and the summary is of no use either; close the queue and "
                    "open it again",
                    path=self.path,
                    offset=offset,
                )
            if found.header is not None:
                table.append(entry_of(found, self._bucket_of))
        directory, entries = summaries.make_directory(table.rows)
        if directory.tobytes() != summary.directory.tobytes():
            raise Corrupt("the segment is not the one that was opened", path=self.path, offset=0)
        self._entries = entries
        self.directory = directory
        self.summary = None
        return entries

    def _bucket_of(self, key: int) -> int:
        """The bucket of a key that some frame here begins with: buckets follow each other as keys
        do.
        """
        if self.directory is None:
            raise Corrupt("only a sealed segment has a directory", path=self.path, offset=0)
        at = int(np.searchsorted(self.directory["key_min"], key, "right")) - 1
        return int(self.directory["bucket"][max(at, 0)])

    def reopen(self) -> None:
        """Be active again: what comes after it is gone, so it goes on growing, and no summary can
        stand for it.
        """
        self.table = FrameTable()
        self.summary = self.directory = self._entries = None

    def rows_of(self, low: int, high: int) -> slice:
        """Where the frames of the buckets from `low` to `high` are among the entries of a sealed
        segment.
        """
        if self.directory is None:
            raise Corrupt("only a sealed segment has a directory", path=self.path, offset=0)
        buckets = self.directory["bucket"]
        first, behind = int(buckets.searchsorted(low)), int(buckets.searchsorted(high, "right"))
        if first == behind:
            return slice(0, 0)
        start, last = self.directory["start"], behind - 1
        return slice(int(start[first]), int(start[last]) + int(self.directory["frames"][last]))


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:016d}.segment"


def with_blanks(state: bytes, segment_bytes: int) -> bytes:
    """The state that opens a segment, so long that its two copies share no block of the disk, or in
    a small segment no sector: what damages the one leaves the other whole. Blanks behind a document
    say nothing.

    >>> [len(with_blanks(bytes(size), 64 * 1024 * 1024)) + ENVELOPE_BYTES for size in (2, 5000)]
    [4096, 8192]
    """
    share = segment_bytes // 16 // _SECTOR_BYTES * _SECTOR_BYTES
    block = min(_BLOCK_BYTES, max(share, _SECTOR_BYTES))
    return state.ljust(-(-(ENVELOPE_BYTES + len(state)) // block) * block - ENVELOPE_BYTES)
