"""What is no path of a folder is refused in words, whatever is to be in the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm

OPENERS: dict[str, Callable[[object], object]] = {
    "a queue": tm.PriorityQueue,  # type: ignore[dict-item]
    "a reader": lambda path: tm.PriorityQueue(path, read_only=True),  # type: ignore[arg-type]
    "a log": tm.Log,  # type: ignore[dict-item]
    "a log's archive": lambda path: tm.Log("memory:bad-archive").archive(path),  # type: ignore[arg-type]
    "an archive to restore": lambda path: tm.restore(path, "memory:nowhere"),  # type: ignore[arg-type]
    "counters": lambda path: tm.Counters("node-1", path=path),  # type: ignore[arg-type]
    "verify": tm.doctor.verify,  # type: ignore[dict-item]
    "repair": tm.doctor.repair,  # type: ignore[dict-item]
    "upgrade": tm.doctor.upgrade,  # type: ignore[dict-item]
    "quarantined": tm.doctor.quarantined,  # type: ignore[dict-item]
}


class PathOfBytes(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"folder"


PATHS = {
    "nothing": "",
    "a number": 5,
    "bytes": b"folder",
    "a path of bytes": PathOfBytes(),
    "a zero": "a\0b",
    "half a character": "\ud800",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS.keys())
def test_what_is_no_path_is_refused_and_leaves_no_trace(
    opener: Callable[[object], object],
    path: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tm.InvalidInput):
        opener(path)
    assert list(tmp_path.iterdir()) == []
