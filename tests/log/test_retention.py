"""What goes from the front of a log: each limit, each combination, hot rows and archived ones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.services.mariadb import MariaDB
from tidemill.log import retention
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.retention import Retention

ROWS = 60
SMALL = Sizes(segment_rows=4, group_rows=3, manifest_segments=2)


@pytest.fixture(params=["files", pytest.param("mariadb", marks=pytest.mark.slow)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Log]:
    """Rows 1 to 60, each sent alone, each with a time of its own."""
    if request.param == "files":
        log = tm.Log(tmp_path / "log", segment_bytes=16_384, sync="none")
    else:
        server: MariaDB = request.getfixturevalue("mariadb")
        log = tm.Log(server.url(request.getfixturevalue("database"), "log"), parallelism=2)
    with log, log.publisher() as out:
        for number in range(1, ROWS + 1):
            out.send([b"%04d" % number * 200])
        yield log


def archive(log: tm.Log, folder: Path, end: int) -> Archive:
    """The archive of the rows before `end`, in many small segments and a few pages."""
    archive = Archive(open_objects(folder))
    Archiver(log._store.hot, archive, SMALL).run(end)
    return archive


def acked(log: tm.Log, consumer: str, pointer: int) -> None:
    with log.receiver(consumer, follow=False, rows_max=1) as receiver:
        for batch in receiver:
            batch.ack()
            if batch.last_seq == pointer:
                break
    assert log.consumers()[consumer] == pointer


def time_of(log: tm.Log, seq: int) -> datetime:
    first = log.read(seq, rows_max=1).first
    assert first is not None
    return first.time


def newest_bytes(log: tm.Log, seq: int) -> int:
    """What the rows from `seq` on take, as stored; of those in both places, in the archive."""
    archive = log._store.archive()
    archived = [] if archive is None else list(archive.segments(archive.look()))
    hot = max([seq, *(segment.next for segment in archived)])
    in_archive = sum(segment.bytes for segment in archived if segment.first >= seq)
    return in_archive + int(log._store.hot.layout(hot, ROWS + 1).sizes.sum())


@pytest.mark.parametrize("archived", [0, 41], ids=["hot", "tiered"])
def test_a_row_goes_if_any_of_the_limits_says_so(
    log: tm.Log, tmp_path: Path, archived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_ROWS_PER_LOOK", 7)  # Else one look would see it all.
    if archived:
        archive(log, tmp_path / "archive", archived)
    acked(log, "slow", 24)
    acked(log, "fast", 50)
    # Segments of the archive hold rows 33 to 36, 37 to 40: sizes are kept to by whole ones.
    now = datetime.now(UTC)
    limits: dict[str, tuple[Any, int]] = {
        "before": (11, 11),
        "older_than": (now - time_of(log, 17), 17),
        "bytes_max": (newest_bytes(log, 37), 37),
        "consumed": (True, 25),
    }
    for count in range(1, len(limits) + 1):
        for names in combinations(limits, count):
            given = Retention(**{name: limits[name][0] for name in names})
            expected = max(limits[name][1] for name in names)
            assert given.end(log._store, now=now) == expected, names
    at = Retention(before=time_of(log, 30))
    assert at.end(log._store) == 30


def test_a_size_is_kept_to_wherever_rows_are(log: tm.Log, tmp_path: Path) -> None:
    opened = archive(log, tmp_path / "archive", 49)
    assert opened.look().pages
    segments = list(opened.segments(opened.look()))
    hot = newest_bytes(log, 49)
    room, expected = hot, 49
    for segment in reversed(segments):
        assert Retention(bytes_max=room).end(log._store) == expected
        assert Retention(bytes_max=room + segment.bytes - 1).end(log._store) == expected
        room, expected = room + segment.bytes, segment.first
    assert Retention(bytes_max=room).end(log._store) == 1
    assert Retention(bytes_max=10**15).end(log._store) == 1
    assert Retention(bytes_max=hot - 1).end(log._store) == 50
    assert Retention(bytes_max=0).end(log._store) == ROWS + 1
    assert Retention(bytes_max=0).end(log._store, hot=True) == ROWS + 1
    assert Retention(bytes_max=hot).end(log._store, hot=True) == 49
    assert Retention(bytes_max=10**15).end(log._store, hot=True) == 49


def test_trimming_by_a_limit_stops_at_the_slowest_consumer(log: tm.Log, tmp_path: Path) -> None:
    opened = archive(log, tmp_path / "archive", 41)
    assert log.trim(consumed=True) == 1
    acked(log, "slow", 20)
    assert log.trim(older_than=timedelta(days=1)) == 1
    assert log.trim(bytes_max=newest_bytes(log, 37)) == 21
    assert opened.look().covered == 21
    assert log.trim(older_than=timedelta()) == 21
    assert log.trim(consumed=True, bytes_max=10**15) == 21
    assert log.trim(bytes_max=newest_bytes(log, 37), force=True) == 37
    assert log.read(37, rows_max=1).rows() == [b"0037" * 200]
    log.remove_consumer("slow")
    assert log.trim(older_than=timedelta()) == ROWS + 1
    assert opened.look().count == 0
    assert list(opened.objects.names("segments")) == []


def test_what_goes_to_the_archive_is_what_the_limits_name(log: tm.Log, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    assert log.archive(place, older_than=timedelta(days=1)).rows == 0
    assert log.archive(bytes_max=10**15).rows == 0
    assert log.archive(consumed=True).rows == 0
    acked(log, "slow", 8)
    assert log.archive(consumed=True).next == 9
    assert log.archive(bytes_max=newest_bytes(log, 31)).next == 31
    assert log.archive(consumed=True).next == 31
    assert log.archive(before=33, consumed=True).next == 33
    assert log.archive(older_than=timedelta(), bytes_max=10**15).next == ROWS + 1
    assert log.ends() == (1, ROWS + 1)
    assert log.read(1, rows_max=100).rows() == [b"%04d" % n * 200 for n in range(1, ROWS + 1)]


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({}, "say which rows to trim"),
        ({"older_than": 3_600}, "older_than is a timedelta"),
        ({"older_than": timedelta(seconds=-1)}, "older_than is a timedelta"),
        ({"bytes_max": -1}, "bytes_max is a whole number"),
        ({"bytes_max": 1.5}, "bytes_max is a whole number"),
        ({"bytes_max": True}, "bytes_max is a whole number"),
        ({"consumed": "yes"}, "consumed is True or False"),
        ({"before": 0}, "before is the number of a row"),
        ({"before": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ],
)
def test_a_limit_that_is_none_is_refused(limits: dict[str, Any], says: str) -> None:
    with tm.Log("memory:retention") as log:
        with pytest.raises(tm.InvalidInput, match=says):
            log.trim(**limits)
        if limits:
            with pytest.raises(tm.InvalidInput, match=says):
                log.archive("memory:nowhere", **limits)
            assert log._store.notes() == {}
