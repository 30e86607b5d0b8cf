"""Archiving to a real S3 server through a proxy that fails at every request in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.log.archive.test_archiver import ROWS, check, fill, stray
from tests.services.http_proxy import HttpFault, HttpProxy, Kind
from tests.services.mariadb import MariaDB
from tests.services.seaweedfs import SeaweedFS
from tidemill.errors import OutcomeUnknown, Unavailable
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.objects import ObjectStore
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.memory import Shelf
from tidemill.log.sql.checkup import verify

pytestmark = pytest.mark.slow

LARGE = Sizes(segment_rows=20, group_rows=8)


@pytest.fixture
def proxy(seaweedfs: SeaweedFS) -> Iterator[HttpProxy]:
    with HttpProxy(seaweedfs.port) as proxy:
        yield proxy


def archived(shelf: Shelf, objects: ObjectStore) -> None:
    Archiver(shelf.open(), Archive(objects), LARGE).run(31)


@pytest.mark.parametrize("kind", ["500", "cut"])
def test_a_request_that_fails_once_is_not_noticed(
    seaweedfs: SeaweedFS, proxy: HttpProxy, prefix: str, kind: Kind
) -> None:
    for at in range(100):
        shelf = Shelf()
        fill(shelf)
        url = f"{seaweedfs.url(f'{prefix}/{at}', endpoint=proxy.endpoint)}&retry_s=10"
        proxy.arm(HttpFault(at, kind))
        archived(shelf, open_objects(url))
        fired = proxy.fired
        proxy.arm(None)
        check(shelf, open_objects(url))
        assert shelf.frames == []
        assert stray(open_objects(url)) == set()
        if not fired:
            assert at > 12
            return
    pytest.fail("there is no end of requests")


@pytest.mark.parametrize("kind", ["500", "hang"])
def test_a_server_that_goes_away_at_any_request_costs_nothing(
    seaweedfs: SeaweedFS, proxy: HttpProxy, prefix: str, kind: Kind
) -> None:
    seen = 0
    for at in range(0, 100, 1 if kind == "500" else 4):
        shelf = Shelf()
        fill(shelf)
        url = seaweedfs.url(f"{prefix}/{at}", endpoint=proxy.endpoint)
        # Once the server is back it may be slow; the log has one archive, and knows its URL.
        impatient = open_objects(f"{url}&retry_s=0.5&timeout_s=2")
        impatient.url = open_objects(url).url
        proxy.arm(HttpFault(at, kind, stays=True))
        is_through = True
        try:
            archived(shelf, impatient)
        except (Unavailable, OutcomeUnknown):
            is_through = False
            seen += 1
        fired = proxy.fired
        proxy.arm(None)
        if "archive" in shelf.notes:
            check(shelf, open_objects(url))
        archived(shelf, open_objects(url))
        check(shelf, open_objects(url))
        assert shelf.frames == []
        assert stray(open_objects(url)) == set()
        # A busy server may be too slow for it even before the fault, and then there is more to try.
        if is_through and not fired:
            break
    assert seen > 3


def test_a_log_in_a_folder_and_its_bucket_are_one(
    seaweedfs: SeaweedFS, prefix: str, tmp_path: Path
) -> None:
    url = seaweedfs.url(prefix)
    with tm.Log(tmp_path / "orders", segment_bytes=16_384) as log, log.publisher() as out:
        for start in range(0, 3_000, 100):
            out.send([b"%05d" % number * 20 for number in range(start, start + 100)])
        middle = log.read(1_501, rows_max=1).first
        assert middle is not None
        assert log.archive(url).rows == 3_000
        out.send([b"hot"])
        assert log.read(middle.time, rows_max=1).first_seq <= 1_501
        with log.receiver("billing", follow=False) as receiver:
            seqs = []
            for batch in receiver:
                seqs += batch.seqs.to_pylist()
                batch.ack()
        assert seqs == list(range(1, 3_002))
        assert log.archive().rows == 1
    with tm.Log(tmp_path / "orders", read_only=True) as log:
        assert log.read(2_999, rows_max=10).rows() == [b"02998" * 20, b"02999" * 20, b"hot"]
    assert tm.doctor.verify(tmp_path / "orders").worst is None


def test_a_log_on_a_server_is_emptied_into_a_bucket(
    mariadb: MariaDB, database: str, seaweedfs: SeaweedFS, prefix: str
) -> None:
    place = mariadb.url(database, "orders")
    with tm.Log(place, parallelism=2) as log, log.publisher() as out:
        for start in range(0, 30, 5):
            out.send(ROWS[start : start + 5])
        assert log.archive(seaweedfs.url(prefix)).rows == 30
        out.send([b"hot"])
        assert log.read(1).rows() == [*ROWS, b"hot"]
        assert log.read(28).rows() == [*ROWS[27:], b"hot"]
    tables = [f"{database}.queue_orders_002_{shard:04}" for shard in range(2)]
    left = [mariadb.execute(f"SELECT first FROM {table}") for table in tables]
    assert sum(left, []) == [(31,)]  # noqa: RUF017
    report = verify(place)
    assert (report.rows, report.worst) == (31, None)
