"""What the doctor says about a folder: findings, each with what it means and what to do. Pure.

note      worth knowing; nothing has to be done
warning   everything is there, but something should be done about it
damage    stored bytes are lost, or cannot be trusted
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tidemill.limits import FINDINGS_MAX
from tidemill.shown import counted


class Severity(StrEnum):
    """How bad a finding is."""

    NOTE = "note"
    WARNING = "warning"
    DAMAGE = "damage"


class Progress(NamedTuple):
    """How far a verification is."""

    records: int  # verified so far
    bytes_done: int
    bytes_total: int


OnProgress: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is worth telling.

    >>> finding = Finding(Severity.DAMAGE, "record", Path("1.segment"), 64, "it is gone", "sigh", 3)
    >>> print(finding)
    damage   1.segment, offset 64: it is gone (3 items). What to do: sigh.
    """

    severity: Severity
    code: str  # a short name that does not change, for programs
    path: Path
    offset: int | None  # in the file, where there is one
    what: str  # was found, and what it means
    advice: str = ""  # what to do
    items: int | None = None  # that are concerned, where it is known

    def __str__(self) -> str:
        where = str(self.path) if self.offset is None else f"{self.path}, offset {self.offset}"
        items = "" if self.items is None else f" ({counted(self.items, 'item')})"
        advice = f" What to do: {self.advice}." if self.advice else ""
        mark = "." if advice or not items else ""
        return f"{self.severity.value:8} {where}: {self.what}{items}{mark}{advice}"

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data for JSON."""
        return {
            "severity": self.severity.value,
            "code": self.code,
            "path": str(self.path),
            "offset": self.offset,
            "what": self.what,
            "advice": self.advice,
            "items": self.items,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What every report has: findings, and what they come to.

    >>> verdict = Verdict(findings=(Finding(Severity.NOTE, "old", Path("a"), None, "it is old"),))
    >>> verdict.is_healthy, verdict.worst.value
    (True, 'note')
    """

    findings: tuple[Finding, ...]
    findings_left_out: int = 0  # past a bound, they are only counted

    @property
    def worst(self) -> Severity | None:
        """How bad the worst finding is; None if there is none."""
        order = list(Severity)
        return max((one.severity for one in self.findings), key=order.index, default=None)

    @property
    def is_healthy(self) -> bool:
        """Whether there is nothing to do."""
        return self.worst in (None, Severity.NOTE)

    def _closing_words(self, precaution: str) -> str:
        """The last line for people; `precaution` is what to do before anything else."""
        if self.worst is Severity.DAMAGE:
            return f"Something is damaged; {precaution} before you change anything."
        return "All is well." if self.is_healthy else "Nothing is lost, but see the warnings."

    def _judged(self) -> dict[str, Any]:
        """The part of it that is the same for all, as plain data."""
        return {
            "healthy": self.is_healthy,
            "worst": None if self.worst is None else self.worst.value,
            "findings": [one.to_json() for one in self.findings],
            "findings_left_out": self.findings_left_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Verdict):
    """What a verification or a repair found; `str(report)` is for people, `to_json()` for programs.

    >>> import tempfile, tidemill as tm
    >>> folder = tempfile.mkdtemp()
    >>> with tm.PriorityQueue(folder) as queue:
    ...     receipt = queue.push([b"a", b"b"])
    >>> report = tm.doctor.verify(folder)
    >>> report.is_healthy, report.items, report.worst
    (True, 2, None)
    """

    path: Path
    format: int | None = None  # of the folder; None if its settings cannot be read
    is_in_use: bool = False  # a process has it open
    owner_pid: int | None = None  # the process that has it open, or had it last
    segments: int = 0
    records: int = 0  # verified
    frames: int = 0  # of these, how many hold items
    items: int = 0  # in all frames, consumed ones included
    bytes: int = 0  # read
    forks: dict[str, int] = field(default_factory=dict)  # name → items left; "" is the queue itself
    done: tuple[str, ...] = ()  # what a repair changed

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "path": str(self.path),
            **self._judged(),
            "format": self.format,
            "in_use": self.is_in_use,
            "owner_pid": self.owner_pid,
            "segments": self.segments,
            "records": self.records,
            "frames": self.frames,
            "items": self.items,
            "bytes": self.bytes,
            "forks": dict(self.forks),
            "done": list(self.done),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {counted(self.records, 'record')} in {counted(self.segments, 'segment')}"
            f" verified, {self.bytes:,} bytes, {counted(self.items, 'stored item')}"
        ]
        if self.is_in_use:
            owner = "a process" if self.owner_pid is None else f"process {self.owner_pid}"
            lines.append(f"{owner} has it open; verified is what was written when this began")
        lines += [
            f"{'the queue' if not name else f'fork {name!r}'}: {counted(left, 'item')} left"
            for name, left in self.forks.items()
        ]
        lines += [str(finding) for finding in self.findings]
        if self.findings_left_out:
            lines.append(f"... and {self.findings_left_out:,} further findings")
        lines += [f"done: {what}" for what in self.done]
        lines.append(self._closing_words("copy the folder"))
        return "\n".join(lines)


class Findings:
    """Collects findings, up to a bound: a disk that is all rubbish must not fill memory."""

    def __init__(self) -> None:
        self.all: list[Finding] = []
        self.left_out = 0

    def note(self, code: str, path: Path, what: str, advice: str = "", **where: int | None) -> None:
        self._add(Severity.NOTE, code, path, what, advice, where)

    def warn(self, code: str, path: Path, what: str, advice: str = "", **where: int | None) -> None:
        self._add(Severity.WARNING, code, path, what, advice, where)

    def damage(
        self, code: str, path: Path, what: str, advice: str = "", **where: int | None
    ) -> None:
        self._add(Severity.DAMAGE, code, path, what, advice, where)

    def _add(
        self,
        severity: Severity,
        code: str,
        path: Path,
        what: str,
        advice: str,
        where: dict[str, int | None],
    ) -> None:
        if len(self.all) >= FINDINGS_MAX:
            self.left_out += 1
            return
        self.all.append(
            Finding(
                severity, code, path, where.get("offset"), what, advice, items=where.get("items")
            )
        )
