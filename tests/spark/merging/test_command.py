"""`tidemill merge`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.shell import Shell


@pytest.mark.slow
def test_queues_are_merged_from_a_shell(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for device in ("a", "b"):
        shell.good(f"seq 3 | sed 's/.*/{device}&/' | tidemill push edge/{device} --format lines")
    told = shell.good("tidemill merge edge/*/ --into all/ --no-key --origin device --json").json()
    assert told == {"rows": 6, "first": 1, "last": 6, "transactions": 1}
    told = shell.good("tidemill receive all/ check").out
    assert [told.count(value) for value in ("a1", "a2", "a3", "b1", "b2", "b3")] == [1] * 6
    assert shell.good("tidemill len edge/a").out == "0\n"


@pytest.mark.slow
def test_what_holds_no_queue_is_told_before_spark_starts(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.refused("tidemill merge nowhere/ --into all/", 4, "not-found")
    shell.refused("tidemill merge mysql://h/d/q --into all/", 3, "invalid-input")
    shell.refused("tidemill merge --into all/", 2, "usage")
    assert not (tmp_path / "all").exists()
