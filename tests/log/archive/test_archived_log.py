"""An archive by itself: the rows, the numbers and the times of its log, and nothing to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm
from tidemill.log.contract import ConsumerClaim
from tidemill.log.opening import open_store

CLAIM = ConsumerClaim("billing", 1, 0)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The archive of rows 3 to 9; its log has a tenth."""
    with tm.Log(tmp_path / "log") as log, log.publisher() as out:
        for number in range(1, 10):
            out.send([b"%d" % number])
        log.archive(tmp_path / "archive")
        log.trim(3)
        out.send([b"10"])
    return tmp_path / "archive"


def test_it_has_the_rows_and_numbers_of_its_log(archive: Path) -> None:
    with tm.Log(archive) as alone, tm.Log(archive.parent / "log", read_only=True) as log:
        assert alone.ends() == (3, 10)
        assert alone.read().rows() == log.read(rows_max=7).rows()
        assert len(alone.read(10)) == 0
        fifth = log.read(5).first
        assert fifth is not None
        assert alone.read(fifth.time).first_seq == log.read(fifth.time).first_seq
        with pytest.raises(tm.Trimmed):
            alone.read(2)
        assert alone.consumers() == {}
    with open_store(archive, schema=None) as store:
        assert store.layout(1, 100).firsts[0] == 1
        assert store.seq_at(0) == 3
        assert store.seq_at(2**60) == 10
        assert store.notes() == {}


def test_it_goes_on_when_more_is_archived(archive: Path) -> None:
    with tm.Log(archive) as alone:
        assert alone.read(9).rows() == [b"9"]
        with tm.Log(archive.parent / "log") as log:
            log.archive()
        assert alone.read(9).rows() == [b"9", b"10"]


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.claim(),
        lambda store: store.claim_consumer("billing", start=1),
        lambda store: store.move_pointer(CLAIM, 3),
        lambda store: store.check_claim(CLAIM),
        lambda store: store.remove_consumer("billing"),
        lambda store: store.trim(5),
        lambda store: store.release(5),
        lambda store: store.set_note("archive", "elsewhere", expected=None),
    ],
)
def test_nothing_of_it_can_be_changed(archive: Path, change: Callable[[tm.Log], object]) -> None:
    before = (archive / "manifest.json").read_bytes()
    with open_store(archive, schema=None) as store, pytest.raises(tm.ReadOnly, match="only read"):
        change(store)  # type: ignore[arg-type]
    assert (archive / "manifest.json").read_bytes() == before


def test_what_cannot_be_opened_is_said(archive: Path) -> None:
    with pytest.raises(tm.InvalidInput, match="has no option 'sync'"):
        tm.Log(archive, sync="none")
    with pytest.raises(tm.InvalidInput, match="that log's schema"):
        tm.Log(archive, schema=tm.SOURCED)
    store = open_store(archive, schema=None)
    store.close()
    with pytest.raises(tm.Closed):
        store.ends()
    (archive / "manifest.json").write_bytes(b"{}")
    with pytest.raises(tm.Corrupt, match="checksum of the manifest"):
        tm.Log(archive)
