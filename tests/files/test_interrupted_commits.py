"""A commit that Ctrl-C, or anything else that is no error of ours, breaks off in the middle.

Whether it was written is then not known to the handle: going on would give its numbers twice, and
what is numbered twice is consumed together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.files.journal import Journal

POINTS = [("append", "before"), ("sync", "before"), ("sync", "after"), ("append", "after")]


def _interrupt(monkeypatch: pytest.MonkeyPatch, step: str, when: str) -> None:
    """Let the next such step of a journal be broken off."""
    original = getattr(Journal, step)

    def interrupted(self: Journal, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(Journal, step, original)
        if when == "after":
            original(self, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, step, interrupted)


@pytest.mark.parametrize(("step", "when"), POINTS)
def test_a_queue_gives_no_number_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a")])
        _interrupt(monkeypatch, step, when)
        with pytest.raises(KeyboardInterrupt):
            queue.push([(1, b"broken off")])
        with pytest.raises(tm.StorageFailed, match="interrupted"):
            queue.push([(1, b"b")])
        with pytest.raises(tm.StorageFailed, match="close the queue and open it again"):
            queue.pop()
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"b")])
    popped: list[bytes] = []
    with tm.PriorityQueue(tmp_path) as queue:
        while len(batch := queue.pop(1)):
            popped += batch.values.to_pylist()
    assert [value for value in popped if value != b"broken off"] == [b"a", b"b"]
    assert popped.count(b"broken off") == (0 if (step, when) == ("append", "before") else 1)


@pytest.mark.parametrize(("step", "when"), POINTS)
def test_a_log_goes_on_with_a_new_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    with tm.Log(tmp_path / "log") as log:
        out = log.publisher()
        sent = {b"a": out.send(b"a").first}
        _interrupt(monkeypatch, step, when)
        with pytest.raises(KeyboardInterrupt):
            out.send(b"broken off")
        with pytest.raises(tm.StorageFailed, match="open a new one"):
            out.send(b"b")
        with log.publisher() as out:  # The old one was never closed.
            sent |= {value: out.send(value).first for value in (b"b", b"c")}
        rows = log.read().rows()
    with tm.Log(tmp_path / "log") as log:
        assert log.read().rows() == rows
        assert log.ends().next == len(rows) + 1
    assert {value: rows.index(value) + 1 for value in sent} == sent
    assert len(rows) == len(set(rows))
    assert tm.doctor.verify(tmp_path / "log").worst is None
