"""The commands on a log on PostgreSQL, through a real shell: sent, archived, looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidemill as tm
from tests.gateway.shell import Shell, shell

__all__ = ["shell"]

# Every command starts a Python of its own.
pytestmark = pytest.mark.slow


def test_rows_go_in_are_archived_and_come_out(shell: Shell, url: str, tmp_path: Path) -> None:
    sent = shell.good(f"seq 5 | tidemill send {url} - --format lines --json").json()
    assert (sent["first"], sent["last"], sent["durability"]) == (1, 5, "synced")
    shell.good(f"tidemill archive {url} {tmp_path / 'archive'}")
    with tm.Log(url) as log:
        with log.publisher() as out:
            out.send([b"6"])
        rows = [row for batch in log.receiver("billing", follow=False) for row in batch.rows()]
    assert rows == [b"1", b"2", b"3", b"4", b"5", b"6"]
    found = shell.good(f"tidemill doctor {url} --json").json()
    assert (found["healthy"], found["rows"], found["server"][:3]) == (True, 6, "18.")
    tm.restore(str(tmp_path / "archive"), f"{url}_copy")
    with tm.Log(f"{url}_copy") as log:
        assert log.read(1, rows_max=9).rows() == rows[:5]
