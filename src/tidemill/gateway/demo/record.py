"""What the demonstration measured: for people, for programs, and for the picture."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.gateway.demo.telemetry import DEVICES


@dataclass(slots=True)
class Phase:
    """One stretch of work: how many events went through, and when."""

    name: str
    title: str
    start_s: float
    end_s: float = 0.0
    steps: list[tuple[float, int]] = field(default_factory=list)  # (when, how many)
    queue_s: float = 0.0  # of it in the queue; the rest went into checking what came out

    def step(self, rows: int, at_s: float | None = None) -> None:
        self.end_s = time.monotonic() if at_s is None else at_s
        self.steps.append((self.end_s, rows))

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.steps)

    @property
    def seconds(self) -> float:
        return max(self.end_s - self.start_s, 1e-9)

    @property
    def rate(self) -> int:
        return round(self.rows / self.seconds)


@dataclass(slots=True)
class Record:
    """The run."""

    items: int
    phases: list[Phase] = field(default_factory=list)
    killed_s: float = 0.0
    opened_s: float = 0.0  # how long opening took after the kill
    acknowledged: int = 0  # events, when the process was killed
    found: int = 0  # events, when the queue was opened again
    disk_bytes_max: int = 0
    # A sample of the events as they came out: arrival number, and which of all by time.
    arrivals: list[npt.NDArray[np.int64]] = field(default_factory=list)
    numbers: list[npt.NDArray[np.int64]] = field(default_factory=list)
    seq_at_kill: int = 0

    def phase(self, name: str, title: str) -> Phase:
        self.phases.append(Phase(name, title, time.monotonic()))
        return self.phases[-1]

    def document(self, picture: Path | None, folder: Path | None) -> dict[str, Any]:
        """Everything but the samples, for programs."""
        return {
            "items": self.items,
            "devices": DEVICES,
            "acknowledged_before_the_kill": self.acknowledged,
            "found_after_the_kill": self.found,
            "lost": 0,  # or there would be an error instead
            "doubled": 0,
            "opened_s": round(self.opened_s, 6),
            "disk_bytes_max": self.disk_bytes_max,
            "phases": [
                {
                    "name": phase.name,
                    "items": phase.rows,
                    "seconds": round(phase.seconds, 3),
                    "items_per_s": phase.rate,
                    "queue_seconds": round(phase.queue_s, 3) if phase.queue_s else None,
                }
                for phase in self.phases
            ],
            "picture": None if picture is None else str(picture),
            "folder": None if folder is None else str(folder),
        }
