"""The segments of a journal, by a reader's own links to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tidemill.errors import Corrupt
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.journal.head import Head
from tidemill.files.journal.scan import Found, opening_state
from tidemill.files.journal.segment import Segment, segment_path
from tidemill.files.journal.spine import SpineEntry, read_spine
from tidemill.files.recovery.adoption import waiting_path
from tidemill.files.sharing.pin import Pin

_NAME = re.compile(r"(\d{16})\.segment")


class Links:
    """What is linked stays on disk for this reader, whatever the owner retires meanwhile. A file
    that is gone before it is linked is `FileNotFoundError`.
    """

    def __init__(self, fs: FileSystem, journal: Path, files: OpenFiles, pin: Pin) -> None:
        self._fs = fs
        self._journal = journal
        self._files = files
        self.pin = pin

    def segment(self, number: int) -> Segment:
        """A segment of which nothing is known yet."""
        path = segment_path(self.pin.folder, number)
        try:
            self.pin.link(path.name)
        except FileNotFoundError:
            # One that was just adopted has its proper name a moment later.
            self.pin.link(path.name, waiting_path(self.pin.folder, number).name)
        file = self._files.existing(path)
        return Segment(self._fs, self.pin.folder, number, file, start=0, end=0)

    def newest(self, head: Head) -> tuple[Segment, Found]:
        """The newest segment that has begun, and its opening state."""
        names = [name for name in self._fs.list_folder(self._journal) if _NAME.fullmatch(name)]
        for name in sorted(names, reverse=True):
            segment = self.segment(int(name[:16]))
            # The spine leads past a first copy of the state whose length cannot be read.
            spine = self.spine_of(segment)
            opening = opening_state(segment.file, segment.number, spine=spine)
            if opening is not None:
                return segment, opening
            if segment.number <= head.place >> 32:
                break
            self.pin.unlink([segment])
        raise Corrupt(
            "no segment has a state that can be read; let its owner open the queue",
            path=self._journal,
            offset=0,
        )

    def try_summary(self, segment: Segment) -> bool:
        """Use the summary of a segment, if it has one that is finished."""
        try:
            self.pin.link(segment.summary_path.name)
        except FileNotFoundError:
            return False
        except FileExistsError:
            pass  # It was linked before.
        try:
            segment.read_summary()
        except Corrupt:
            self.pin.unlink_name(segment.summary_path.name)
            return False
        return True

    def spine_of(self, segment: Segment) -> Callable[[], list[SpineEntry]]:
        """The spine of a segment, for whoever needs it, which is seldom."""
        path = self._journal / segment.spine_path.name
        return lambda: read_spine(self._fs, path, segment.number)
