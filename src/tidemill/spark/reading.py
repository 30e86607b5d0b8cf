"""`tidemill.spark.read`: any queue or log as a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pyspark.sql import DataFrame, SparkSession

from tidemill.errors import TidemillError
from tidemill.limits import TIME_US_MAX

if TYPE_CHECKING:
    from tidemill.spark.native_scan import Plan

T = TypeVar("T")
Between: TypeAlias = tuple[T | None, T | None] | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(
    spark: SparkSession,
    url: str | os.PathLike[str],
    *,
    seqs: Between[int] = None,  # (least, greatest), either of which may be None
    keys: Between[int] = None,
    times: Between[datetime] = None,
    **options: Any,  # those of `format("tidemill")`, by the same names
) -> DataFrame:
    """What is left of a queue, the rows of a log, or the entries of a ring, as of when the frame is
    used.

    Frames that hold no row within the bounds are not read; a filter on the DataFrame only leaves
    rows out of what was read. Archived rows are read by Spark's own Parquet reader, where Spark has
    a way to the archive; then the rows are those that are there when `read` is called.

    >>> import tempfile, tidemill as tm
    >>> from tidemill.spark import read, session
    >>> folder = tempfile.mkdtemp()
    >>> with tm.PriorityQueue(folder) as queue:
    ...     receipt = queue.push([(3, b"c"), (1, b"a")])
    >>> spark = session(master="local[1]")
    >>> [(row.key, bytes(row.value)) for row in read(spark, folder).orderBy("key").collect()]
    [(1, b'a'), (3, b'c')]
    >>> read(spark, folder, keys=(2, None)).count()
    1
    >>> spark.stop()
    """
    for column, bounds in (("Seq", seqs), ("Key", keys)):
        if bounds is not None:
            options |= {f"min{column}": bounds[0], f"max{column}": bounds[1]}
    return read_rows(spark, os.fspath(url), {**options, **time_options(times)})


def time_options(times: Between[datetime]) -> dict[str, str]:
    """Times, from the least to the greatest, as the source takes them."""
    options = {}
    start, end = times or (None, None)
    if start is not None:
        options["startingTimestamp"] = start.isoformat()
    if end is not None and end.tzinfo is None:
        options["endingTimestamp"] = end.isoformat()  # The source says what it lacks.
    elif end is not None and (since := since_1970(end)) < timedelta(microseconds=TIME_US_MAX):
        # Added in UTC: a zone's own clock may be turned back in between.
        options["endingTimestamp"] = (_EPOCH + since + timedelta(microseconds=1)).isoformat()
    return options


def since_1970(moment: datetime) -> timedelta:
    """How long ago it was then: of two times in one zone, Python itself compares and subtracts what
    the clock shows, which is not which came first in the hour that is there twice.
    """
    return moment - _EPOCH


def read_rows(
    spark: SparkSession,
    url: str,
    options: Mapping[str, Any],
    *,
    in_order: bool = False,  # of a log: whether Spark's partitions have to be in that of the rows
) -> DataFrame:
    """The rows that options of `format("tidemill")` name."""
    texts = {name: _text(value) for name, value in options.items() if value is not None}
    path = _full(spark, url)
    plan = _native(spark, {**texts, "path": path})
    if plan is None:
        return spark.read.format("tidemill").options(**texts).load(path)
    from tidemill.spark.native_scan import NativeScan  # noqa: PLC0415 (see below)

    for name in ("startingTimestamp", "endingTimestamp", "minSeq", "maxSeq"):
        texts.pop(name, None)
    frames = []
    for stretch in plan.stretches:
        if stretch.segments:
            scan = NativeScan(plan.base, plan.columns, *stretch)
            frames.append(scan.frame(spark, in_order=in_order))
            continue
        texts |= {"startingOffsets": str(stretch.start), "endingOffsets": str(stretch.end)}
        source = spark.read.format("tidemill").options(**texts).schema(plan.columns)
        frames.append(source.load(path))
    return reduce(DataFrame.unionAll, frames)


def _native(spark: SparkSession, options: dict[str, str]) -> Plan | None:
    """What Spark reads by itself; None if that is nothing, or this process cannot tell."""
    # Every executor imports this module, and none plans anything.
    from tidemill.spark.address import find  # noqa: PLC0415
    from tidemill.spark.native_scan import find_scan  # noqa: PLC0415
    from tidemill.spark.source.options import (  # noqa: PLC0415
        OF_SNAPSHOTS,
        OF_STREAMS,
        SourceOptions,
    )

    try:
        parsed = SourceOptions.parse(options)
        if parsed.fork or parsed.given.intersection((*OF_STREAMS, *OF_SNAPSHOTS)):
            return None
        return find_scan(spark, find(parsed.path, parsed.kind), parsed)
    except TidemillError:
        return None  # The source says what is wrong, if something is.


def _full(spark: SparkSession, url: str) -> str:
    """A relative path as this process has it: Spark's Java stays where it was started.

    The folders of a Spark Connect server are its own, and so is what they are relative to.
    """
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    return url if is_remote or ":" in url else os.path.abspath(url)


def _text(value: object) -> str:
    """An option as Spark takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
