"""What the main job measured: for people, for programs, and for the report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(slots=True)
class Stage:
    """One stretch of work."""

    name: str
    title: str
    start_s: float
    end_s: float = 0.0
    rows: int = 0
    is_killed: bool = False  # by SIGKILL, at its end

    @property
    def seconds(self) -> float:
        return max(self.end_s - self.start_s, 1e-9)

    @property
    def rate(self) -> int:
        return round(self.rows / self.seconds)


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, and what was found; they are equal, or the job has failed."""

    claim: str
    expected: str
    found: str


@dataclass(slots=True)
class Story:
    """One run."""

    items: int
    stages: list[Stage] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    # A sample of the log: number of the row, and when it was measured, as a share of all time.
    log_seqs: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    log_times: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    merged_first: int = 0  # rows of the log after the first merge
    windows: pa.Table | None = None  # what the pipeline made of it
    bad: dict[str, int] = field(default_factory=dict)  # reason → rows

    @contextmanager
    def stage(self, name: str, title: str) -> Iterator[Stage]:
        """Measure what happens in the block."""
        stage = Stage(name, title, time.monotonic())
        self.stages.append(stage)
        try:
            yield stage
        finally:
            stage.end_s = time.monotonic()

    @property
    def seconds(self) -> float:
        return self.stages[-1].end_s - self.stages[0].start_s

    def document(self, report: Path, folder: Path | None) -> dict[str, Any]:
        """The run as plain data."""
        return {
            "items": self.items,
            "seconds": round(self.seconds, 3),
            "stages": [
                {
                    "name": stage.name,
                    "rows": stage.rows,
                    "seconds": round(stage.seconds, 3),
                    "rows_per_s": stage.rate,
                    "killed": stage.is_killed,
                }
                for stage in self.stages
            ],
            "checks": [
                {"claim": check.claim, "expected": check.expected, "found": check.found}
                for check in self.checks
            ],
            "bad": self.bad,
            "report": str(report),
            "folder": None if folder is None else str(folder),
        }
