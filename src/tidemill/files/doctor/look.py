"""Finds out what opening a journal would lead to, without opening it.

Recovery runs over a shadow of the folder, and what it would complain of is kept instead of raised.
Beside a running owner a look is a snapshot: whatever is written behind it is not seen, and a record
that was half written when it was read is whole when it is looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tidemill.errors import Corrupt, UnknownFormat
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.disk.shadow import ShadowFileSystem, Vanished
from tidemill.files.format.record import split_place
from tidemill.files.journal.scan import Finding, Found
from tidemill.files.journal.segment import Segment, segment_path
from tidemill.files.journal.spine import SpineEntry
from tidemill.files.recovery.recovery import Recovered, Recovery

_LOOKS_MAX = 20
_SUMMARY = re.compile(r"\d{16}\.summary")


class Look(Recovery):
    """One look at a journal."""

    def __init__(self, fs: FileSystem, folder: Path, bucket_of: Callable[[int], int]) -> None:
        self.shadow = ShadowFileSystem(fs)
        self.summaries_bad: dict[int, str] = {}  # by segment, how it was noticed
        self._hide_bad_summaries(folder)
        self._pool = OpenFiles(self.shadow)
        super().__init__(self.shadow, self._pool, folder, bucket_of=bucket_of, tolerate_damage=True)
        self.names = frozenset(self._names)
        self.complaints: dict[int, str] = {}  # by place
        self.recovered: Recovered | None = None
        self.failure: Corrupt | UnknownFormat | None = None  # why it could not be opened at all
        try:
            self.recovered = self.run()
        except (Corrupt, UnknownFormat) as error:
            self.failure = error

    @property
    def segments(self) -> list[Segment]:
        """The segments that count, as far as they are known."""
        if self.recovered is not None:
            retired = set(self.recovered.retired)
            return [one for one in self.recovered.segments if one.number not in retired]
        for number, one in self._scanned.items():
            if not self._segments[number].end:
                self._segments[number].end = _end(one.findings)
        return [segment for _, segment in sorted(self._segments.items())]

    @property
    def read_whole(self) -> frozenset[int]:
        """The segments of which opening reads every record."""
        return frozenset(self._scanned)

    def spine_of(self, segment: Segment) -> list[SpineEntry]:
        return self._read_spine(segment)

    def _read_spine(self, segment: Segment) -> list[SpineEntry]:
        try:
            return super()._read_spine(segment)
        except Vanished:
            return []  # The segment was sealed, and has a summary by now.

    def close(self) -> None:
        self._pool.close()

    def _note_summary(self, segment: Segment, problem: Exception) -> None:
        # Beside the owner it may only have been half written by then.
        self.summaries_bad.setdefault(segment.number, str(problem))

    def _complain(self, reason: str, place: int) -> None:
        self.complaints.setdefault(place, reason)

    def _hide_bad_summaries(self, folder: Path) -> None:
        """Opening would make them again, so that they are as good as gone."""
        for name in self.shadow.list_folder(folder):
            if _SUMMARY.fullmatch(name):
                reason = summary_problem(self.shadow, folder, int(name[:16]))
                if reason is not None:
                    self.summaries_bad[int(name[:16])] = reason
                    self.shadow.unlink(folder / name)


def summary_problem(fs: FileSystem, folder: Path, number: int) -> str | None:
    """What is wrong with the summary of a segment, if both are there."""
    files = OpenFiles(fs)
    path = segment_path(folder, number)
    segment = Segment(fs, folder, number, files.existing(path), start=0, end=0)
    try:
        segment.read_summary()
    except (FileNotFoundError, Vanished):
        pass  # Its segment is missing, which is worse, or both were removed meanwhile.
    except Corrupt as damage:
        return damage.reason
    except OSError as error:
        return str(error)
    finally:
        files.close()
    return None


def take_look(
    fs: FileSystem, folder: Path, bucket_of: Callable[[int], int], *, is_in_use: bool
) -> Look:
    """A look whose complaints hold: beside a running owner they count if a second one has them."""
    before: set[int] | None = None
    for turn in range(_LOOKS_MAX):
        try:
            look = Look(fs, folder, bucket_of)
        except Vanished:
            # A segment was given back between being listed and being read.
            if turn == _LOOKS_MAX - 1:
                raise
            continue
        found = set(look.complaints)
        if not is_in_use or (not found and look.failure is None) or found == before:
            break
        before = found
    return look


def _end(findings: list[Finding]) -> int:
    """Where the last record that is whole ends."""
    found = [one.envelope for one in findings if isinstance(one, Found)]
    return split_place(found[-1].place)[1] + found[-1].total_bytes if found else 0
