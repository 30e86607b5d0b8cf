"""The file of a retired segment, kept for the next one.

A new file costs more than the bytes that are written to it: blocks have to be found, the first
write to each changes the file's metadata, and each page passes through memory that is fresh. A file
that was used before has all of that.

    1. 41.segment becomes 41.spare, and the folder is synced
    2. what opens the next segment is written over its beginning, and synced
    3. 41.spare becomes 57.segment, and the folder is synced

What is left of the old records lies behind the new ones. It passes for none of them, since each
record says where it was written, the number of its segment included, and no number is given twice.
An end mark stands between the two (see `journal`), so that nobody need look at them either.

Invariant: nobody else has the file. A reader beside the owner has linked what it reads, and a file
with a second name is let go; who comes after step 1 finds it gone. Segments of other queues are let
go as well, for their records have numbers that may come up here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.disk.storage import drop_file, storage_errors
from tidemill.files.journal.segment import Segment

_NAME = re.compile(r"\d{16}\.spare")


class SpareFile(NamedTuple):
    """A file that is there to be used again."""

    file: File
    path: Path
    written: int  # its length; all of it was written once


class Spare:
    """Keeps one such file at most, while the folder is open.

    Segments go wherever the interpreter collects the last scan that reads them, also in the middle
    of a call here. So there is no lock: whoever gets a file out of the row alone has it.
    """

    def __init__(self, fs: FileSystem, folder: Path, *, segment_bytes: int) -> None:
        self._fs = fs
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._is_wanted = False
        self._kept: deque[SpareFile] = deque()

    @property
    def bytes(self) -> int:
        """What it takes on disk."""
        return sum(spare.written for spare in list(self._kept))

    def want(self) -> None:
        """Keep one from now on. Not of what opening finds retired: of that it is not known any
        more whether it was another queue's.
        """
        self._is_wanted = True

    def refuse(self) -> None:
        """Keep none from now on."""
        self._is_wanted = False
        self.drop()

    def retire(self, segments: Sequence[Segment]) -> None:
        """Take away the files of retired segments that nobody reads; one of them may be kept."""
        if not segments:
            return
        offered: SpareFile | None = None
        try:
            for segment in segments:
                with storage_errors("removing", segment.path):
                    segment.file.close()
                    mine = self.offer(segment) if offered is None else None
                    if mine is None:
                        self._fs.unlink(segment.path)
                    offered = offered or mine
                    drop_file(self._fs, segment.summary_path)
                    drop_file(self._fs, segment.spine_path)
            with storage_errors("syncing", self._folder):
                self._fs.sync_folder(self._folder)
                mine, offered = offered, None
                if mine is not None:
                    self.keep(mine)
        except BaseException:
            if offered is not None:
                # It lies there under its new name, and opening removes it.
                offered.file.close()
            raise

    def offer(self, segment: Segment) -> SpareFile | None:
        """Take the file of a retired segment away from it; None if it is not wanted. Once the
        folder was synced, so that no crash brings the old name back, it is to be kept.
        """
        if not self._is_wanted or self._kept or segment.origin is not None:
            return None
        # One that is much shorter would have to grow, one that is longer keeps too much.
        if not self._segment_bytes // 2 <= segment.end <= self._segment_bytes:
            return None
        # A name of its own, since another may be on its way to become a segment.
        path = segment.path.with_suffix(".spare")
        self._fs.rename(segment.path, path)
        file = self._fs.open(path, write=True)
        if file.size() > segment.end:
            # Nobody had sealed it yet: behind its data there may be what was there before it.
            file.truncate(segment.end)
        return SpareFile(file, path, segment.end)

    def keep(self, offered: SpareFile) -> None:
        """Let the next segment have a file that was offered, unless somebody else has it too."""
        if not self._is_wanted or offered.file.links() > 1:
            self._remove(offered)
            return
        self._kept.append(offered)
        # Two may have been offered at the same time.
        while len(self._kept) > 1 and (other := self.take()) is not None:
            self._remove(other)

    def take(self) -> SpareFile | None:
        """The file, if there is one, to become a segment; the caller closes it."""
        try:
            return self._kept.popleft()
        except IndexError:
            return None

    def drop(self) -> None:
        """Give the file back to the disk."""
        kept = self.take()
        if kept is not None:
            self._remove(kept)

    def sweep(self) -> None:
        """Remove what an owner before has left."""
        for name in self._fs.list_folder(self._folder):
            if _NAME.fullmatch(name):
                self._fs.unlink(self._folder / name)

    def close(self) -> None:
        """Let the file lie: who opens the folder next removes it."""
        kept = self.take()
        if kept is not None:
            kept.file.close()

    def _remove(self, spare: SpareFile) -> None:
        spare.file.close()
        self._fs.unlink(spare.path)
