"""A Spark session that is set up for queues, starts fast and keeps quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tidemill.errors import InvalidInput
from tidemill.spark.java import find_java, java_home

# What a session has unless the caller says otherwise.
_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # JVM to Python is the slow direction, and large batches make it less so.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # Queues keep time in UTC; anything else would show it in the zone of the machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOG4J = Path(__file__).with_name("log4j2.properties")


def session(
    name: str = "tidemill",
    *,
    master: str | None = None,  # "spark://host:7077", "yarn", …; None: `local[*]`, in this process
    remote: str | None = None,  # "sc://host:15002": a Spark Connect server
    config: Mapping[str, str] | None = None,  # Spark's settings, which go before ours
) -> SparkSession:
    """The running session, or a new one that is well set up and prints nothing but errors.

    >>> from tidemill.spark import session
    >>> spark = session(master="local[1]")
    >>> spark.range(3).count()
    3
    >>> spark.stop()

    Spark's own way works as well: `spark.read.format("tidemill")` needs no registration anywhere.
    """
    if master is not None and remote is not None:
        raise InvalidInput(
            f"a session has a master or a remote server, not both: {master}, {remote}"
        )
    builder = SparkSession.builder.appName(name)
    if remote is not None:
        for setting, value in (config or {}).items():
            builder = builder.config(setting, value)
        return builder.remote(remote).getOrCreate()
    master = master or "local[*]"
    settings = {**_SETTINGS, **_settings_of(master), **(config or {})}
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with _launching():
        return builder.master(master).getOrCreate()


def _settings_of(master: str) -> dict[str, str]:
    """Settings that depend on where the work is done."""
    settings = {
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"',
    }
    if master.startswith("local"):
        # Nobody else talks to it; the machine's own name may not even resolve.
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        # As many as there are cores: the default of 200 is for clusters.
        settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    return settings


@contextmanager
def _launching() -> Iterator[None]:
    """Within it, Spark starts its JVM with what it needs, unless one runs, and a context."""
    from pyspark import SparkContext  # noqa: PLC0415 (a thin client for Spark Connect has none)

    changes = {
        # Else workers, and Spark's search for data sources, run the system's Python, which has
        # other packages.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if SparkContext._gateway is None:
        changes["JAVA_HOME"] = str(java_home(find_java()))
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
