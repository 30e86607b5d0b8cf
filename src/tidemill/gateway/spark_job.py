"""A job on Spark as a command: with a session, a bar, and an end between two of its steps."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.refusal import Stopped
from tidemill.gateway.spark_session import spark_session
from tidemill.shown import counted

if TYPE_CHECKING:  # Other commands do without.
    from pyspark.sql import SparkSession

T = TypeVar("T")


def run_job(
    options: argparse.Namespace,
    console: Console,
    *,
    job: str,  # what it is called in messages: "merge into"
    place: str,  # ... and of what
    doing: str,  # for the bar: "merging"
    done: str,  # when it ends early: "moved"
    noun: str,  # ... so many of what
    work: Callable[[SparkSession, Callable[[int, float], None]], T],
) -> T:
    """Run `work` with a session and what takes its progress. Ctrl-C and SIGTERM end it where it
    tells of progress: there all that was done counts.
    """
    count = 0
    with (
        spark_session(options, place, console, job=job) as spark,
        console.progress(doing) as progress,
        # Spark takes Ctrl-C for itself when it starts; from here on it is ours again.
        Interrupts() as interrupts,
    ):

        def show(rows: int, share: float) -> None:
            nonlocal count
            count = rows
            progress.show(rows, share)
            interrupts.check()

        try:
            with interrupts.held():
                return work(spark, show)
        except KeyboardInterrupt as error:
            words = f"{done} {counted(count, noun)} before this: run it again for the rest"
            raise Stopped(error, words, {"rows": count}) from error
