"""The doctor of a log in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidemill as tm

SMALL = 16 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with tm.Log(path, segment_bytes=SMALL) as log:
        with log.publisher(producer="loader") as out:
            for number in range(60):
                out.send([b"%d" % number + bytes(900)], number=number)
        with log.receiver("billing", follow=False) as receiver:
            for batch in receiver:
                batch.ack()
        log.trim(before=20)
        log._store.set_note("origin", "the shop", expected=None)
    return path


def kinds(report: tm.doctor.Report) -> set[tuple[str, str]]:
    return {(finding.severity.name, finding.code) for finding in report.findings}


def test_a_sound_log_is_found_sound(path: Path) -> None:
    report = tm.doctor.verify(path)
    assert kinds(report) == set()
    assert report.items >= 41
    with tm.Log(path) as log, log.publisher():
        beside = tm.doctor.verify(path)
    assert beside.is_in_use
    assert beside.worst is not tm.doctor.Severity.DAMAGE


def test_damage_is_told_with_its_place(path: Path) -> None:
    segment = sorted((path / "journal").glob("*.segment"))[-1]
    data = bytearray(segment.read_bytes())
    at = data.index(b"59" + bytes(800))
    data[at] ^= 1
    segment.write_bytes(data)
    report = tm.doctor.verify(path)
    assert report.worst is tm.doctor.Severity.DAMAGE
    (found,) = [one for one in report.findings if one.code == "record"]
    assert found.path == segment
    assert "backup" in found.advice
    assert found.offset is not None
    assert found.offset <= at
    with pytest.raises(tm.InvalidInput, match="dense numbers"):
        tm.doctor.repair(path, set_aside=True)


def test_rows_that_are_missing_are_told_even_if_a_publisher_went_on(path: Path) -> None:
    segment = sorted((path / "journal").glob("*.segment"))[-1]
    data = bytearray(segment.read_bytes())
    data[data.index(b"59" + bytes(800))] ^= 1
    segment.write_bytes(data)
    with tm.Log(path, on_corruption="continue") as log, log.publisher() as out:
        assert out.send(b"in spite of it").first == 61
        assert log.read(61).rows() == [b"in spite of it"]
        with pytest.raises(tm.MissingRows, match="row 60"):
            log.read(60)
    report = tm.doctor.verify(path)
    assert report.worst is tm.doctor.Severity.DAMAGE
    (found,) = [one for one in report.findings if one.code == "rows"]
    assert "rows 60 to 60 are missing" in found.what
    assert found.items == 1


def test_a_repair_makes_summaries_again(path: Path) -> None:
    for summary in (path / "journal").glob("*.summary"):
        summary.unlink()
    done = tm.doctor.repair(path).done
    assert any("summary" in words for words in done)
    assert list((path / "journal").glob("*.summary"))
    with tm.Log(path) as log:
        assert log.ends() == (20, 61)
        assert len(log.read(rows_max=100)) == 41
