"""Small segments of an archive made fewer, by many tasks at once, and wherever they lie.

An archiver makes one of 16 small segments as it goes, among those that stand in the manifest
itself. This looks at all of them, also in the pages, and at every two.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from tidemill.errors import InvalidInput, MissingRows
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.compacting import Compaction, small_groups
from tidemill.log.archive.manifest import Segment
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.opening import open_store
from tidemill.log.tiered import open_archiver
from tidemill.spark.address import folder_of
from tidemill.spark.archives.storing import round_tasks, stored
from tidemill.spark.archives.task import Place, StoreGroup
from tidemill.spark.pipelines.failures import failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST = 2  # segments that are worth making one of


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction has done: so many small segments became so many."""

    segments_before: int
    segments_after: int
    rows: int  # in these
    bytes: int  # of the new ones
    total: int  # segments that the archive has now


def compact(
    spark: SparkSession,
    log: str | os.PathLike[str],
    *,
    on_progress: Callable[[int, float], None] = lambda rows, share: None,  # noqa: ARG005
) -> Compacted:
    """Make fewer, larger segments of the small ones that lie side by side in a log's archive.

    Rows keep their numbers, and who reads does not notice. Each new segment is read back and
    compared before it takes the place of others. An archiver of the log that runs is fenced, unless
    there is nothing to do; a call that was killed leaves nothing behind that the next does not
    sweep.

    >>> import tempfile, tidemill as tm
    >>> from tidemill.spark import compact, session
    >>> folder = tempfile.mkdtemp()
    >>> with tm.Log(f"{folder}/log") as log, log.publisher() as out:
    ...     for value in (b"a", b"b", b"c"):
    ...         receipt = out.send(value)
    ...         done = log.archive(f"{folder}/archive")
    >>> spark = session(master="local[1]")
    >>> done = compact(spark, f"{folder}/log")
    >>> done.segments_before, done.segments_after, done.rows
    (3, 1, 3)
    >>> spark.stop()
    """
    folder = folder_of(os.fspath(log))
    address = os.fspath(log) if folder is None else str(folder)
    with open_store(address, schema=None, create=False) as store:
        found = store.archive()
        if found is None:
            raise InvalidInput(f"{store.place} has no archive that could be compacted")
        if not groups_of(found, Sizes()):
            return Compacted(0, 0, 0, 0, found.known.count)
        archiver = open_archiver(store, None, releases=False)
        place = Place(archiver.url, archiver.epoch, Sizes())
        groups = groups_of(found, place.sizes)  # As of now, when nobody else changes them.
        rows_all = sum(one.rows for group in groups for one in group)
        done: list[Compaction] = []
        step = round_tasks(spark)
        for at in range(0, len(groups), step):
            some = groups[at : at + step]
            try:
                told = stored(spark, [StoreGroup(place, group) for group in some])
            except PySparkException as error:
                problem = failed(error, store.place, None, "a task", job="compaction of")
                if isinstance(problem, MissingRows) and found.look().first > some[0][0].first:
                    problem.add_note("rows were trimmed meanwhile: compact again")
                raise problem from error
            new = [Compaction(group, one) for group, (one,) in zip(some, told, strict=True)]
            archiver.replace(new)
            done += new
            rows = sum(one.new.rows for one in done)
            on_progress(rows, rows / rows_all)
        return Compacted(
            sum(len(one.old) for one in done),
            len(done),
            sum(one.new.rows for one in done),
            sum(one.new.bytes for one in done),
            found.look().count,
        )


def groups_of(archive: Archive, sizes: Sizes) -> list[tuple[Segment, ...]]:
    """All segments that are worth making fewer of, in groups that become one each."""
    return [one for part in archive.listed() for one in small_groups(part, sizes, least=_LEAST)]
