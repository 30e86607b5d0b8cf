"""Spark for the tests: one embedded session and one real cluster per worker of the run.

A process has one Spark context at a time. `spark` and `cluster_spark` share the place: asking for
one ends the other, which costs seconds, so that tests of the cluster stand in files of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.services.spark_cluster import Cluster, on_cluster, on_half_of_it, running_cluster
from tests.services.thin_client import PYTHON, need_thin_python
from tidemill.spark import session

_SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "100ms",
}
_BARE = {"spark.executorEnv.PYTHONPATH": ""}


class Place:
    """Holds the one session of this process, which an example of the docs may have ended."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._wanted: tuple[str, dict[str, str]] | None = None

    def get(self, master: str, config: dict[str, str] | None = None) -> SparkSession:
        context = SparkContext._active_spark_context
        is_ours = self._session is not None and context is self._session.sparkContext
        wanted = (master, config or {})
        if self._session is None or not is_ours or self._wanted != wanted:
            self.clear()
            self._session = session("tests", master=master, config=config)
            self._wanted = wanted
        return self._session

    def clear(self) -> None:
        running = SparkSession.getActiveSession()
        if running is not None:
            running.stop()
        self._session = None


@pytest.fixture(scope="session")
def _place() -> Iterator[Place]:
    place = Place()
    yield place
    place.clear()
    # Its JVM would end with this process, which does not wait for it and is warned of that.
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


@pytest.fixture
def spark(_place: Place) -> Iterator[SparkSession]:
    """The shared session on local[2]. Queries that a test leaves running are stopped."""
    spark = _place.get("local[2]")
    yield spark
    _stop_queries(spark)


@pytest.fixture
def no_spark(_place: Place) -> None:
    """No session, for what starts one of its own in this process, and stops it."""
    _place.clear()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, started when a test first asks."""
    with running_cluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster_spark(_place: Place, cluster: Cluster) -> Iterator[SparkSession]:
    """The shared session on the cluster: two executors with a core each."""
    spark = _place.get(cluster.url, on_cluster())
    yield spark
    _stop_queries(spark)


@pytest.fixture
def half_cluster_spark(_place: Place, cluster: Cluster) -> Iterator[SparkSession]:
    """A session that leaves one of the two executors to another driver."""
    spark = _place.get(cluster.url, on_half_of_it())
    yield spark
    _stop_queries(spark)


@pytest.fixture
def free_cluster(_place: Place, cluster: Cluster) -> Cluster:
    """The cluster with both executors left to drivers that are processes of their own."""
    _place.clear()
    return cluster


@pytest.fixture
def bare_spark(
    _place: Place, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkSession]:
    """A session on the cluster whose executors run a Python without Tidemill, and a task that takes
    longer than the others a second time beside it.
    """
    need_thin_python()
    monkeypatch.setenv("PYSPARK_PYTHON", str(PYTHON))
    spark = _place.get(cluster.url, {**on_cluster(), **_SPECULATING, **_BARE})
    yield spark
    _stop_queries(spark)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def _stop_queries(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()
