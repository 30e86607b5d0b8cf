"""The rows of an archive, read by Spark's own Parquet reader: in the JVM, column by column.

    archive   │ segment │ segment │ segment │ small, small      │
    hot rows                                │       …           │ rows … │
    read by     Spark's Parquet reader        the source of ours, in one piece

A row's number is the first of its file plus its place there. For few files the first is a literal
in a scan of their own. Of many there is one scan, which takes it from the name of the file. Either
way nothing is joined or shuffled, and a query that does not ask for `seq` does not pay for it.

All of it is planned when the DataFrame is made: which files, and where the rows end. A file never
changes, and is there until its rows are trimmed. Only small ones may become part of a larger one;
those at the end, which are about to, are left to the source, which asks where rows are as it goes.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import NamedTuple

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)
from pyspark.sql.types import LongType, StructField, StructType

from tidemill.batch import LogBatch
from tidemill.errors import Corrupt
from tidemill.limits import ARCHIVE_SEGMENT_BYTES
from tidemill.log.archive.manifest import NAME, SEGMENTS, Manifest, Segment
from tidemill.log.opening import open_store
from tidemill.spark.address import Address
from tidemill.spark.batch_reader import range_of
from tidemill.spark.options import SourceOptions
from tidemill.spark.schema import spark_schema

SMALL_BYTES = ARCHIVE_SEGMENT_BYTES // 64  # below which an archiver makes one segment of several
LITERALS_MAX = 32  # scans of one file each; a plan of more takes long to make

# Spark fills a column of this name with the place of the row, as it does for `_metadata`. Of that,
# a scan fills every field even if the query wants none (seen in 4.3: counting takes twice as long).
_ROW_INDEX = "_tmp_metadata_row_index"
_HAS_ROW_INDEX = pyspark.__version__.startswith(("4.0.", "4.1.", "4.2.", "4.3."))
_NUMBER_DIGITS = 20  # of a row, at the beginning of a segment's name
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


class NativeScan(NamedTuple):
    """Rows `start` up to `next`, which Spark reads by itself; then the source goes on to `end`."""

    base: str  # where the archive is, as Spark calls it
    segments: list[Segment]
    columns: StructType  # as the source gives them
    start: int
    next: int
    end: int

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows, as the source would give them."""
        inside = [one for one in self.segments if self._is_whole(one)]
        if len(inside) <= LITERALS_MAX and _HAS_ROW_INDEX:
            scans = [self._one(spark, segment) for segment in self.segments]
        else:
            edges = [one for one in self.segments if not self._is_whole(one)]
            scans = [self._cut(self._all(spark, [one])) for one in edges]
            if inside:
                scans.append(self._all(spark, inside))
        return reduce(DataFrame.unionAll, scans)

    def _is_whole(self, segment: Segment) -> bool:
        return self.start <= segment.first and segment.next <= self.end

    def _one(self, spark: SparkSession, segment: Segment) -> DataFrame:
        index = StructField(_ROW_INDEX, LongType())
        rows = self._read(spark, [segment], StructType([index, *self._stored]))
        found = self._numbered(rows, F.lit(segment.first) + F.col(_ROW_INDEX))
        return found if self._is_whole(segment) else self._cut(found)

    def _all(self, spark: SparkSession, segments: list[Segment]) -> DataFrame:
        rows = self._read(spark, segments, StructType(self._stored))
        first = F.substring(F.col("_metadata.file_name"), 1, _NUMBER_DIGITS).cast("long")
        return self._numbered(rows, first + F.col("_metadata.row_index"))

    def _cut(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("seq").between(self.start, self.end - 1))

    @property
    def _stored(self) -> list[StructField]:
        return [field for field in self.columns if field.name != "seq"]

    def _read(self, spark: SparkSession, segments: list[Segment], columns: StructType) -> DataFrame:
        files = [f"{self.base}/{segment.file}" for segment in segments]
        return spark.read.options(**_EXACT).schema(columns).parquet(*files)

    def _numbered(self, rows: DataFrame, seq: Column) -> DataFrame:
        return rows.select(seq.alias("seq"), *(F.col(_quoted(one.name)) for one in self._stored))


def find_scan(spark: SparkSession, address: Address, options: SourceOptions) -> NativeScan | None:
    """What Spark can read by itself of a log; None if that is nothing.

    Whatever the source refuses is raised by the source, so that it is said in one way.
    """
    is_plain = options.fail_on_loss and not options.partitions_min
    if address.kind != "log" or not is_plain or options.partition_rows_max:
        return None
    how = {"read_only": True} if address.url.startswith("/") else {"create": False}
    with open_store(address.url, schema=None, **how) as log:
        archive = log.archive()
        if archive is None:
            return None
        manifest = archive.look()
        columns = spark_schema(LogBatch.empty(log.versions.newest, 1).to_arrow().schema)
        start, end = range_of(options, log.ends(), log.place, log.seq_at)
        low, high = options.bounds.seqs
        start, end = max(start, low), min(end, high + 1)
        segments = list(archive.between(start, end))
        while segments and segments[-1].bytes < SMALL_BYTES:
            segments.pop()
    base = _base(archive.objects.url)
    if base is None or not segments or segments[0].first > start:
        return None
    if not _is_readable(columns, segments) or not _sees(spark, base, manifest):
        return None
    return NativeScan(base, segments, columns, start, min(segments[-1].next, end), end)


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
    names = [name.lower() for name in columns.names]
    is_told = all(one.file.startswith(f"{SEGMENTS}/{one.first:020}-") for one in segments)
    return is_told and len({*names, "_metadata", _ROW_INDEX}) == len(names) + 2


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
