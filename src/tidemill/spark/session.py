"""A Spark session that is set up for queues, starts fast and keeps quiet."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.util import is_remote_only

from tidemill.environment import is_set
from tidemill.errors import InvalidInput, MissingExtra
from tidemill.progress import can_draw
from tidemill.spark.class_archive import archive_options
from tidemill.spark.java import Java, find_java, java_home

# What a session has unless the caller says otherwise.
_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # JVM to Python is the slow direction, and large batches make it less so.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # Queues keep time in UTC; anything else would show it in the zone of the machine.
    "spark.sql.session.timeZone": "UTC",
    # Plans show options, as do the errors that quote a plan; a URL may hold a password.
    "spark.sql.redaction.options.regex": "(?i)url|://[^/@]*:[^@]*@",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# What failed is raised; PySpark says it on standard error as well, as JSON.
_TOLD_TWICE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_LOG4J = Path(__file__).with_name("log4j2.properties")


def session(
    name: str = "tidemill",
    *,
    master: str
    | None = None,  # "spark://host:7077", …; None: what spark-submit says, or `local[*]`
    remote: str | None = None,  # "sc://host:15002": a Spark Connect server; None: `$SPARK_REMOTE`
    config: Mapping[str, str] | None = None,  # Spark's settings, which go before ours
    progress: bool | None = None,  # a bar while a long job runs; None: if a person is looking
) -> SparkSession:
    """The running session, or a new one that is well set up and prints nothing but errors.

    One that runs keeps the settings that were chosen for it, unless `config` has others.

    On a terminal, standard error shows how far a long job is; `TIDEMILL_NO_PROGRESS=1` is as good
    as `progress=False`.

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
    for logger in _TOLD_TWICE:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    if remote is None and master is None:
        remote = os.environ.get("SPARK_REMOTE") or None
    if remote is not None:
        from tidemill.spark.remote import connect  # noqa: PLC0415 (executors need none)

        spark = connect(name, remote, _SETTINGS, config or {})
        return _shown(spark, progress, is_remote=True)
    if is_remote_only():
        raise MissingExtra(
            "this PySpark is a client of Spark Connect servers: name one, session(remote=…), or "
            "install one that runs Spark itself instead: pip uninstall pyspark-client; "
            "pip install 'tidemill[spark]'"
        )
    java = _java_to_start()
    running = SparkSession._instantiatedSession
    if running is None or running._sc._jsc is None:
        submitted = _submitted_with()
        master = master or submitted.get("spark.master", "local[*]")
        settings = {"spark.app.name": name, **_SETTINGS, **_settings_of(master, java), **submitted}
        place = {"spark.master": master}
    else:
        # What was chosen for it stays: other work hangs on it, such as on the zone of its times.
        chosen = running.conf.getAll
        settings = {name: value for name, value in _SETTINGS.items() if name not in chosen}
        place = {}
    builder = SparkSession.builder
    for setting, value in {**settings, **(config or {}), **place}.items():
        builder = builder.config(setting, value)
    with _launching(java):
        spark = builder.getOrCreate()
    return _shown(spark, progress, is_remote=False)


def _shown(spark: SparkSession, progress: bool | None, *, is_remote: bool) -> SparkSession:
    """The session, with a bar for its long jobs if one is wanted."""
    if progress is None:
        progress = can_draw() and not is_set("TIDEMILL_NO_PROGRESS")
    if progress:
        from tidemill.spark.job_progress import show_jobs  # noqa: PLC0415 (most need none)

        show_jobs(spark, is_remote=is_remote)
    return spark


def java_options(more: Iterable[str] = ()) -> str:
    """What Java is started with, as Spark's settings have it."""
    options = (f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", *more)
    return " ".join(f'"{option}"' for option in options)


def _submitted_with() -> dict[str, str]:
    """What was said to spark-submit, if that started this program; it goes before our settings."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 (a thin client has none)

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _java_to_start() -> Java | None:
    """The Java to start; None if this process has one running."""
    from pyspark import SparkContext  # noqa: PLC0415 (a thin client for Spark Connect has none)

    return find_java() if SparkContext._gateway is None else None


def _settings_of(master: str, java: Java | None) -> dict[str, str]:
    """Settings that depend on where the work is done."""
    archive = [] if java is None else archive_options(java)
    settings = {"spark.driver.extraJavaOptions": java_options(archive)}
    if master.startswith("local"):
        # Nobody else talks to it; the machine's own name may not even resolve.
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        # As many as there are cores: the default of 200 is for clusters.
        settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    return settings


@contextmanager
def _launching(java: Java | None) -> Iterator[None]:
    """Within it, Spark starts a JVM with what it needs, unless one runs, and a context."""
    changes = {
        # Else workers, and Spark's search for data sources, run the system's Python, which has
        # other packages.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if java is not None:
        changes["JAVA_HOME"] = str(java_home(java))
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
