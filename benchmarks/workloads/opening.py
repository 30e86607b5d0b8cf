"""Opening a folder of many items: after a clean end, and after SIGKILL of a process that wrote."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child import Child
from benchmarks.progress import say
from benchmarks.result import Result, Target
from benchmarks.rounds import settle

_TARGET = Target("below", 1.0, of="ours")
_WRITING_S = 0.5  # between the first push and the kill


def measure(
    folder: Path, what: str, module: str, arguments: dict[str, Any], *, rounds: int
) -> list[Result]:
    """`module` is a child that can open, churn and close."""
    clean: list[dict[str, float]] = []
    killed: list[dict[str, float]] = []
    for number in range(rounds):
        say(f"opening {what}: round {number + 1} of {rounds}")
        settle()
        with Child(module) as child:
            clean.append(child.ask("open", folder=str(folder), **arguments))
            child.ask("churn")
            time.sleep(_WRITING_S)
            child.kill()
        # Not settled on purpose: what the killed process wrote is still on its way to the disk.
        with Child(module) as child:
            killed.append(child.ask("open", folder=str(folder), **arguments))
            child.ask("close")
    results = []
    for how, answers in (("after a clean end", clean), ("after SIGKILL", killed)):
        conditions = {
            "operation": "PriorityQueue(folder) and len() in a fresh process, imports excluded",
            "page cache": "warm",
            "items": " ".join(f"{answer['items']:.0f}" for answer in answers),
        }
        results += [
            Result(
                f"opening {what}, {how}",
                median(answer["open_s"] for answer in answers),
                "s",
                target=_TARGET,
                conditions=conditions,
            ),
            Result(
                f"opening {what}, {how}: peak resident memory",
                max(answer["peak_mb"] for answer in answers),
                "MB",
                conditions=conditions,
            ),
        ]
    return results
