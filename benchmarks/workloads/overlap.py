"""Heavy overlap: 1,000 batches of random keys in one bucket, popped 2,000 at a time."""

from __future__ import annotations

import tempfile
from statistics import median

from benchmarks.child import Child
from benchmarks.progress import say
from benchmarks.result import Result, Target
from benchmarks.rounds import settle
from benchmarks.settings import ITEMS_PER_BATCH, Settings

_RATE_TARGET = Target("at least", 3e6, of="ours")
_MEMORY_TARGET = Target("below", 300, of="ours")


def run(settings: Settings) -> list[Result]:
    batches = 50 if settings.quick else 1_000
    answers: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(settings.rounds):
        for pushes_between, found in answers.items():
            say(f"overlap, pushes between: {pushes_between}: round {number + 1}")
            settle()
            with (
                tempfile.TemporaryDirectory(dir=settings.folder) as folder,
                Child("benchmarks.overlap_child") as child,
            ):
                found.append(
                    child.ask(
                        "measure", folder=folder, batches=batches, pushes_between=pushes_between
                    )
                )
    results = []
    for pushes_between, found in answers.items():
        what = f"overlap of {batches} batches{', pushes between' if pushes_between else ''}"
        conditions = {
            "operation": f"{ITEMS_PER_BATCH} items of random keys within one bucket, sync none",
            "memory": "greatest VmHWM of a fresh process for each round, Python included; "
            f"{median(one['imported_mb'] for one in found):.0f} MB of it after the imports",
        }
        results += [
            Result(
                f"{what}: pop",
                median(one["pop_items_per_s"] for one in found),
                "items/s",
                target=_RATE_TARGET,
                conditions=conditions,
            ),
            Result(
                f"{what}: push",
                median(one["push_items_per_s"] for one in found),
                "items/s",
                note="between the pops" if pushes_between else "before the pops",
                conditions=conditions,
            ),
            Result(
                f"{what}: peak resident memory",
                max(one["peak_mb"] for one in found),
                "MB",
                target=_MEMORY_TARGET,
                conditions=conditions,
            ),
        ]
    return results
