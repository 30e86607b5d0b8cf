"""What an archive promises of a bucket, at a real S3 server: races, stale lists, wrong credentials,
no bucket. Errors say what is wrong, and nothing is lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.log.archive.faulty_objects import Crash, Fault, FaultyObjects, When
from tests.log.archive.test_archiver import (
    ROWS,
    SMALL,
    Overtaken,
    archiver,
    check,
    fill,
    stray,
)
from tests.log.contract.writing import read_all
from tests.services.http_proxy import HttpFault, HttpProxy
from tests.services.mariadb import MariaDB
from tests.services.seaweedfs import ENVIRONMENT, SeaweedFS
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.dropping import drop_below
from tidemill.log.archive.manifest import segment_folder
from tidemill.log.archive.memory import MemoryObjects
from tidemill.log.archive.objects import ObjectStore
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.memory import Shelf
from tidemill.log.tiered import TieredLog

LARGE = Sizes(segment_rows=20, group_rows=8)


@pytest.fixture
def proxy(seaweedfs: SeaweedFS) -> Iterator[HttpProxy]:
    with HttpProxy(seaweedfs.port) as proxy:
        yield proxy


class Raced(Fault):
    """Somebody else changes the manifest just before each replacement of it, a few times."""

    def __init__(self, objects: ObjectStore, times: int) -> None:
        super().__init__(-1, "before")
        self._objects, self.left = objects, times

    def step(self, call: str, when: When) -> None:
        if call.startswith("replace") and when == "before" and self.left:
            self.left -= 1
            drop_below(Archive(self._objects), 6 - self.left)


@pytest.mark.slow
def test_who_loses_the_race_for_the_manifest_tries_again(seaweedfs: SeaweedFS, prefix: str) -> None:
    shelf = Shelf()
    fill(shelf)
    objects = open_objects(seaweedfs.url(prefix))
    archiver(shelf.open(), objects, LARGE).run(21)
    raced = Raced(objects, 4)
    shelf.open().trim(6)
    done = archiver(shelf.open(), FaultyObjects(objects, raced), LARGE).run(31)
    assert raced.left == 0
    assert done.next == 31
    assert read_all(TieredLog(shelf.open())) == ROWS[5:]
    assert (Archive(objects).look().first, stray(objects)) == (6, set())


@pytest.mark.slow
@pytest.mark.parametrize("place", ["env=prod", "my orders", "café+100%25"])
def test_a_log_finds_its_archive_again_whatever_is_in_the_prefix(
    seaweedfs: SeaweedFS, prefix: str, tmp_path: Path, place: str
) -> None:
    url = seaweedfs.url(f"{prefix}/{place}")
    with tm.Log(tmp_path / "orders") as log, log.publisher() as out:
        out.send([b"one", b"two"])
        assert log.archive(url).rows == 2
    with tm.Log(tmp_path / "orders") as log, log.publisher() as out:
        assert log.verify_archive(deep=True).rows == 2
        out.send(b"three")
        assert log.archive().rows == 1
        assert log.archive(url).rows == 0
    with tm.Log(url) as alone:
        assert alone.read().rows() == [b"one", b"two", b"three"]


@pytest.mark.slow
def test_who_is_overtaken_in_a_bucket_adds_nothing(seaweedfs: SeaweedFS, prefix: str) -> None:
    """At some of the calls, of each kind, another archiver does all of the work."""
    seen = set()
    for at in range(3, 60, 4):
        shelf = Shelf()
        fill(shelf)
        objects = open_objects(seaweedfs.url(f"{prefix}/{at}"))
        fault = Overtaken(shelf, objects, at)
        try:
            archiver(shelf.open(), FaultyObjects(objects, fault)).run(31)
        except tm.Fenced:
            assert fault.is_over
            seen.add(fault.calls[at].split()[0])
        check(shelf, objects)
        archiver(shelf.open(), objects).run(31)
        assert stray(objects) == set()
        if not fault.is_over:
            break
    assert seen >= {"get", "put", "replace"}


@pytest.mark.slow
def test_a_list_that_is_old_removes_nothing_that_is_named(
    seaweedfs: SeaweedFS, proxy: HttpProxy, prefix: str
) -> None:
    shelf = Shelf()
    fill(shelf)
    url = seaweedfs.url(prefix, endpoint=proxy.endpoint)
    objects = open_objects(seaweedfs.url(prefix))
    orphan = f"{segment_folder(3)}/0-abcd.parquet"
    proxy.arm(HttpFault(0, "stale", stays=True))
    for end in (5, 11, 17, 31):
        Archiver(shelf.open(), Archive(open_objects(url)), SMALL).run(end)
        check(shelf, objects)
        if end == 5:
            objects.put_new(orphan, pa.py_buffer(b"left by a crash"))
    lists = [request for request in proxy.requests if "list-type=2" in request]
    assert len(lists) >= 8
    assert stray(objects) == {orphan}  # Nobody has seen it.
    proxy.arm(None)
    report = Archive(open_objects(url))
    assert Archiver(shelf.open(), report, SMALL).swept == 1
    assert stray(objects) == set()
    check(shelf, objects)


@pytest.fixture(params=["files", "mariadb"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Log]:
    address = str(tmp_path / "log")
    if request.param == "mariadb":
        server: MariaDB = request.getfixturevalue("mariadb")
        address = server.url(request.getfixturevalue("database"), "log")
    with tm.Log(address) as log, log.publisher() as out:
        for start in range(0, 30, 5):
            out.send(ROWS[start : start + 5])
        yield log


@pytest.mark.slow
def test_credentials_that_turn_wrong_cost_nothing(
    log: tm.Log, seaweedfs: SeaweedFS, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = seaweedfs.url(prefix)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-key")
    with pytest.raises(tm.NoAccess, match="check the credentials"):
        log.archive(url)
    assert "archive" not in log._store.notes()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ENVIRONMENT["AWS_SECRET_ACCESS_KEY"])
    assert log.archive(url, before=21).rows == 20
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-key")
    with pytest.raises(tm.NoAccess, match="check the credentials"):
        Archiver(log._store.hot, Archive(open_objects(url)))
    with pytest.raises(tm.NoAccess):
        tm.restore(url, "nowhere")
    assert not Path("nowhere").exists()
    assert log.read(21).rows() == ROWS[20:]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ENVIRONMENT["AWS_SECRET_ACCESS_KEY"])
    assert log.read(1).rows() == ROWS
    assert log.archive().rows == 10
    assert log.verify_archive(deep=True).worst is None


@pytest.mark.slow
def test_a_bucket_that_is_missing_costs_nothing(
    log: tm.Log, seaweedfs: SeaweedFS, prefix: str
) -> None:
    url = seaweedfs.url(prefix, bucket="nobody-made-it")
    with pytest.raises(tm.NotAnArchive, match="there is no bucket 'nobody-made-it'"):
        log.archive(url)
    assert "archive" not in log._store.notes()
    assert log.read(1).rows() == ROWS
    with pytest.raises(tm.NotAnArchive, match="there is no bucket"):
        tm.Log(url)
    assert log.archive(seaweedfs.url(prefix)).rows == 30


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_of_a_trim_is_made_up_for(when: When) -> None:
    """The log decides; the archive follows, at once or with the next archiver."""
    seen = set()
    for at in range(50):
        shelf = Shelf()
        fill(shelf)
        objects = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
        archiver(shelf.open(), objects).run(27)
        fault = Fault(at, when)
        log = TieredLog(shelf.open())
        log._archive = Archive(FaultyObjects(objects, fault))
        try:
            log.trim(14)
        except Crash:
            seen.add(fault.calls[at].split()[0])
        assert read_all(TieredLog(shelf.open())) == ROWS[13:]
        archiver(shelf.open(), objects).run(31)
        assert read_all(TieredLog(shelf.open())) == ROWS[13:]
        assert stray(objects) == set(), fault
        assert Archive(objects).look().covered == 13
        if at >= len(fault.calls):
            break
    assert seen >= {"get", "put", "replace", "delete"}
