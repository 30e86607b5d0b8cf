"""`tidemill archive`: move rows of a log to an archive, once or again and again."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import tidemill as tm
from tidemill.gateway.arguments import Positional, add_lock_wait, add_log, duration, interval, size
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.log_opening import open_log, to_own
from tidemill.gateway.spark_session import add_spark, spark_session
from tidemill.shown import counted

DETAILS = """
Rows become Parquet files in a folder or a bucket. Each is read back and compared before the log
gives up its own rows; whoever reads the log does not notice. The log remembers where its archive
is, so that it may be left out. Credentials for s3:// come from the environment (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY). A second archiver takes over from the first, which ends. Without --keep,
--keep-bytes and --consumed all rows are archived, with some of them those that any of them names;
--trim-older-than and --trim-bytes then give up the oldest rows for ever, up to the slowest
consumer. With --spark all its cores archive at once: within this command, or on the cluster or the
server that --master or --remote name, which have to see the log and the archive as it does.
"""


@dataclass(slots=True)
class _Done:
    """What came of all passes so far."""

    passes: list[tm.Archived] = field(default_factory=list)  # the last, as far as it has come
    trimmed: int = 0


def run(options: argparse.Namespace, console: Console) -> None:
    done = _Done()
    pause = threading.Event()  # Nobody sets it; unlike a sleep, it is waited for with a bound.
    with (
        open_log(options, **to_own(options)) as log,
        _archiving(log, options, console) as archive,
        # Behind Spark, which takes Ctrl-C for itself when it starts.
        Interrupts() as interrupts,
    ):
        try:
            while True:
                with interrupts.held():
                    _pass(log, archive, options, console, interrupts, done)
                    options.sweep = False  # Once is enough: later passes leave nothing.
                if options.every is None:
                    break
                pause.wait(options.every.total_seconds())
        except KeyboardInterrupt:
            _say(console, options, done)
            raise
    _say(console, options, done)


@contextmanager
def _archiving(
    log: tm.Log, options: argparse.Namespace, console: Console
) -> Iterator[Callable[..., tm.Archived]]:
    """Who archives: the log itself, or Spark."""
    if not (options.spark or options.master or options.remote):
        yield log.archive
        return
    from tidemill.spark.archives.archive_job import archive  # noqa: PLC0415

    with spark_session(options, options.queue, console, job="archive of") as spark:
        yield partial(archive, spark, options.queue)


def _pass(
    log: tm.Log,
    archive: Callable[..., tm.Archived],
    options: argparse.Namespace,
    console: Console,
    interrupts: Interrupts,
    done: _Done,
) -> None:
    done.passes.append(tm.Archived(0, 0, 0, 0))
    end = log.ends().next

    def show(step: tm.Archived) -> None:
        done.passes[-1] = step
        progress.show(step.rows, step.rows / max(1, end - step.first))
        interrupts.check()  # Between two segments: all that was done counts.

    with console.progress("archiving") as progress:
        done.passes[-1] = archive(
            options.url,
            older_than=options.keep,
            bytes_max=options.keep_bytes,
            consumed=options.consumed,
            sweep=options.sweep,
            on_progress=show,
        )
    if _trims(options):
        first = log.ends().first
        limits = {"older_than": options.trim_older_than, "bytes_max": options.trim_bytes}
        done.trimmed += log.trim(**limits) - first


def _trims(options: argparse.Namespace) -> bool:
    return options.trim_older_than is not None or options.trim_bytes is not None


def _say(console: Console, options: argparse.Namespace, done: _Done) -> None:
    rows, segments = sum(one.rows for one in done.passes), sum(one.segments for one in done.passes)
    size, swept = sum(one.bytes for one in done.passes), sum(one.swept for one in done.passes)
    words = f"archived {counted(rows, 'row')} in {counted(segments, 'segment')}, {size:,} bytes"
    if swept:
        words += f"; removed {counted(swept, 'object')} that crashes had left"
    document = {"rows": rows, "segments": segments, "bytes": size, "swept": swept}
    if _trims(options):
        words += f"; gave up {counted(done.trimmed, 'row')}"
        document["trimmed"] = done.trimmed
    console.result(words, document)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_log(
        parser,
        Positional("url", "the archive: a folder, or s3://bucket/prefix", is_required=False),
    )
    parser.add_argument(
        "--every",
        type=interval,
        metavar="TIME",
        help="again after so long (30s, 5m), until stopped",
    )
    parser.add_argument(
        "--keep", type=duration, metavar="TIME", help="archive what is older than this (12h, 7d)"
    )
    parser.add_argument(
        "--keep-bytes",
        type=size,
        metavar="SIZE",
        help="archive all but the newest rows that take so much (500MB, 10GiB)",
    )
    parser.add_argument(
        "--consumed", action="store_true", help="archive what every consumer has acked"
    )
    parser.add_argument(
        "--trim-older-than",
        type=duration,
        metavar="TIME",
        help="then give up for ever what is older than this (365d)",
    )
    parser.add_argument(
        "--trim-bytes",
        type=size,
        metavar="SIZE",
        help="then give up for ever all but the newest rows that take so much (2TB)",
    )
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="look through the whole archive for what crashes left, not just its newest part",
    )
    add_lock_wait(parser)
    parser.add_argument("--spark", action="store_true", help="let all cores of Spark archive")
    add_spark(parser)


COMMAND = Command(
    name="archive",
    summary="move rows of a log to an archive of Parquet files",
    details=DETAILS,
    examples=(
        "tidemill archive orders/ orders-archive/",
        "tidemill archive mysql://app@localhost/shop/orders s3://backups/orders --every 30s",
        "tidemill archive orders/ --every 5m --keep-bytes 10GiB --trim-older-than 365d",
        "tidemill archive orders/ --sweep",
        "tidemill archive orders/ --spark",
    ),
    arguments=_arguments,
    run=run,
)
