"""Rows of a log moved to its archive, by many tasks at once.

    driver   takes the next epoch, as every archiver does, and divides the rows into stretches
    tasks    read a stretch from the log, store it as segments, read these back and compare
    driver   puts the segments of a round into the manifest, in order, then the log releases them

The manifest is changed by the driver alone, under its epoch. So all that holds of an archiver does
so here: a second one fences it, a crash leaves orphans that the next one sweeps, and rows are
released only when the manifest names their copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from tidemill.errors import Corrupt
from tidemill.log.archive.archived import Archived
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.manifest import Segment
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.opening import open_store
from tidemill.log.retention import Retention
from tidemill.log.tiered import TieredLog, open_archiver
from tidemill.spark.address import folder_of
from tidemill.spark.archives.storing import round_tasks, stored
from tidemill.spark.archives.task import Place, StoreRange
from tidemill.spark.pipelines.failures import failed
from tidemill.spark.source.planning import plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive(
    spark: SparkSession,
    log: str | os.PathLike[str],
    url: str | os.PathLike[str] | None = None,  # None: where the log was archived before
    *,
    before: int | datetime | None = None,  # rows below a number, or from before a time
    older_than: timedelta | None = None,  # rows written longer ago than this
    bytes_max: int | None = None,  # all but the newest rows that take so much where they are
    consumed: bool = False,  # rows that every consumer has acked
    sweep: bool = False,  # look for what crashes left in the whole archive
    on_progress: Callable[[Archived], None] = lambda _: None,  # after each round of segments
) -> Archived:
    """Move rows of a log to its archive as `Log.archive` does, by all cores of Spark at once.

    Executors have to see the log and the archive: folders by the same paths, servers and buckets
    with credentials in their environment.

    >>> import tempfile, tidemill as tm
    >>> from tidemill.spark import archive, session
    >>> folder = tempfile.mkdtemp()
    >>> with tm.Log(f"{folder}/log") as log, log.publisher() as out:
    ...     receipt = out.send([b"a", b"b", b"c"])
    >>> spark = session(master="local[1]")
    >>> done = archive(spark, f"{folder}/log", f"{folder}/archive")
    >>> done.rows, done.segments
    (3, 1)
    >>> spark.stop()
    """
    retention = Retention(
        before=before, older_than=older_than, bytes_max=bytes_max, consumed=consumed
    )
    folder = folder_of(os.fspath(log))
    address = os.fspath(log) if folder is None else str(folder)
    with open_store(address, schema=None, create=False) as store:
        end = retention.end_of_hot(store)
        archiver = open_archiver(store, url)
        swept = archiver.swept + (archiver.sweep(everywhere=True) if sweep else 0)
        job = ArchiveJob(spark, address, store, archiver)
        return archiver.run(end, on_progress, job.store)._replace(swept=swept)


class ArchiveJob:
    """Stores rows for an archiver."""

    def __init__(
        self, spark: SparkSession, address: str, store: TieredLog, archiver: Archiver
    ) -> None:
        self._spark = spark
        self._address = address
        self._log = store
        self._archiver = archiver
        self._sizes = Sizes()

    def store(self, start: int, end: int) -> Iterator[list[Segment]]:
        """Rows as segments, round by round."""
        place = Place(self._archiver.url, self._archiver.epoch, self._sizes)
        layout = self._log.hot.layout(start, end)
        # Less than a segment may take, for a stretch may turn out somewhat larger than the others.
        size, rows = self._sizes.segment_bytes * 3 // 4, self._sizes.segment_rows * 3 // 4
        stretches = plan(layout, start, end, task_bytes=max(size, 1), task_rows=max(rows, 1))
        step = round_tasks(self._spark)
        for at in range(0, len(stretches), step):
            some = stretches[at : at + step]
            try:
                told = stored(self._spark, [StoreRange(place, self._address, *one) for one in some])
            except PySparkException as error:
                problem = failed(error, self._log.place, None, "a task", job="archive of")
                if isinstance(problem, Corrupt):
                    # What lies in front of the damage is archived all the same, as far as that is.
                    yield from self._archiver.store(some[0][0], some[-1][1])
                raise problem from error
            for (first, behind), segments in zip(some, told, strict=True):
                _check_whole(first, behind, segments, self._log.place)
            yield [segment for segments in told for segment in segments]


def _check_whole(start: int, end: int, segments: list[Segment], place: str) -> None:
    """See that segments hold a stretch without a gap: nothing else may get into a manifest."""
    for segment in segments:
        if segment.first != start:
            break
        start = segment.next
    if start != end:
        raise Corrupt(f"a task has not archived rows {start} to {end - 1} of {place}: try again")
