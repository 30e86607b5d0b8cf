"""The public face of a log, and what can be sent through it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import StringValue

import tidemill as tm
from tests.services.mariadb import MariaDB
from tidemill.log.contract import LogStore
from tidemill.log.start import Start, start_seq


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    return f"memory:{request.node.name[:50].replace('[', '-').rstrip(']')}"


def test_protobuf_messages_are_sent_as_their_bytes(address: str) -> None:
    with tm.Log(address) as log, log.publisher() as out:
        out.send(StringValue(value="one"))
        out.send([StringValue(value="two"), Timestamp(seconds=7)])
        rows = log.read().rows()
    assert StringValue.FromString(rows[0]).value == "one"
    assert StringValue.FromString(rows[1]).value == "two"
    assert Timestamp.FromString(rows[2]).seconds == 7


def test_an_iterator_may_give_what_a_list_may(address: str) -> None:
    with tm.Log(address, schema=tm.SOURCED) as log, log.publisher() as out:
        out.send(tm.Sourced(1, number, "web", b"") for number in range(3))
        assert log.read().payload.column("source_id").to_pylist() == [0, 1, 2]
    with tm.Log(f"{address}-2") as log, log.publisher() as out:
        out.send(iter([StringValue(value="one"), b"two"]))
        assert log.read().rows()[1] == b"two"


def test_sourced_rows_say_where_they_come_from(address: str) -> None:
    with tm.Log(address, schema=tm.SOURCED) as log, log.publisher() as out:
        out.send(tm.Sourced(1, 42, "web", b"one"))
        out.send([tm.Sourced(2, -1, "app", StringValue(value="two")), tm.Sourced(3, 0, "", b"")])
        out.send({"source_type": 4, "source_id": 5, "source_name": "dict", "value": b"four"})
        batch = log.read()
    assert batch.payload.column("source_type").to_pylist() == [1, 2, 3, 4]
    assert batch.payload.column("source_id").to_pylist() == [42, -1, 0, 5]
    assert batch.payload.column("source_name").to_pylist() == ["web", "app", "", "dict"]
    assert StringValue.FromString(batch.rows()[1]["value"]).value == "two"


@pytest.mark.parametrize(
    "rows",
    [
        [tm.Sourced(1, 42, "web", "text")],
        [tm.Sourced(2**40, 42, "web", b"x")],
        [tm.Sourced(1, 42, "web", b"x"), b"plain"],
        [tm.Sourced(None, 42, "web", b"x")],  # type: ignore[arg-type]
        [b"plain"],
    ],
)
def test_sourced_rows_that_do_not_fit_are_refused(address: str, rows: object) -> None:
    with tm.Log(address, schema=tm.SOURCED) as log, log.publisher() as out:
        with pytest.raises(tm.InvalidInput):
            out.send(rows)
        assert log.ends().next == 1


def test_sourced_rows_need_their_columns(address: str) -> None:
    log = tm.Log(address)
    with pytest.raises(tm.SchemaMismatch, match=r"schema=tm\.SOURCED"):
        log.publisher().send(tm.Sourced(1, 42, "web", b"one"))
    log.close()


def test_read_joins_frames_up_to_rows_max(address: str) -> None:
    with tm.Log(address) as log, log.publisher() as out:
        for number in range(100):
            out.send(b"%d" % number)
        batch = log.read(11, rows_max=50)
        assert batch.rows() == [b"%d" % number for number in range(10, 60)]
        assert batch.times.type == pa.timestamp("us", tz="UTC")
        assert len(batch.times) == len(batch.seqs) == 50
        assert len(log.read(101)) == 0
        for bad in (0, -1, True, 1.5):
            with pytest.raises(tm.InvalidInput):
                log.read(1, rows_max=bad)  # type: ignore[arg-type]


SERVERS = [pytest.param(one, marks=pytest.mark.slow) for one in ("mariadb", "postgres")]


@pytest.mark.parametrize("kind", ["memory", "files", *SERVERS])
def test_numbers_that_no_store_counts_to_lie_behind_the_end(
    address: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "files":
        address = str(tmp_path / "log")
    elif kind == "mariadb":
        server: MariaDB = request.getfixturevalue("mariadb")
        address = server.url(request.getfixturevalue("database"), "log")
    elif kind == "postgres":
        address = request.getfixturevalue("postgres").url()
    with tm.Log(address) as log, log.publisher() as out:
        out.send([b"a", b"b", b"c"])
        for far in (2**63 - 1, 2**63, 2**70):
            assert log.read(2, rows_max=far).rows() == [b"b", b"c"]
            assert len(log.read(far)) == 0
            with log.receiver(f"at-{far}", start=far) as receiver:
                assert receiver.pointer == 3
        assert log.trim(before=2**70) == 4


def test_a_batch_is_a_table_for_others(address: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("city", pa.utf8())])
    with tm.Log(address, schema=schema) as log, log.publisher() as out:
        out.send([{"n": 1, "city": "Ghent"}, {"n": 2}])
        batch = log.read()
        assert log.schema == schema
    table = pa.table(batch)
    assert table.column_names == ["seq", "time", "n", "city"]
    assert table.column("seq").to_pylist() == [1, 2]
    assert batch.values.to_pylist() == [{"n": 1, "city": "Ghent"}, {"n": 2, "city": None}]
    first = batch.first
    assert first is not None
    assert (first.seq, first.value) == (1, {"n": 1, "city": "Ghent"})
    assert abs((datetime.now(UTC) - first.time).total_seconds()) < 60


def test_trimming_takes_a_number_or_a_time(address: str) -> None:
    with tm.Log(address) as log, log.publisher() as out:
        out.send([b"a", b"b", b"c"])
        log.receiver("slow").close()
        assert log.trim(before=3) == 1
        assert log.trim(before=3, force=True) == 3
        log.remove_consumer("slow")
        assert log.trim(before=datetime.now(UTC)) == 4
        assert log.consumers() == {}
        with pytest.raises(tm.InvalidInput):
            log.trim(before=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("before", [0, -1, True, "earliest", 1.5, None])
def test_what_is_neither_number_nor_time_trims_nothing(address: str, before: object) -> None:
    with tm.Log(address) as log:
        log.publisher().send([b"a", b"b"])
        with pytest.raises(tm.InvalidInput, match="before is the number of a row"):
            log.trim(before)  # type: ignore[arg-type]
        with pytest.raises(tm.InvalidInput, match="before has no time zone"):
            log.trim(datetime(2026, 1, 1))  # noqa: DTZ001
        assert log.ends().first == 1


@pytest.mark.parametrize("start", ["earliest", datetime(2000, 1, 1, tzinfo=UTC)])
def test_a_trim_may_outrun_a_read(
    address: str, start: Literal["earliest"] | datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tm.Log(address) as log:
        log.publisher().send([b"a", b"b", b"c"])
        seqs: list[int] = []

        def found(store: LogStore, start: Start) -> int:
            seqs.append(start_seq(store, start))
            log.trim(before=3)
            return seqs[-1]

        monkeypatch.setattr("tidemill.log.log.start_seq", found)
        assert log.read(start).rows() == [b"c"]
        assert seqs == [1, 3]
        with pytest.raises(tm.Trimmed):
            log.read(1)


def test_closing_a_log_closes_what_was_made_of_it(address: str) -> None:
    log = tm.Log(address)
    out = log.publisher()
    out.send([b"a"])
    receiver = log.receiver("one")
    batch = receiver.receive()
    assert batch is not None
    batch.ack()
    log.close()
    log.close()
    for use in (lambda: out.send(b"b"), receiver.receive, log.ends, lambda: log.read(1)):
        with pytest.raises(tm.Closed):
            use()
    with tm.Log(address) as again:
        assert again.consumers() == {"one": 1}


def test_a_fenced_receiver_does_not_keep_the_rest_open(address: str) -> None:
    log = tm.Log(address)
    out = log.publisher()
    out.send([b"a"])
    receiver = log.receiver("one")
    assert receiver.receive() is not None
    newer = log.receiver("one")
    receiver.ack(1)
    with pytest.raises(tm.Fenced):
        log.close()
    with pytest.raises(tm.Closed):
        out.send(b"b")
    with pytest.raises(tm.Closed):
        newer.receive()


@pytest.mark.parametrize("bad", ["gopher://x/y", "memory:", "memory:../x"])
def test_an_address_that_makes_no_sense_is_refused(bad: str) -> None:
    with pytest.raises(tm.InvalidInput):
        tm.Log(bad)


def test_an_option_that_nobody_knows_is_refused(address: str) -> None:
    with pytest.raises(tm.InvalidInput, match="colour"):
        tm.Log(address, colour="red")
