"""One line of the outcome: what was measured, against what, and whether that is enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on the ratio against the peer, or on our own figure."""

    bound: Literal["at least", "at most", "below"]
    value: float
    of: Literal["ratio", "ours"] = "ratio"

    def is_met(self, figure: float) -> bool:
        if self.bound == "at least":
            return figure >= self.value
        return figure <= self.value if self.bound == "at most" else figure < self.value

    def describe(self, unit: str) -> str:
        sign = {"at least": "≥", "at most": "≤", "below": "<"}[self.bound]
        return f"{sign} {self.value:,.10g} {'×' if self.of == 'ratio' else unit}"


@dataclass(frozen=True, slots=True)
class Result:
    """A figure of ours and, where there is one, of a peer; without a target it is information."""

    workload: str
    ours: float | None  # None: it was skipped, and the note says why
    unit: str
    peer: float | None = None
    peer_name: str = ""
    target: Target | None = None
    note: str = ""
    conditions: dict[str, str] = field(default_factory=dict)  # beyond those of the whole run

    @property
    def ratio(self) -> float | None:
        if self.ours is None or not self.peer:
            return None
        return self.ours / self.peer

    @property
    def met(self) -> bool | None:
        """None if there is no target, or nothing was measured."""
        if self.target is None:
            return None
        figure = self.ratio if self.target.of == "ratio" else self.ours
        return None if figure is None else self.target.is_met(figure)

    def to_json(self, conditions: dict[str, str]) -> dict[str, Any]:
        own = {"note": self.note} if self.note else {}
        return {
            "workload": self.workload,
            "ours": self.ours,
            "peer": self.peer,
            "peer_name": self.peer_name or None,
            "ratio": self.ratio,
            "unit": self.unit,
            "conditions": {**conditions, **self.conditions, **own},
            "target": None if self.target is None else self.target.describe(self.unit),
            "met": self.met,
        }
