"""The doctor of a log on a server: settings, books and every frame; it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.errors import Corrupt, MissingRows, Trimmed
from tidemill.files.report import Findings, Verdict
from tidemill.limits import STAGED_S_MAX
from tidemill.log.contract import Ends
from tidemill.log.sql.store import ServerLog
from tidemill.log.tiered import TieredLog
from tidemill.shown import counted

_ROWS_PER_LOOK = 100_000
_BYTES_PER_LOOK = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport(Verdict):
    """What was found; `str(report)` is for people, `to_json()` for programs.

    >>> place, ends = "mysql://app@db/shop/orders", Ends(1, 8)
    >>> report = LogReport(
    ...     place=place, server="10.11", ends=ends, rows=7, frames=1, bytes=120, findings=()
    ... )
    >>> print(report)
    mysql://app@db/shop/orders: rows 1 to 7 on a server 10.11: 7 rows in 1 frame, 120 bytes
    All is well.
    """

    place: str
    server: str  # its version
    ends: Ends
    rows: int
    frames: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "place": self.place,
            "server": self.server,
            **self._judged(),
            "first": self.ends.first,
            "next": self.ends.next,
            "rows": self.rows,
            "frames": self.frames,
            "bytes": self.bytes,
        }

    def __str__(self) -> str:
        found = f"{counted(self.rows, 'row')} in {counted(self.frames, 'frame')}"
        first, last = self.ends.first, self.ends.next - 1
        rows = f"rows {first} to {last}" if first <= last else "no rows"
        lines = [
            f"{self.place}: {rows} on a server {self.server}: {found}, {self.bytes:,} bytes",
            *map(str, self.findings),
        ]
        lines.append(self._closing_words("back the tables up"))
        return "\n".join(lines)


def verify(url: str) -> LogReport:
    """Verify a log: what the server promises, pointers, and every row that can be read.

    Rows in front of the first number are left alone, and so are those behind the writer pointer:
    nobody reads them. Damage and holes are told of one by one.
    """
    findings = Findings()
    with ServerLog(url, create=False) as log:
        settings = log.settings()
        for problem in settings.problems:
            what, _, advice = problem.partition("; ")
            findings.warn("server-setting", Path("server"), what, advice)
        ends = log.ends()
        _look_at_consumers(log, ends, findings)
        rows, frames, size = _look_at_rows(log, ends, findings)
        _look_at_staging(log, findings)
        return LogReport(
            place=log.place,
            server=settings.version,
            ends=ends,
            rows=rows,
            frames=frames,
            bytes=size,
            findings=tuple(findings.all),
            findings_left_out=findings.left_out,
        )


def _look_at_consumers(log: ServerLog, ends: Ends, findings: Findings) -> None:
    for name, state in log.consumers().items():
        place = Path("consumers") / name
        if state.pointer < ends.first - 1:
            what = f"it stands at {state.pointer}, and the first row is {ends.first}"
            findings.warn("consumer", place, what, "rows were trimmed by force before it read them")
        elif state.pointer >= ends.next:
            what = f"it stands at {state.pointer}, and the last row is {ends.next - 1}"
            findings.damage("consumer", place, what, "remove the consumer, and make it again")


def _look_at_staging(log: ServerLog, findings: Findings) -> None:
    """Frames that tasks staged: for a commit that is to come, or that never came."""
    statement = log.statements.waiting
    ((count, size, old),) = log.run(lambda connection: connection.query(statement, STAGED_S_MAX))
    if count:
        days, verb = STAGED_S_MAX // 86_400, "wait" if count > 1 else "waits"
        since = f", {old:,} of them for more than {days} days" if old else ""
        findings.note(
            "staging",
            Path("staging"),
            f"{counted(int(count), 'frame')} of {int(size):,} bytes {verb} for a transaction to be "
            f"committed{since}",
            "none, if a job writes to it just now; otherwise the next transaction of the same id "
            f"removes them, and any after {days} days",
        )


def _look_at_rows(log: ServerLog, ends: Ends, findings: Findings) -> tuple[int, int, int]:
    """Every row, also those that are in the archive alone."""
    rows = frames = size = 0
    at = ends.first
    all_rows = TieredLog(log)
    while at < ends.next:
        try:
            batches = all_rows.read(at, rows_max=_ROWS_PER_LOOK, bytes_max=_BYTES_PER_LOOK)
            rows += sum(len(batch) for batch in batches)
            size += sum(batch.payload.nbytes for batch in batches)
            frames += len(batches)
            at = batches[-1].next_seq
        except Trimmed as trimmed:
            at = trimmed.first
        except MissingRows as hole:
            count = hole.last - hole.first + 1
            findings.damage(
                "missing-rows", Path("rows"), hole.reason, "restore them from a backup", items=count
            )
            at = hole.last + 1
        except Corrupt as damage:
            findings.damage("frame", Path("rows"), damage.reason, "restore that row of the table")
            at = _behind(all_rows, at)
    return rows, frames, size


def _behind(log: TieredLog, seq: int) -> int:
    """The first number behind what is stored together with this row."""
    found = log.layout(seq, seq + 1)
    return int(found.firsts[0] + found.rows[0]) if len(found.firsts) else seq + 1
