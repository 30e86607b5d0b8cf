"""The rows of an archive, read by Spark's own Parquet reader: in the JVM, column by column.

    archive   │ segment │ segment │ small, small │ segment │ small, small      │
    hot rows                                               │       …           │ rows … │
    read by     Spark's reader      the source     Spark's   the source of ours, in one piece

A row's number is the first of its file plus its place there. The first is in the name of the
file's folder, in the form that Spark knows from tables with partitions, and so is a column that
costs nothing. Nothing is joined or shuffled, and a query that does not ask for `seq` does not pay
for it.

All of it is planned when the DataFrame is made: which files, and where the rows end. A file never
changes, and is there until its rows are trimmed. Only small ones may become part of a larger one,
those that lie side by side; so these, and small ones at the end, which others may come to lie
beside, are left to the source, which asks where rows are as it goes.
"""

from __future__ import annotations

import re
from functools import reduce
from itertools import groupby
from typing import NamedTuple

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StructField, StructType

from tidemill.batch import LogBatch
from tidemill.errors import Corrupt
from tidemill.limits import ARCHIVE_SEGMENT_BYTES
from tidemill.log.archive.manifest import (
    FIRST_SEQ,
    NAME,
    SEGMENTS,
    Manifest,
    Segment,
    segment_folder,
)
from tidemill.log.opening import open_store
from tidemill.spark.address import Address
from tidemill.spark.schema import spark_schema
from tidemill.spark.source.batch_reader import range_of
from tidemill.spark.source.options import SourceOptions

SMALL_BYTES = ARCHIVE_SEGMENT_BYTES // 64  # below which an archiver makes one segment of several
STRETCHES_MAX = 16  # of files that Spark reads, with small ones in between

# Spark fills a column of this name with the place of the row, as it does for `_metadata`. Of that,
# a scan fills every field even if the query wants none (seen in 4.3: counting takes twice as long).
_ROW_INDEX = "_tmp_metadata_row_index"
_HAS_ROW_INDEX = pyspark.__version__.startswith(("4.0.", "4.1.", "4.2.", "4.3."))
_PLAIN_PATH = re.compile(r"[\w./@+= -]+")  # in which Spark sees no pattern
_S3 = re.compile(r"s3://([^?]+)")
_S3A_SETTINGS = (
    "spark.hadoop.fs.s3a.endpoint",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.aws.credentials.provider",
)
_EXACT = {
    "mergeSchema": "false",
    # Whatever the session has, rows are not left out in silence.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}


class Stretch(NamedTuple):
    """Rows `start` up to `end`, and the files that Spark reads by itself for them, if it does."""

    start: int
    end: int
    segments: list[Segment]


class NativeScan(NamedTuple):
    """The rows of a stretch, which Spark reads by itself."""

    base: str  # where the archive is, as Spark calls it
    columns: StructType  # as the source gives them
    start: int
    end: int
    segments: list[Segment]

    def frame(self, spark: SparkSession, *, in_order: bool) -> DataFrame:
        """The rows, as the source would give them. Spark has the files of one scan in the order of
        their sizes; so each has one of its own if they are to be in that of their rows.
        """
        whole = [one for one in self.segments if self._is_whole(one)]
        edges = [one for one in self.segments if not self._is_whole(one)]
        if in_order:
            scans = [self._scan(spark, [one]) for one in self.segments]
            scans = [
                one if self._is_whole(segment) else self._cut(one)
                for one, segment in zip(scans, self.segments, strict=True)
            ]
        else:
            scans = [self._scan(spark, whole)] if whole else []
            scans += [self._cut(self._scan(spark, edges))] if edges else []
        return reduce(DataFrame.unionAll, scans)

    def _cut(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("seq").between(self.start, self.end - 1))

    def _is_whole(self, segment: Segment) -> bool:
        return self.start <= segment.first and segment.next <= self.end

    def _scan(self, spark: SparkSession, segments: list[Segment]) -> DataFrame:
        stored = [field for field in self.columns if field.name != "seq"]
        place = [StructField(_ROW_INDEX, LongType())] if _HAS_ROW_INDEX else []
        first = StructField(FIRST_SEQ, LongType())
        options = {**_EXACT, "basePath": f"{self.base}/{SEGMENTS}"}
        reader = spark.read.options(**options).schema(StructType([*place, *stored, first]))
        rows = reader.parquet(*(f"{self.base}/{segment.file}" for segment in segments))
        index = F.col(_ROW_INDEX if _HAS_ROW_INDEX else "_metadata.row_index")
        seq = (F.col(FIRST_SEQ) + index).alias("seq")
        return rows.select(seq, *(F.col(_quoted(field.name)) for field in stored))


class Plan(NamedTuple):
    """All the rows that are wanted, stretch by stretch."""

    base: str
    columns: StructType
    stretches: list[Stretch]


def find_scan(spark: SparkSession, address: Address, options: SourceOptions) -> Plan | None:
    """What Spark can read by itself of a log, and what is in between; None if that is nothing.

    Whatever the source refuses is raised by the source, so that it is said in one way.
    """
    is_plain = options.fail_on_loss and not options.partitions_min
    if address.kind != "log" or not is_plain or options.partition_rows_max:
        return None
    how = {"read_only": True} if address.url.startswith("/") else {"create": False}
    with open_store(address.url, schema=None, **how) as log:
        archive = log.own_archive()
        if archive is None:
            return None
        manifest = archive.look()
        columns = spark_schema(LogBatch.empty(log.versions.newest, 1).to_arrow().schema)
        start, end = range_of(options, log.ends(), log.place, log.seq_at)
        low, high = options.bounds.seqs
        start, end = max(start, low), min(end, high + 1)
        segments = archive.between(start, end)
    base = _base(archive.objects.url)
    if base is None or not segments or segments[0].first > start:
        return None
    stretches = _stretches(segments, start, end)
    if not any(one.segments for one in stretches):
        return None
    if not _is_readable(columns, segments) or not _sees(spark, base, manifest):
        return None
    return Plan(base, columns, stretches)


def _stretches(segments: list[Segment], start: int, end: int) -> list[Stretch]:
    """Rows divided by who reads them: those of segments that may be gone soon, by the source."""
    is_small = [one.bytes < SMALL_BYTES for one in segments]
    # What lies beside the first one is not known, and what will lie beside the last one neither.
    beside = [True, *is_small, True]
    is_left = [small and (beside[at] or beside[at + 2]) for at, small in enumerate(is_small)]
    found: list[Stretch] = []
    for left, some in groupby(zip(is_left, segments, strict=True), key=lambda one: one[0]):
        files = [segment for _, segment in some]
        if sum(bool(one.segments) for one in found) == STRETCHES_MAX:
            break
        first = found[-1].end if found else start
        found.append(Stretch(first, min(files[-1].next, end), [] if left else files))
    if not found[-1].segments:
        found[-1] = found[-1]._replace(end=end)
    elif found[-1].end < end:
        found.append(Stretch(found[-1].end, end, []))
    return found


def _base(url: str) -> str | None:
    """An archive as Spark calls it; None if it cannot."""
    if url.startswith("/"):
        return f"file://{url}" if _PLAIN_PATH.fullmatch(url) else None
    found = _S3.match(url)
    return f"s3a://{found[1].rstrip('/')}" if found and _PLAIN_PATH.fullmatch(found[1]) else None


def _sees(spark: SparkSession, base: str, manifest: Manifest) -> bool:
    """Whether Spark finds the same archive there as this process does."""
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    if base.startswith("file:") and not is_remote:
        return True
    if base.startswith("s3a:") and not any(spark.conf.get(one, None) for one in _S3A_SETTINGS):
        return False
    import pyarrow as pa  # noqa: PLC0415

    failures: tuple[type[Exception], ...] = (PySparkException, Corrupt, *_of_java())
    try:
        text = spark.read.text(f"{base}/{NAME}", wholetext=True).head()
        if text is None:
            return False
        return Manifest.parse(pa.py_buffer(text[0].encode())).log == manifest.log
    except failures:
        return False  # It has no way there, or the folders of another machine.


def _of_java() -> tuple[type[Exception], ...]:
    """What Spark raises that PySpark has no name for: that there is no such file system."""
    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 (a thin client has none)
    except ImportError:
        return ()
    return (Py4JError,)


def _is_readable(columns: StructType, segments: list[Segment]) -> bool:
    """Whether names mean the same to Spark's reader, which takes no notice of case."""
    taken = {"_metadata", _ROW_INDEX, FIRST_SEQ}
    is_told = all(one.file.startswith(f"{segment_folder(one.first)}/") for one in segments)
    is_free = taken.isdisjoint(name.lower() for name in columns.names)
    return is_told and is_free and _is_distinct(columns)


def _is_distinct(kind: DataType) -> bool:
    """Whether no two names differ by case alone, also within values."""
    match kind:
        case StructType():
            names = {name.lower() for name in kind.names}
            return len(names) == len(kind.names) and all(_is_distinct(one.dataType) for one in kind)
        case ArrayType():
            return _is_distinct(kind.elementType)
        case MapType():
            return _is_distinct(kind.keyType) and _is_distinct(kind.valueType)
        case _:
            return True


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
