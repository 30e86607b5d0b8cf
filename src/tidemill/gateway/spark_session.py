"""Spark for a command: which one, how it is set, and what it says when it fails."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemill.gateway.console import Console
from tidemill.urls import without_password

if TYPE_CHECKING:  # Other commands do without.
    from pyspark.sql import SparkSession


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Which Spark: the one within this command, unless another is named."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--master", metavar="URL", help="a cluster: spark://host:7077, local[4], …")
    place.add_argument("--remote", metavar="URL", help="a Spark Connect server: sc://host:15002")
    parser.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark; may be said several times",
    )
    parser.add_argument(
        "--ship", action="store_true", help="hand Tidemill's code to executors that lack it"
    )


@contextmanager
def spark_session(
    options: argparse.Namespace, name: str, console: Console, *, job: str = "pipeline"
) -> Iterator[SparkSession]:
    """A session for the block; what Spark raises in it is told as a failure, not as a fault."""
    from tidemill.spark import session, ship  # noqa: PLC0415

    name = without_password(name)  # It is shown to whoever may look at Spark.
    with _spark_errors(name, "starting Spark", job):
        spark = session(
            name,
            master=options.master,
            remote=options.remote,
            config=dict(options.conf),
            progress=False,
        )
        if options.ship:
            ship(spark)
        if console.is_json and not is_remote(options):
            spark.sparkContext.setLogLevel("OFF")  # What fails is told once, as JSON.
    with _spark_errors(name, "Spark", job):
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _spark_errors(name: str, what: str, job: str) -> Iterator[None]:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from tidemill.spark.pipelines.failures import failed  # noqa: PLC0415

    try:
        yield
    except Exception as error:
        # Those of py4j, which a thin client has not, and of its connection: Spark's Java has died.
        is_sparks = isinstance(error, (PySparkException, ConnectionError))
        if not is_sparks and type(error).__module__.partition(".")[0] != "py4j":
            raise
        raise failed(error, name, None, what, job=job) from error


def is_remote(options: argparse.Namespace) -> bool:
    """Whether Spark is at a Connect server."""
    by_default = options.master is None and bool(os.environ.get("SPARK_REMOTE"))
    return options.remote is not None or by_default


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting such as spark.cores.max=4")
    return name, value
