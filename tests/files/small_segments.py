"""Queues of small segments that nobody keeps in the background, and what lies in their folders."""

from __future__ import annotations

from pathlib import Path

import tidemill as tm

SEGMENT = 32 * 1024


def queue_at(path: Path, **options: object) -> tm.PriorityQueue:
    given = {"segment_bytes": SEGMENT, "maintain_in_background": False, "sync": "none", **options}
    return tm.PriorityQueue(path, **given)  # type: ignore[arg-type]


def segments_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "journal").glob("*.segment"))


def disk_bytes(path: Path) -> int:
    """What all files take, each counted once however many names it has."""
    files = {file.stat().st_ino: file.stat().st_size for file in path.rglob("*") if file.is_file()}
    return sum(files.values())


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
