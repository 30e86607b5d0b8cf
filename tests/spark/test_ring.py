"""A ring as a DataFrame: a batch is its entries at one moment, and streaming is refused."""

from __future__ import annotations

import os
import pickle
from itertools import count

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tidemill as tm
import tidemill.spark
from tests.services.mariadb import MariaDB
from tests.services.redis import Redis
from tidemill.spark.address import find
from tidemill.spark.schema import spark_schema
from tidemill.spark.source.options import SourceOptions
from tidemill.spark.source.ring_reader import COLUMNS, RingReader

pytestmark = pytest.mark.slow

_names = count(1)


@pytest.fixture
def url(redis: Redis) -> str:
    """That of a ring with six entries, of which the first is taken."""
    url = redis.url_of(f"spark-{os.getpid()}-{next(_names)}")
    with tm.Ring(url, capacity=10, slots_per_record=2) as ring:
        ring.enqueue_many([b"gone", b"\xff", {"id": 1}, None, "text", b""])
        assert ring.dequeue() is not None
    return url


def test_the_entries_of_one_moment_are_rows(spark: SparkSession, url: str) -> None:
    frame = spark.read.format("tidemill").load(url)
    assert frame.schema.simpleString() == "struct<offset:bigint,kind:string,value:binary>"
    rows = [(row.offset, row.kind, bytes(row.value)) for row in frame.orderBy("offset").collect()]
    assert rows == [
        (1, "bytes", b"\xff"),
        (2, "json", b'{"id":1}'),
        (3, "json", b"null"),
        (4, "json", b'"text"'),
        (5, "bytes", b""),
    ]
    with tm.Ring(url) as ring:
        ring.dequeue_many(2)
    assert frame.count() == 5  # What it was when the frame was first used.
    assert tidemill.spark.read(spark, url).count() == 3


def test_entries_are_divided_among_tasks(spark: SparkSession, url: str) -> None:
    many = tidemill.spark.read(spark, url, minPartitions=3)
    assert (many.rdd.getNumPartitions(), many.count()) == (3, 5)
    single = tidemill.spark.read(spark, url, maxRecordsPerPartition=1)
    assert single.rdd.getNumPartitions() == 5
    with tm.Ring(url) as ring:
        ring.dequeue_many(9)
    assert tidemill.spark.read(spark, url).count() == 0


def test_a_task_is_sent_its_own_entries_alone(redis: Redis) -> None:
    url = redis.url_of(f"spark-{os.getpid()}-{next(_names)}")
    with tm.Ring(url, capacity=100) as ring:
        ring.enqueue_many([b"x" * 1_000] * 100)
    options = SourceOptions.parse({"path": url, "minPartitions": "100"})
    tasks = RingReader(find(url), options, spark_schema(COLUMNS)).partitions()
    assert len(tasks) == 100
    assert sum(len(pickle.dumps(task)) for task in tasks) < 3 * 100 * 1_000


def test_a_ring_on_mysql_is_asked_for_by_its_kind(
    spark: SparkSession, mariadb: MariaDB, database: str, url: str
) -> None:
    there = mariadb.url(database, "alerts")
    with tm.Ring(there, capacity=10, buffers=url) as ring:
        ring.enqueue({"id": 1})
    rows = tidemill.spark.read(spark, there, kind="ring", buffers=url).collect()
    assert [(row.offset, row.kind) for row in rows] == [(0, "json")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "1"}, "startingOffsets is not for rings"),
        ({"fork": "audit"}, "fork is not for rings"),
        ({"kind": "log"}, "is a ring, and no log"),
        ({"kind": "heap"}, "kind is queue, log or ring"),
    ],
)
def test_options_that_are_not_for_rings_are_refused(
    spark: SparkSession, url: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        spark.read.format("tidemill").options(**options).load(url).count()


def test_streaming_is_refused(spark: SparkSession, url: str) -> None:
    stream = spark.readStream.format("tidemill").load(url)

    def run() -> None:
        stream.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="is a ring, whose entries others take out"):
        run()


def test_a_ring_that_is_not_there_is_told_without_its_password(
    spark: SparkSession, redis: Redis
) -> None:
    with pytest.raises(PySparkException, match="there is no ring"):
        spark.read.format("tidemill").load(redis.url_of("nowhere")).count()
    away = "redis://:hush@127.0.0.1:1/alerts?timeout_s=0.1"
    with pytest.raises(PySparkException, match="gave no answer") as caught:
        spark.read.format("tidemill").load(away).count()
    assert "hush" not in str(caught.value)
