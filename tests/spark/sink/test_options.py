"""What a write may be told, and which columns go where: checked before anything is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

import tidemill as tm
from tidemill.errors import (
    BucketMismatch,
    Bug,
    InvalidInput,
    InvalidKey,
    NotAQueue,
    SchemaMismatch,
)
from tidemill.files.staging.transaction import Transaction
from tidemill.spark.sink import batch_writer, stream_writer
from tidemill.spark.sink.checkpoint import query_id
from tidemill.spark.sink.options import SinkOptions

TYPES = {
    "BIGINT": pa.int64(),
    "BINARY": pa.binary(),
    "INT": pa.int32(),
    "NESTED": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}


def columns(text: str) -> StructType:
    """Spark's own reading of such texts needs a session."""
    fields = [one.split() for one in text.split(", ")]
    return from_arrow_schema(pa.schema([(name, TYPES[kind]) for name, kind in fields]))


VALUES = columns("key BIGINT, value BINARY")
VALUES_ALONE = columns("value BINARY")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "say where to write to"),
        ({"path": "x", "txnAppId": "a"}, "both txnAppId and txnVersion"),
        ({"path": "x", "txnVersion": "1"}, "both txnAppId and txnVersion"),
        ({"path": "x", "txnRun": "a"}, "give a txnAppId with it"),
        ({"path": "x", "txnAppId": "a", "txnVersion": "-1"}, "whole number from 0 on"),
        ({"path": "x", "txnAppId": "a", "txnVersion": str(2**63)}, "whole number from 0 on"),
        ({"path": "x", "txnAppId": "a", "txnVersion": "9" * 5000}, "whole number from 0 on"),
        ({"path": "x", "kind": "ring"}, "kind is log or queue"),
        ({"path": "x", "mergeSchema": "perhaps"}, "mergeSchema is true or false"),
        ({"path": "x", "txnAppID": "a b", "txnVersion": "1"}, "transaction name"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        SinkOptions.parse(options, streaming=False)


def test_a_streaming_query_has_no_version_of_its_own() -> None:
    with pytest.raises(InvalidInput, match="the number of the batch"):
        SinkOptions.parse({"path": "x", "txnVersion": "1"}, streaming=True)


def test_names_of_options_count_in_any_case() -> None:
    found = SinkOptions.parse({"PATH": "x", "txnappid": "a", "TXNVERSION": "7"}, streaming=False)
    assert found.transaction == Transaction("a", 7)


def test_a_query_may_have_a_name() -> None:
    """Spark adds it to the options of the sink."""
    assert SinkOptions.parse({"path": "x", "queryName": "q"}, streaming=True).path == "x"


def test_the_id_of_a_query_is_in_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "metadata").write_text('{"id":"5e2c7b4e-9d1c-4b35-a0a8-54a8a7bd7e2e"}')
    for location in (f"{tmp_path}/a b", f"{tmp_path}/a b/", f"file://{tmp_path}/a b"):
        assert query_id(location).startswith("5e2c7b4e-")
    (tmp_path / "a b").rename(tmp_path / "a%20#b")
    assert query_id(f"file:{tmp_path}/a%20#b").startswith("5e2c7b4e-")
    for wrong in (str(tmp_path / "none"), f"file:{tmp_path}", "gopher://x/y"):
        with pytest.raises(InvalidInput, match="give the option txnAppId"):
            query_id(wrong)
    (tmp_path / "metadata").write_text('{"id":"../x"}')
    with pytest.raises(InvalidInput, match="not allowed"):
        query_id(str(tmp_path))


def test_nothing_is_made_if_a_checkpoint_cannot_tell_whether_it_has_been_before(
    tmp_path: Path,
) -> None:
    options = {"path": f"{tmp_path}/log", "txnAppId": "a", "checkpointLocation": "gopher://x/y"}
    with pytest.raises(NotAQueue, match=r"checkpoint gopher://x/y has written before cannot be"):
        stream_writer(options, VALUES_ALONE, False)
    assert list(tmp_path.iterdir()) == []
    tm.Log(tmp_path / "log").close()
    stream_writer(options, VALUES_ALONE, False)


def test_what_does_not_fit_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new"
    cases: list[tuple[dict[str, str], str, type[Exception], str]] = [
        ({}, "key BIGINT, value BINARY", SchemaMismatch, "a log has no keys"),
        ({"key": "n"}, "n BIGINT", InvalidInput, "no option key"),
        ({"kind": "queue"}, "value BINARY", InvalidKey, "no column 'key'"),
        ({"kind": "queue", "key": "at"}, "key BIGINT, n INT", InvalidKey, "no column 'at'"),
        ({}, "time STRING, n INT", SchemaMismatch, "time"),
        ({"kind": "queue"}, "key STRING, n INT", InvalidKey, "integers or timestamps"),
        ({"bucket": "shift:3"}, "n INT", InvalidInput, "no option bucket"),
        ({}, "n INT, m INT, N INT", SchemaMismatch, "columns 'n' and 'N', which Spark does not"),
        ({}, "Time INT", SchemaMismatch, "columns 'time' and 'Time'"),
        ({"kind": "queue"}, "key INT, Key INT", SchemaMismatch, "columns 'key' and 'Key'"),
        (
            {"kind": "queue", "bucket": "shift"},
            "key BIGINT, n INT",
            InvalidInput,
            "shift:BITS or width:KEYS",
        ),
    ]
    for options, ddl, error, words in cases:
        with pytest.raises(error, match=words):
            batch_writer({"path": str(path), **options}, columns(ddl), False)
    with pytest.raises(InvalidInput, match="use the mode append"):
        batch_writer({"path": str(path)}, VALUES, True)
    with pytest.raises(InvalidInput, match="checkpointLocation, or txnAppId"):
        stream_writer({"path": str(path), "kind": "queue"}, VALUES, False)
    with pytest.raises(InvalidInput, match="kept at s3:"):
        batch_writer({"path": "s3://bucket/x"}, VALUES, False)
    with pytest.raises(InvalidInput, match="lives in a folder"):
        batch_writer({"path": "mysql://a@b/c/d", "kind": "queue"}, VALUES, False)
    assert not path.exists()


def test_an_address_that_is_not_quite_a_url_makes_no_folder_of_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (" mysql://a:secret@b/c/d", "MySQL:a:secret@b/c", "file://secret/c", "a\0secret"):
        with pytest.raises(InvalidInput) as caught:
            batch_writer({"path": path}, columns("n INT"), False)
        assert "a:secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    batch_writer({"path": f"file://localhost{tmp_path}/ä %20 #x"}, columns("n INT"), False)
    assert (tmp_path / "ä %20 #x").is_dir()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (YearMonthIntervalType(), "'x' has the type interval year to month"),
        (ArrayType(MapType(StringType(), VariantType())), "which only Spark knows"),
    ],
)
def test_types_that_no_queue_holds_are_refused_by_column(
    tmp_path: Path, kind: DataType, words: str
) -> None:
    with pytest.raises(SchemaMismatch, match=words):
        batch_writer({"path": str(tmp_path / "new")}, StructType().add("x", kind), False)
    assert not (tmp_path / "new").exists()


def test_a_queue_keeps_its_buckets(tmp_path: Path) -> None:
    for _ in range(2):
        options = {"path": str(tmp_path), "kind": "queue", "bucket": "width:10"}
        batch_writer(options, VALUES, False)
    with pytest.raises(BucketMismatch, match="width:10, not shift:3"):
        batch_writer({"path": str(tmp_path), "bucket": "shift:3"}, VALUES, False)


def test_rows_are_held_against_what_is_there(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("city", pa.string())])
    tm.PriorityQueue(tmp_path / "queue", schema=schema).close()
    tm.Log(tmp_path / "log", schema=schema).close()
    for name in ("queue", "log"):
        key = "key BIGINT, " if name == "queue" else ""
        options = {"path": str(tmp_path / name)}
        batch_writer(options, columns(f"{key}n BIGINT, city STRING"), False)
        batch_writer(options, columns(f"{key}city STRING, n INT"), False)
        for ddl, words in (
            (f"{key}n BIGINT, city STRING, more INT", "no column 'more'"),
            (f"{key}n STRING, city STRING", "'n' is text"),
        ):
            with pytest.raises(SchemaMismatch, match=f"does not fit .*{name}[:,] .*{words}"):
                batch_writer(options, columns(ddl), False)
        with pytest.raises(SchemaMismatch, match=f"{name} would have the columns 'n' and 'N'"):
            batch_writer({**options, "mergeSchema": "true"}, columns(f"{key}N BIGINT"), False)
        wrong = {"path": options["path"], "kind": "log" if name == "queue" else "queue"}
        with pytest.raises(InvalidInput, match="holds a"):
            batch_writer(wrong, columns("key BIGINT"), False)


def test_a_queue_that_is_made_keeps_the_key_beside_the_payload(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "queue"), "kind": "queue", "txnAppId": "a"}
    writer = batch_writer({**options, "txnVersion": str(2**63 - 1)}, VALUES, False)
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        assert queue.schema.names == ["value"]
    assert stream_writer(options, VALUES, False)._name == "a"
    with pytest.raises(Bug, match="1 tasks did not say what they staged"):
        writer.commit([None])
    twice = StructType([*VALUES.fields, VALUES.fields[1]])
    with pytest.raises(SchemaMismatch, match="'value' is there twice"):
        batch_writer({**options, "txnVersion": "0"}, twice, False)


def test_tasks_are_given_a_path_that_means_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("log", "file:log"):
        assert batch_writer({"path": path}, columns("n INT"), False)._target.address == str(
            tmp_path / "log"
        )


def test_columns_are_added_if_asked_for(tmp_path: Path) -> None:
    tm.PriorityQueue(tmp_path / "queue", schema=pa.schema([("n", pa.int64())])).close()
    options = {"path": str(tmp_path / "queue"), "mergeSchema": "true", "key": "at"}
    ddl = "at TIMESTAMP, n BIGINT, more NESTED"
    batch_writer(options, columns(ddl), False)
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        assert queue.schema.names == ["n", "more"]
    with pytest.raises(SchemaMismatch, match="'n' is text"):
        batch_writer(options, columns("at TIMESTAMP, n STRING, again INT"), False)
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        assert queue.schema.names == ["n", "more"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(NotAQueue):
        batch_writer({"path": str(tmp_path)}, columns("n INT"), False)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
