"""What the doctor says about an archive. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.files.report import Verdict
from tidemill.shown import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport(Verdict):
    """What was found; `str(report)` is for people, `to_json()` for programs.

    >>> import tempfile, tidemill as tm
    >>> with tm.Log("memory:doc-archive-report") as log:
    ...     receipt = log.publisher().send([b"a", b"b", b"c"])
    ...     done = log.archive(tempfile.mkdtemp())
    ...     report = log.verify_archive()
    >>> report.is_healthy, report.rows, report.segments
    (True, 3, 1)
    """

    place: str
    is_deep: bool = False  # whether every byte was read
    log: str | None = None  # by what it knows its log; None if the manifest cannot be read
    epoch: int = 0  # of the archiver that may add to it
    first: int = 0  # row that is kept
    next: int = 0  # the number behind the last row
    rows: int = 0  # in segments that were found as they should be
    hot: int = 0  # of these, how many the log still has as well
    segments: int = 0  # that were looked at
    pages: int = 0
    bytes: int = 0  # of the segments that the manifest names
    orphans: int = 0  # objects that nothing names
    done: tuple[str, ...] = ()  # what a repair changed

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "place": self.place,
            **self._judged(),
            "deep": self.is_deep,
            "log": self.log,
            "epoch": self.epoch,
            "first": self.first,
            "next": self.next,
            "rows": self.rows,
            "hot": self.hot,
            "segments": self.segments,
            "pages": self.pages,
            "bytes": self.bytes,
            "orphans": self.orphans,
            "done": list(self.done),
        }

    def __str__(self) -> str:
        how = "every byte of" if self.is_deep else "the ends of"
        rows = f"rows {self.first} to {self.next - 1}" if self.first < self.next else "no rows"
        lines = [
            f"{self.place}: {rows} of a log; {how} "
            f"{counted(self.segments, 'segment')} verified, {counted(self.rows, 'row')}, "
            f"{self.bytes:,} bytes",
            *map(str, self.findings),
        ]
        if self.findings_left_out:
            lines.append(f"... and {self.findings_left_out:,} further findings")
        lines += [f"done: {what}" for what in self.done]
        lines.append(self._closing_words("copy the archive"))
        return "\n".join(lines)
