"""Where an archive may be: in a place of its own, and nothing is left where it is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tidemill.log.archive.notes import ARCHIVE_NOTE


def make_log(path: Path) -> None:
    with tm.Log(path) as log, log.publisher() as out:
        out.send([b"one", b"two"])


@pytest.mark.parametrize("is_archived", [False, True])
def test_the_folder_of_a_queue_or_a_log_is_refused_and_stays_what_it_is(
    tmp_path: Path, is_archived: bool
) -> None:
    mine, other, queue = (tmp_path / name for name in ("mine", "other", "queue"))
    make_log(mine)
    make_log(other)
    with tm.PriorityQueue(queue) as one:
        one.push([(1, b"a")])
    with tm.Log(mine) as log:
        if is_archived:
            log.archive(tmp_path / "archive")
        for refused in (mine, other, queue):
            with pytest.raises(tm.InvalidInput):
                log.archive(refused)
            assert "manifest.json" not in os.listdir(refused)
        assert (ARCHIVE_NOTE in log._store.notes()) == is_archived
    for path in (mine, other):
        with tm.Log(path) as log, log.publisher() as out:
            assert log.read().rows() == [b"one", b"two"]
            out.send(b"three")


@pytest.mark.parametrize(
    "name", ["journal", "readers/old", "consumers", "staging", "lock", "lock/x"]
)
def test_what_a_log_has_in_its_folder_is_no_place_for_an_archive(tmp_path: Path, name: str) -> None:
    make_log(tmp_path / "log")
    with tm.Log(tmp_path / "log") as log:
        with pytest.raises(tm.InvalidInput, match=r"give the archive .*one of its own|folder of"):
            log.archive(tmp_path / "log" / name)
        assert log.archive(tmp_path / "staging" / "archive").rows == 2
    assert not (tmp_path / "log" / name / "manifest.json").exists()


def test_a_place_that_a_log_does_not_archive_to_is_left_as_it_is(tmp_path: Path) -> None:
    make_log(tmp_path / "log")
    (tmp_path / "empty").mkdir()
    with tm.Log(tmp_path / "log") as log:
        log.archive(tmp_path / "archive")
        for elsewhere in ("empty", "new"):
            with pytest.raises(tm.InvalidInput, match="leave the URL out"):
                log.archive(tmp_path / elsewhere)
    assert os.listdir(tmp_path / "empty") == []
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_down_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    make_log(tmp_path / "log")
    with tm.Log(tmp_path / "log") as log:
        for name in ("no\udcfftext", "ze\0ro"):
            with pytest.raises(tm.InvalidInput, match=r"cannot be written down|has no zero byte"):
                log.archive(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == ["log"]


def test_a_log_beside_a_manifest_is_a_log(shell: Shell) -> None:
    path, archive = shell.folder / "orders", shell.folder / "cold"
    make_log(path)
    with tm.Log(path) as log:
        log.archive(archive)
    (path / "manifest.json").write_bytes((archive / "manifest.json").read_bytes())
    with tm.Log(path) as log, log.publisher() as out:
        assert out.send(b"three").first == 3
    assert shell.good("tidemill doctor orders/ --json").json()["archive"]["rows"] == 2
